"""Converts many JSON objects, or a column of JSON values, at once.

Objects are read by PyArrow's reader of JSON lines. `decode` handles what this does not: values that
do not fit their column as they are, escapes, other types. The result is the same as that of
`decode`, without a Python object for each value.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json

from streamhouse.formats import times

_EXACT_DIGITS = 15
"""Decimal digits that a double always keeps."""
_INT64_DIGITS = 18
_FAILURES = (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, UnicodeEncodeError, ValueError)


def column(values: Sequence[Any], kind: pa.DataType, standard: str) -> pa.Array | None:
    """The column of `values`, as orjson reads them; None if they must be converted one by one."""
    try:
        if kind in (pa.string(), pa.bool_()):
            # PyArrow refuses values of other types.
            return pa.array(values, kind)
        if pa.types.is_timestamp(kind):
            return times.parse_timestamps(pa.array(values, pa.string()), kind, standard)
        if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
            return _numbers(pa.array(values), values, kind)
    except _FAILURES:
        pass
    return None


def _numbers(found: pa.Array, values: Sequence[Any], kind: pa.DataType) -> pa.Array | None:
    """`found` is the array in the type that its values have."""
    if pa.types.is_null(found.type):
        return found.cast(kind)
    if pa.types.is_decimal(kind):
        return _decimals(found, values, kind)
    if pa.types.is_int64(found.type):
        # Safe: fails if the type is too narrow, or cannot represent a number exactly.
        return found.cast(kind)
    if pa.types.is_float64(found.type) and pa.types.is_floating(kind) and _unmixed(values):
        cast = found.cast(kind)
        return cast if not pc.any(pc.is_inf(cast)).as_py() else None
    return None


def _unmixed(values: Sequence[Any]) -> bool:
    """Whether no value is a boolean, which PyArrow converts to a float among floats."""
    return bool not in set(map(type, values))


def _decimals(found: pa.Array, values: Sequence[Any], kind: pa.DataType) -> pa.Array | None:
    if pa.types.is_string(found.type):
        return found.cast(kind)
    if kind.precision > _INT64_DIGITS:
        return None
    limit, unit = 10 ** (kind.precision - kind.scale), 10**kind.scale
    if pa.types.is_int64(found.type):
        numbers = found.fill_null(0).to_numpy(zero_copy_only=False)
        if numbers.size and (numbers.max() >= limit or numbers.min() <= -limit):
            return None
        return decimals(numbers * unit, kind, _nulls(found))
    if not pa.types.is_float64(found.type) or kind.precision > _EXACT_DIGITS:
        return None
    if not _unmixed(values):
        return None
    floats = found.fill_null(0.0).to_numpy(zero_copy_only=False)
    with np.errstate(over="ignore"):
        scaled = np.rint(floats * unit)
    # If the float is the one nearest to a decimal of this scale, its text was that decimal, or a
    # text that rounds to it: with 15 digits, decimals are farther apart than floats.
    if not (np.abs(scaled) < 10**kind.precision).all() or not (scaled / unit == floats).all():
        return None
    return decimals(scaled.astype(np.int64), kind, _nulls(found))


def _nulls(array: pa.Array) -> Any:
    return array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None


def decimals(unscaled: Any, kind: pa.Decimal128Type, nulls: Any = None) -> pa.Decimal128Array:
    """Decimals by their unscaled numbers of 64 bits; `nulls`: which are null, if some are."""
    words = np.empty((len(unscaled), 2), np.int64)
    words[:, 0], words[:, 1] = unscaled, unscaled >> 63
    valid = None if nulls is None else pa.py_buffer(np.packbits(~nulls, bitorder="little"))
    return pa.Array.from_buffers(kind, len(unscaled), [valid, pa.py_buffer(words)])


LEAST = 64
"""Fewer records are decoded one by one as fast."""


class RegularDecoder:
    """Decodes records of one schema. `columns` returns None if they are to be decoded singly."""

    def __init__(self, schema: pa.Schema, standard: str) -> None:
        self._schema, self._standard = schema, standard
        self._usable = len(schema) > 0 and all(_is_usable(field.type) for field in schema)
        read = pa.schema([pa.field(field.name, _read_type(field.type)) for field in schema])
        self._parse = json.ParseOptions(
            explicit_schema=read, newlines_in_values=False, unexpected_field_behavior="ignore"
        )

    def columns(self, records: Sequence[bytes | None]) -> list[pa.Array] | None:
        """The columns, none of which has a null; None if the records are to be decoded singly."""
        if not self._usable or len(records) < LEAST or None in records:
            return None
        lines = b"\n".join([record.strip() for record in records if record is not None])
        if b"\\" in lines or not _are_objects(lines, len(records)):
            return None
        read = json.ReadOptions(use_threads=False, block_size=len(lines) + 1)
        try:
            lines.decode()
            table = json.read_json(pa.py_buffer(lines), read, self._parse)
            found = [self._column(table.column(field.name), field.type) for field in self._schema]
        except (pa.ArrowInvalid, UnicodeDecodeError):
            return None
        if table.num_rows != len(records):
            return None
        arrays = [array for array in found if array is not None and not array.null_count]
        return arrays if len(arrays) == len(found) else None

    def _column(self, read: pa.ChunkedArray, kind: pa.DataType) -> pa.Array | None:
        array = read.combine_chunks()
        if pa.types.is_timestamp(kind):
            return times.parse_timestamps(array, kind, self._standard)
        return array.cast(kind)


def _read_type(kind: pa.DataType) -> pa.DataType:
    """The type in which PyArrow reads a column that `_column` converts."""
    if pa.types.is_timestamp(kind):
        return pa.string()  # What a time looks like depends on the standard.
    # PyArrow does not check the precision of what it reads, but that of a cast.
    return pa.decimal128(38, kind.scale) if pa.types.is_decimal(kind) else kind


def _is_usable(kind: pa.DataType) -> bool:
    """Whether PyArrow accepts only values of a type for which `decode` returns the same."""
    exact = pa.types.is_string(kind) or pa.types.is_signed_integer(kind)
    return bool(exact or pa.types.is_decimal128(kind) or pa.types.is_timestamp(kind))


def _are_objects(lines: bytes, count: int) -> bool:
    """Whether each of `count` records begins and ends as an object, on a line of its own.

    Then no object begins in one record and ends in another: after `}` of an object that is not
    complete, the next record would be an error. So `count` rows are one of each record.
    """
    return (
        lines[:1] == b"{"
        and lines[-1:] == b"}"
        and lines.count(b"\n") == lines.count(b"}\n{") == count - 1
    )
