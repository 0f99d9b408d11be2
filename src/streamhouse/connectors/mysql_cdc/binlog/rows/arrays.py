"""Converts the values of a column in many row images to one plain Arrow array.

The results are those of `format.decode`, which reads types without a conversion here one by one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pymysql.constants import FIELD_TYPE

from streamhouse.connectors.mysql_cdc.binlog.format import decode
from streamhouse.connectors.mysql_cdc.binlog.format.decode import Context
from streamhouse.connectors.mysql_cdc.binlog.format.packed_decimal import decimal_groups
from streamhouse.connectors.mysql_cdc.binlog.format.table_map import (
    DATETIME2,
    TIMESTAMP2,
    VECTOR,
    LoggedColumn,
)
from streamhouse.connectors.mysql_cdc.binlog.format.temporal import Read
from streamhouse.connectors.mysql_cdc.binlog.rows.images import Block, IntArray, Values
from streamhouse.mysql.values.dates import DateReading, first_scalar, is_first, texts_of
from streamhouse.mysql.values.types import MySqlColumn, from_values, unreadable

ToArray: TypeAlias = Callable[[Block, Values], pa.Array]
"""The plain array of a column's values."""
_Maker: TypeAlias = Callable[[LoggedColumn, MySqlColumn, Context], ToArray | None]
_Nulls: TypeAlias = npt.NDArray[np.bool_] | None

_NUMBERS = {
    (FIELD_TYPE.TINY, True): "i1", (FIELD_TYPE.TINY, False): "u1",
    (FIELD_TYPE.SHORT, True): "<i2", (FIELD_TYPE.SHORT, False): "<u2",
    (FIELD_TYPE.LONG, True): "<i4", (FIELD_TYPE.LONG, False): "<u4",
    (FIELD_TYPE.LONGLONG, True): "<i8", (FIELD_TYPE.LONGLONG, False): "<u8",
}  # fmt: skip
_UTF8 = ("utf8", "utf8mb3", "utf8mb4")
_ASCII = ("ascii", "latin1")
"""Character sets whose first 128 bytes are those of ASCII."""
_COMPACT_DIGITS = 18
_DAY_MICROS = 86_400_000_000
_EPOCH_MONTH = 1970 * 12


def to_array(
    wire: LoggedColumn, column: MySqlColumn, context: Context, read: Read, captured: MySqlColumn
) -> ToArray:
    """The conversion of a column, which `wire` describes, to the plain type of `captured`.

    `column` is the table's column when the rows were written; `read` decodes one value.
    """
    make = _MAKERS.get(column.family) if column.plain == captured.plain else None
    made = None if make is None else make(wire, column, context)
    if made is None:
        return _one_by_one(captured, read, context.dates)
    if not column.has_date or context.dates.is_default:
        return made
    return _checked_dates(made, _one_by_one(captured, read, context.dates), wire, context)


def _one_by_one(column: MySqlColumn, read: Read, reading: DateReading) -> ToArray:
    def convert(block: Block, values: Values) -> pa.Array:
        data, offsets = block.data, values.at.tolist()
        if values.nulls is None:
            return from_values(column, [read(data, at)[0] for at in offsets], reading)
        nulls = values.nulls.tolist()
        return from_values(
            column,
            [None if null else read(data, at)[0] for at, null in zip(offsets, nulls, strict=True)],
            reading,
        )

    return convert


def _checked_dates(
    convert: ToArray, one_by_one: ToArray, wire: LoggedColumn, context: Context
) -> ToArray:
    """Reads dates as `context` says; `one_by_one`, which is slower, if some are no dates."""
    reading = context.dates
    rounds = reading.zero_dates == "ROUND" and not reading.as_text

    def checked(block: Block, values: Values) -> pa.Array:
        array = convert(block, values)
        logged = 0 if values.nulls is None else int(values.nulls.sum())
        if reading.rounds_key and pc.any(is_first(array)).as_py():
            return one_by_one(block, values)
        if rounds and array.null_count > logged:
            array = pc.if_else(_zeros(block, values, wire), first_scalar(array.type), array)
            if not reading.in_key:
                return array
        if array.null_count > logged:
            return one_by_one(block, values)
        return texts_of(array, context.digits) if reading.as_text else array

    return checked


def _zeros(block: Block, values: Values, wire: LoggedColumn) -> pa.Array:
    """Which values are zero dates."""
    # The highest bit of a DATETIME is its sign.
    zero = block.bytes_at(values.at) == (0x80 if wire.type == DATETIME2 else 0)
    for index in range(1, decode.width(wire).size):
        zero &= block.bytes_at(values.at + index) == 0
    return pa.array(zero if values.nulls is None else zero & ~values.nulls)


def _array(numbers: Any, kind: pa.DataType, nulls: _Nulls) -> pa.Array:
    return pa.array(numbers, kind, mask=nulls)


def _number(wire: LoggedColumn, column: MySqlColumn, context: Context) -> ToArray | None:
    signed = not decode.is_unsigned(wire, column)
    dtype, plain = _NUMBERS.get((wire.type, signed)), column.plain
    target = np.uint64 if pa.types.is_uint64(plain) else np.int64

    def convert(block: Block, values: Values) -> pa.Array:
        if dtype is not None:
            numbers = block.words_at(values.at, dtype)
        else:
            # MEDIUMINT: three bytes, of which the highest extends to the fourth.
            numbers = block.words_at(values.at, "<i4" if signed else "<u4") << 8 >> 8
        return _array(numbers.astype(target), plain, values.nulls)

    return convert


def _real(wire: LoggedColumn, column: MySqlColumn, context: Context) -> ToArray | None:
    dtype, plain = "<f4" if wire.type == FIELD_TYPE.FLOAT else "<f8", column.plain

    def convert(block: Block, values: Values) -> pa.Array:
        # The bytes where a value is NULL may be a signalling NaN.
        with np.errstate(invalid="ignore"):
            numbers = block.words_at(values.at, dtype).astype(np.float64)
        return _array(numbers, plain, values.nulls)

    return convert


def _decimal(wire: LoggedColumn, column: MySqlColumn, context: Context) -> ToArray | None:
    same = (wire.precision, wire.scale) == (column.precision, column.scale)
    if not same or wire.precision > _COMPACT_DIGITS:
        return None
    whole = wire.precision - wire.scale
    digits = [whole % 9, *[9] * (whole // 9), *[9] * (wire.scale // 9), wire.scale % 9]
    sizes = decimal_groups(wire.precision, wire.scale)
    groups = [(size, 10**width) for size, width in zip(sizes, digits, strict=True) if size]
    plain = column.plain

    def convert(block: Block, values: Values) -> pa.Array:
        at = values.at
        # The sign bit is inverted so that bytes sort; a negative number has all bits inverted.
        negative = block.bytes_at(at) < 0x80
        total = np.zeros(len(at), np.int64)
        flip = np.where(negative, 0xFFFFFFFF, 0)
        for number, (size, factor) in enumerate(groups):
            raw = block.words_at(at, ">u4").astype(np.int64)
            if number == 0:
                raw ^= 0x80000000
            total = total * factor + ((raw ^ flip) >> 8 * (4 - size))
            at = at + size
        return _decimals(np.where(negative, -total, total), plain, values.nulls)

    return convert


def _decimals(unscaled: IntArray, plain: pa.DataType, nulls: _Nulls) -> pa.Array:
    pairs = np.empty((len(unscaled), 2), np.int64)
    pairs[:, 0], pairs[:, 1] = unscaled, unscaled >> 63
    valid = None if nulls is None else pa.py_buffer(np.packbits(~nulls, bitorder="little"))
    return pa.Array.from_buffers(plain, len(unscaled), [valid, pa.py_buffer(pairs)])


def _cut(block: Block, values: Values) -> pa.Array:
    """The bytes of the values, as a binary array."""
    assert values.lengths is not None
    # The values and the gaps between them make one array, of which every second is taken.
    begins = values.at + values.length_size
    if not len(begins):
        return pa.array([], pa.binary())
    bounds = np.empty(2 * len(begins), np.int32)
    bounds[0::2], bounds[1::2] = begins, begins + values.lengths
    pieces = pa.Array.from_buffers(
        pa.binary(), len(bounds) - 1, [None, pa.py_buffer(bounds), block.buffer]
    )
    evens = np.arange(0, len(bounds), 2, dtype=np.int32)
    return pieces.take(pa.array(evens, mask=values.nulls))


def _text(wire: LoggedColumn, column: MySqlColumn, context: Context) -> ToArray | None:
    if wire.type not in (FIELD_TYPE.STRING, FIELD_TYPE.VARCHAR, FIELD_TYPE.BLOB):
        return None
    charset = decode.logged_charset(wire, column)
    text_of = context.charsets.decoder(charset, context.in_key)

    def each(raw: bytes) -> str:
        try:
            return text_of(raw)
        except ValueError as error:
            raise unreadable(column, str(error)) from None

    def convert(block: Block, values: Values) -> pa.Array:
        raw = _cut(block, values)
        if charset in _UTF8 or charset in _ASCII:
            with contextlib.suppress(pa.ArrowInvalid):
                texts = raw.cast(pa.string())
                if charset in _UTF8 or pc.all(pc.string_is_ascii(texts)).as_py() is not False:
                    return texts
        # Each text once: most columns repeat theirs.
        encoded = raw.dictionary_encode()
        decoded = [each(value) for value in encoded.dictionary.to_pylist()]
        return pa.array(decoded, pa.string()).take(encoded.indices)

    return convert


def _binary(wire: LoggedColumn, column: MySqlColumn, context: Context) -> ToArray | None:
    # The binlog leaves out BINARY's trailing zeros.
    padded = column.data_type == "binary" and wire.type == FIELD_TYPE.STRING
    plain_types = (FIELD_TYPE.STRING, FIELD_TYPE.VARCHAR, FIELD_TYPE.BLOB, VECTOR)
    return None if padded or wire.type not in plain_types else _cut


def _days(year: Any, month: Any, day: Any) -> tuple[IntArray, npt.NDArray[np.bool_]]:
    """Days since 1970, and which of the dates do not exist (zero dates, 31 February)."""
    bad = (year == 0) | (month < 1) | (month > 12) | (day < 1)
    months = np.where(bad, 0, year * 12 + month - 1 - _EPOCH_MONTH).astype("M8[M]")
    first = months.astype("M8[D]").astype(np.int64)
    following = (months + 1).astype("M8[D]").astype(np.int64)
    days = first + day - 1
    return days, bad | (days >= following)


def _or(nulls: _Nulls, others: npt.NDArray[np.bool_]) -> _Nulls:
    if not others.any():
        return nulls
    return others if nulls is None else nulls | others


def _date(wire: LoggedColumn, column: MySqlColumn, context: Context) -> ToArray | None:
    def convert(block: Block, values: Values) -> pa.Array:
        packed = block.lengths_at(values.at, 3)
        days, bad = _days(packed >> 9, packed >> 5 & 15, packed & 31)
        nulls = _or(values.nulls, bad)
        return _array(days.astype(np.int32), pa.int32(), nulls).cast(column.plain)

    return convert


def _fraction(block: Block, at: IntArray, size: int) -> IntArray:
    """The fractions of seconds, of `size` bytes at each offset, in microseconds."""
    raw = block.words_at(at, ">u4").astype(np.int64)
    found: IntArray = (raw >> 8 * (4 - size)) * 100 ** (3 - size)
    return found


def _datetime(wire: LoggedColumn, column: MySqlColumn, context: Context) -> ToArray | None:
    if wire.type != DATETIME2:
        return None
    extra = (wire.fraction + 1) // 2

    def convert(block: Block, values: Values) -> pa.Array:
        packed = block.words_at(values.at, ">i8") >> 24 & 0x7FFFFFFFFF
        months = packed >> 22
        days, bad = _days(months // 13, months % 13, packed >> 17 & 31)
        clock = ((packed >> 12 & 31) * 60 + (packed >> 6 & 63)) * 60 + (packed & 63)
        micros = days * _DAY_MICROS + clock * 1_000_000
        if extra:
            micros += _fraction(block, values.at + 5, extra)
        return _array(micros, pa.int64(), _or(values.nulls, bad)).cast(column.plain)

    return convert


def _timestamp(wire: LoggedColumn, column: MySqlColumn, context: Context) -> ToArray | None:
    if wire.type != TIMESTAMP2:
        return None
    extra = (wire.fraction + 1) // 2

    def convert(block: Block, values: Values) -> pa.Array:
        micros = block.words_at(values.at, ">u4").astype(np.int64) * 1_000_000
        if extra:
            micros += _fraction(block, values.at + 4, extra)
        nulls = _or(values.nulls, micros == 0)
        return _array(micros, pa.int64(), nulls).cast(column.plain)

    return convert


def _enum(wire: LoggedColumn, column: MySqlColumn, context: Context) -> ToArray | None:
    members = pa.array(["", *decode.members_of(wire, column, context)], pa.string())
    size = wire.size

    def convert(block: Block, values: Values) -> pa.Array:
        numbers = block.lengths_at(values.at, size)
        if values.nulls is not None:
            numbers = np.where(values.nulls, 0, numbers)
        if len(numbers) and numbers.max() >= len(members):
            raise decode.no_member(column)
        return members.take(_array(numbers, pa.int64(), values.nulls))

    return convert


_MAKERS: dict[str, _Maker] = {
    "int": _number,
    "uint64": _number,
    "decimal": _decimal,
    "float": _real,
    "double": _real,
    "string": _text,
    "binary": _binary,
    "vector": _binary,
    "date": _date,
    "datetime": _datetime,
    "timestamp": _timestamp,
    "enum": _enum,
}
