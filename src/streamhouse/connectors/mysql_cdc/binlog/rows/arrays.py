"""Converts the values of a column in many row images to one plain Arrow array.

Types without a conversion here are read one by one, by `format.decode`.
"""

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
    LoggedColumn,
)
from streamhouse.connectors.mysql_cdc.binlog.rows.images import Block, IntArray, Values
from streamhouse.formats.json.columns import decimals
from streamhouse.mysql.values.byte_values import geometry_texts
from streamhouse.mysql.values.dates import is_first, parsed, texts_of, zero_text
from streamhouse.mysql.values.result_rows import cut
from streamhouse.mysql.values.types import MySqlColumn, from_values, to_values, unreadable

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
_OTHER_THAN_ASCII = frozenset({"swe7", "sjis", "ucs2", "utf16", "utf16le", "utf32"})
"""Character sets in which ASCII's characters have other bytes, too, or other bytes alone."""
_COMPACT_DIGITS = 18
_DAY_MICROS = 86_400_000_000
_EPOCH_MONTH = 1970 * 12


def to_array(
    wire: LoggedColumn, column: MySqlColumn, context: Context, captured: MySqlColumn
) -> ToArray:
    """The conversion of a column, which `wire` describes, to the plain type of `captured`.

    `column` is the table's column when the rows were written. Raises `SchemaChangeError` if the
    binlog has another type.
    """
    decode.check_type(wire, column)
    make = _MAKERS.get(column.family)
    made = None if make is None else make(wire, column, context)
    if made is None:
        made = _one_by_one(wire, column, context)
    elif column.has_date and not context.dates.is_default:
        made = _checked_dates(made, wire, column, context)
    convert = made

    def converted(block: Block, values: Values) -> pa.Array:
        try:
            plain = convert(block, values)
        except ValueError as error:
            raise unreadable(column, str(error)) from None
        if column.plain == captured.plain:
            return plain
        return from_values(captured, to_values(column, plain), context.dates)

    return converted


def _one_by_one(wire: LoggedColumn, column: MySqlColumn, context: Context) -> ToArray:
    read = decode.READERS[column.family](wire, column, context)
    size = decode.width(wire, column).size

    def convert(block: Block, values: Values) -> pa.Array:
        found = _cut(block, values, size).to_pylist()
        return from_values(column, [None if raw is None else read(raw) for raw in found])

    return convert


def _checked_dates(
    convert: ToArray, wire: LoggedColumn, column: MySqlColumn, context: Context
) -> ToArray:
    """Reads the values that are no dates, or that may be rounded ones, as `context` says."""
    reading, digits = context.dates, context.digits

    def checked(block: Block, values: Values) -> pa.Array:
        dates = convert(block, values)
        odd = np.asarray(dates.is_null()) & (True if values.nulls is None else ~values.nulls)
        if reading.rounds_key:
            odd |= np.asarray(pc.fill_null(is_first(dates), False))
        found = texts_of(dates, digits) if reading.as_text else dates
        if not odd.any():
            return found
        (places,) = np.nonzero(odd)
        texts = pa.array(_date_texts(wire, column, digits, block, values.at[places]), pa.string())
        read = parsed(column, texts, column.plain, reading)
        return pc.replace_with_mask(found, pa.array(odd), read)

    return checked


def _date_texts(
    wire: LoggedColumn, column: MySqlColumn, digits: int, block: Block, at: IntArray
) -> list[str]:
    """MySQL's texts of values that may be no dates; `digits`: after the seconds."""
    if column.family == "timestamp":
        return [zero_text(column, digits)] * len(at)
    texts = []
    for year, month, day, micros in zip(*_date_parts(wire, block, at), strict=True):
        clock, fraction = divmod(int(micros), 1_000_000)
        text = f"{year:04d}-{month:02d}-{day:02d}"
        if column.family == "datetime":
            text += f" {clock // 3600:02d}:{clock // 60 % 60:02d}:{clock % 60:02d}"
            text += f".{fraction:06d}"[: digits + 1] if digits else ""
        texts.append(text)
    return texts


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
        return pa.array(numbers.astype(target), plain, mask=values.nulls)

    return convert


def _real(wire: LoggedColumn, column: MySqlColumn, context: Context) -> ToArray | None:
    dtype, plain = "<f4" if wire.type == FIELD_TYPE.FLOAT else "<f8", column.plain

    def convert(block: Block, values: Values) -> pa.Array:
        # The bytes where a value is NULL may be a signalling NaN.
        with np.errstate(invalid="ignore"):
            numbers = block.words_at(values.at, dtype).astype(np.float64)
        return pa.array(numbers, plain, mask=values.nulls)

    return convert


def _decimal(wire: LoggedColumn, column: MySqlColumn, context: Context) -> ToArray | None:
    same = (wire.precision, wire.scale) == (column.precision, column.scale)
    if not same or wire.precision > _COMPACT_DIGITS:
        return None
    groups = [(size, 10**width) for size, width in decimal_groups(wire.precision, wire.scale)]
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
        return decimals(np.where(negative, -total, total), plain, values.nulls)

    return convert


def _cut(block: Block, values: Values, size: int = 0) -> pa.Array:
    """The bytes of the values, as a binary array; `size`: of each, if they have no length."""
    lengths = values.lengths
    if lengths is None:
        lengths = np.full(len(values.at), size)
        if values.nulls is not None:
            lengths[values.nulls] = 0
    begins = values.at + values.length_size
    return cut(block.buffer, begins, begins + lengths, values.nulls)


def _mapped(values: pa.Array, change: Callable[[bytes], bytes]) -> pa.Array:
    raw = values.to_pylist()
    return pa.array([None if value is None else change(value) for value in raw], pa.binary())


def _bytes(wire: LoggedColumn) -> ToArray:
    """The bytes of a column's values, inflated if it is COMPRESSED."""
    if wire.type not in decode.COMPRESSED:
        return _cut
    return lambda block, values: _mapped(_cut(block, values), decode.inflated)


def _text(wire: LoggedColumn, column: MySqlColumn, context: Context) -> ToArray:
    bytes_of = _bytes(wire)
    charset = decode.logged_charset(wire, column)

    def convert(block: Block, values: Values) -> pa.Array:
        raw = bytes_of(block, values)
        if charset not in _OTHER_THAN_ASCII:
            with contextlib.suppress(pa.ArrowInvalid):
                texts = raw.cast(pa.string())
                if charset in _UTF8 or pc.all(pc.string_is_ascii(texts)).as_py() is not False:
                    return texts
        # Each text once: most columns repeat theirs.
        encoded = raw.dictionary_encode()
        distinct = encoded.dictionary.to_pylist()
        decoded = context.charsets.texts(charset, distinct, context.dates.in_key)
        return pa.array(decoded, pa.string()).take(encoded.indices)

    return convert


def _binary(wire: LoggedColumn, column: MySqlColumn, context: Context) -> ToArray:
    bytes_of, size = _bytes(wire), wire.length
    if not decode.is_padded(wire, column):
        return bytes_of
    return lambda block, values: _mapped(
        bytes_of(block, values), lambda value: value.ljust(size, b"\0")
    )


def _geometry(wire: LoggedColumn, column: MySqlColumn, context: Context) -> ToArray:
    return lambda block, values: geometry_texts(_cut(block, values))


def _bit(wire: LoggedColumn, column: MySqlColumn, context: Context) -> ToArray:
    return lambda block, values: _cut(block, values, wire.size)


def _year(wire: LoggedColumn, column: MySqlColumn, context: Context) -> ToArray:
    def convert(block: Block, values: Values) -> pa.Array:
        years = block.lengths_at(values.at, 1)
        return pa.array(np.where(years == 0, 0, 1900 + years), column.plain, mask=values.nulls)

    return convert


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


def _fraction(block: Block, at: IntArray, digits: int) -> IntArray:
    """The fractions of seconds, of so many digits, at each offset, in microseconds."""
    size = (digits + 1) // 2
    if not size:
        return np.zeros(len(at), np.int64)
    raw = block.words_at(at, ">u4").astype(np.int64)
    found: IntArray = (raw >> 8 * (4 - size)) * 100 ** (3 - size)
    return found


def _date_parts(
    wire: LoggedColumn, block: Block, at: IntArray
) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """The year, month, day, and microseconds of the day, of a DATE or DATETIME."""
    if wire.type == FIELD_TYPE.DATE:
        packed = block.lengths_at(at, 3)
        return packed >> 9, packed >> 5 & 15, packed & 31, np.zeros(len(at), np.int64)
    if wire.type == DATETIME2:
        packed = block.words_at(at, ">i8") >> 24 & 0x7FFFFFFFFF
        months, day = packed >> 22, packed >> 17 & 31
        year, month = months // 13, months % 13
        hours, minutes, seconds = packed >> 12 & 31, packed >> 6 & 63, packed & 63
    else:
        # The decimal digits YYYYMMDDhhmmss are the number.
        date, clock = np.divmod(block.words_at(at, "<i8"), 1_000_000)
        year, month, day = date // 10_000, date // 100 % 100, date % 100
        hours, minutes, seconds = clock // 10_000, clock // 100 % 100, clock % 100
    micros = ((hours * 60 + minutes) * 60 + seconds) * 1_000_000
    return year, month, day, micros + _fraction(block, at + 5, wire.fraction)


def _date(wire: LoggedColumn, column: MySqlColumn, context: Context) -> ToArray:
    def convert(block: Block, values: Values) -> pa.Array:
        year, month, day, micros = _date_parts(wire, block, values.at)
        days, bad = _days(year, month, day)
        nulls = _or(values.nulls, bad)
        if column.family == "date":
            return pa.array(days.astype(np.int32), pa.int32(), mask=nulls).cast(column.plain)
        return pa.array(days * _DAY_MICROS + micros, pa.int64(), mask=nulls).cast(column.plain)

    return convert


def _timestamp(wire: LoggedColumn, column: MySqlColumn, context: Context) -> ToArray:
    dtype = ">u4" if wire.type == TIMESTAMP2 else "<u4"

    def convert(block: Block, values: Values) -> pa.Array:
        micros = block.words_at(values.at, dtype).astype(np.int64) * 1_000_000
        micros += _fraction(block, values.at + 4, wire.fraction)
        nulls = _or(values.nulls, micros == 0)
        return pa.array(micros, pa.int64(), mask=nulls).cast(column.plain)

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
        return members.take(pa.array(numbers, pa.int64(), mask=values.nulls))

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
    "geometry": _geometry,
    "bit": _bit,
    "year": _year,
    "date": _date,
    "datetime": _date,
    "timestamp": _timestamp,
    "enum": _enum,
}
