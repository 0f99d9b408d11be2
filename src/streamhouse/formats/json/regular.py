"""Decodes JSON objects that differ only in the values of their fields, all at once with NumPy.

Most producers write the same fields in the same order and with the same spaces. The text between
the values is then the same in each record, and the quotes show where it is. `decode` handles
everything else: other records, nested values, escapes, exponents, values that do not fit. The
result is the same as that of `decode`, without a Python object for each value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from streamhouse.formats import times
from streamhouse.formats.json.block import (
    MOST_DIGITS,
    Block,
    Field,
    Irregular,
    Numbers,
    Shape,
    eight_digits,
)
from streamhouse.formats.json.columns import decimals

Place: TypeAlias = tuple[Numbers, Numbers]
"""Where the values of a field begin and end."""
LEAST = 64
"""Fewer records are decoded one by one as fast."""
_DOT, _MINUS, _ZERO = b".-0"
_FIELD = re.compile(rb'"([^"\\]*)"(\s*:\s*)(?:"([^"\\]*)"|(-?\d[\d.]*))(\s*[,}]\s*)')


class RegularDecoder:
    """Decodes records of one schema. `columns` returns None if they are not regular."""

    def __init__(self, schema: pa.Schema, standard: str) -> None:
        self._schema = schema
        self._makers = [_maker(field.type, standard) for field in schema]
        self._usable = len(schema) > 0 and None not in self._makers
        self._last_shape: Shape | None = None

    def columns(self, records: Sequence[bytes | None]) -> list[pa.Array] | None:
        """The columns, none of which has a null; None if the records are to be decoded singly."""
        if not self._usable or len(records) < LEAST or not records[0]:
            return None
        last = self._last_shape
        shape = _shape(records[0]) if last is None else last
        if shape is None:
            return None
        try:
            block = Block.of(records)
            shape, places = self._matched(block, shape, records[0])
            self._last_shape = shape
            return self._columns(shape, block, places)
        except (Irregular, pa.ArrowInvalid):
            self._last_shape = None
            return None

    def _matched(self, block: Block, shape: Shape, first: bytes) -> tuple[Shape, list[Place]]:
        """The shape of the records, and where their values are; the last shape mostly matches."""
        try:
            return shape, block.values(shape)
        except Irregular:
            other = _shape(first)
            if other is None or other == shape:
                raise
            return other, block.values(other)

    def _columns(self, shape: Shape, block: Block, places: Sequence[Place]) -> list[pa.Array]:
        found = {}
        for field, place in zip(shape.fields, places, strict=True):
            number = self._schema.get_field_index(field.name)
            if number >= 0:
                text, make = self._makers[number] or (False, _ignored)
                if text != field.text:
                    raise Irregular
                found[number] = make(block, *place)
            elif not field.text:
                _number(block, *place)
        if len(found) < len(self._schema):
            raise Irregular
        return [found[number] for number in range(len(found))]


def _unsigned(block: Block, starts: Numbers, ends: Numbers) -> tuple[Numbers, Numbers]:
    """Where the digits of numbers begin, and which numbers are negative."""
    negative = block.data[starts] == _MINUS
    return starts + negative, negative


def _checked_zeros(block: Block, starts: Numbers, ends: Numbers) -> None:
    """Raise `Irregular` for integers with a leading zero, which JSON does not allow."""
    if ((block.data[starts] == _ZERO) & (ends - starts > 1)).any():
        raise Irregular


def _whole(block: Block, starts: Numbers, ends: Numbers) -> Numbers:
    first, negative = _unsigned(block, starts, ends)
    found = block.digits(first, ends)
    _checked_zeros(block, first, ends)
    return np.asarray(np.where(negative, -found, found))


def _parts(block: Block, starts: Numbers, ends: Numbers, most: int) -> tuple[Numbers, ...]:
    """Where the digits of decimals begin, how many are after the dot, and which are negative."""
    first, negative = _unsigned(block, starts, ends)
    fraction = np.zeros(len(starts), np.int64)
    dotted = np.zeros(len(starts), bool)
    for count in range(most + 1):
        here = (block.data[ends - 1 - count] == _DOT) & (ends - 1 - count > first) & ~dotted
        fraction[here] = count
        dotted |= here
    if (dotted & (fraction == 0)).any():
        raise Irregular
    whole_ends = ends - fraction - dotted
    _checked_zeros(block, first, whole_ends)
    return first, whole_ends, fraction, negative


def _scaled(block: Block, starts: Numbers, ends: Numbers, scale: int) -> Numbers:
    """Decimals as multiples of 10 to the power of `-scale`, of up to 16 digits."""
    first, whole_ends, fraction, negative = _parts(block, starts, ends, scale)
    found = block.digits(first, whole_ends)
    if found.max() >= 10 ** (MOST_DIGITS + 1 - scale):
        raise Irregular
    found = found * 10**scale
    if fraction.any():
        digits = eight_digits(block.words[ends - 8], fraction).astype(np.int64)
        found = found + digits * 10 ** (scale - fraction)
    return np.asarray(np.where(negative, -found, found))


_LONGEST_FRACTION = 8


def _number(block: Block, starts: Numbers, ends: Numbers) -> None:
    """Raise `Irregular` unless these are numbers of up to 16 digits, and 8 after the dot."""
    first, whole_ends, fraction, _ = _parts(block, starts, ends, _LONGEST_FRACTION)
    block.digits(first, whole_ends)
    eight_digits(block.words[ends - 8], fraction)


def _ignored(block: Block, starts: Numbers, ends: Numbers) -> pa.Array:
    raise Irregular


_Make: TypeAlias = Callable[[Block, Numbers, Numbers], pa.Array]


def _maker(kind: pa.DataType, standard: str) -> tuple[bool, _Make] | None:
    """Whether values of a type are texts, and what makes the column of them; None: nothing."""
    if pa.types.is_string(kind):
        return True, lambda block, starts, ends: block.texts(starts, ends)
    if pa.types.is_integer(kind):
        return False, lambda block, starts, ends: pa.array(_whole(block, starts, ends)).cast(kind)
    if pa.types.is_decimal(kind) and kind.precision <= MOST_DIGITS and 0 <= kind.scale <= 8:
        return False, lambda block, starts, ends: _decimals(block, starts, ends, kind)
    if pa.types.is_timestamp(kind):
        return True, lambda block, starts, ends: _timestamps(
            block.texts(starts, ends), kind, standard
        )
    return None


def _decimals(block: Block, starts: Numbers, ends: Numbers, kind: pa.Decimal128Type) -> pa.Array:
    found = _scaled(block, starts, ends, kind.scale)
    if np.abs(found).max() >= 10**kind.precision:
        raise Irregular
    return decimals(found, kind)


def _timestamps(texts: pa.Array, kind: pa.TimestampType, standard: str) -> pa.Array:
    found = times.parse_timestamps(texts, kind, standard)
    if found is None:
        raise Irregular
    return found


def _shape(record: bytes) -> Shape | None:
    """The shape of a record; None if it is not regular by itself."""
    opening = re.match(rb"\s*\{\s*", record)
    if opening is None:
        return None
    at, end, quotes, fields = opening.end(), 0, 0, list[Field]()
    while True:
        match = _FIELD.match(record, at)
        if match is None:
            return None
        text = match[3] is not None
        first, last = match.span(3 if text else 4)
        quotes += 3 if text else 2
        try:
            name = match[1].decode()
        except UnicodeDecodeError:
            return None
        fields.append(Field(name, record[end:first], text, quotes))
        quotes += 1 if text else 0
        at, end = match.end(), last
        if b"}" in match[5]:
            break
    if at != len(record) or len({field.name for field in fields}) < len(fields):
        return None
    return Shape(tuple(fields), record[end:], quotes)
