"""A plain decoder of row images, value by value, with which the decoder by column is compared."""

from __future__ import annotations

import datetime
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa
from pymysql.constants import FIELD_TYPE

from streamhouse.connectors.mysql_cdc.binlog.format.decode import (
    Context,
    check_type,
    is_unsigned,
    logged_charset,
    members_of,
    no_member,
    width,
)
from streamhouse.connectors.mysql_cdc.binlog.format.events import (
    DELETES,
    HEADER,
    INSERTS,
    ROWS_2,
)
from streamhouse.connectors.mysql_cdc.binlog.format.json_binary import json_text
from streamhouse.connectors.mysql_cdc.binlog.format.packed_decimal import decimal_groups
from streamhouse.connectors.mysql_cdc.binlog.format.table_map import (
    BLOB_COMPRESSED,
    DATETIME2,
    TIMESTAMP2,
    VARCHAR_COMPRESSED,
    LoggedColumn,
    packed,
)
from streamhouse.connectors.mysql_cdc.binlog.rows.batch_decoder import LoggedTable, RowEvent
from streamhouse.mysql.charsets import charsets_of
from streamhouse.mysql.values.byte_values import geometry_texts, inet4_text, inet6_text, uuid_text
from streamhouse.mysql.values.dates import FIRST_DAY, FIRST_US, DateReading, parsed
from streamhouse.mysql.values.types import MySqlColumn, to_values, unreadable

Read: TypeAlias = Callable[[bytes, int], tuple[Any, int]]
"""Decodes the value at a byte offset; returns it and the offset after it."""

_INTEGERS = {
    FIELD_TYPE.TINY: 1,
    FIELD_TYPE.SHORT: 2,
    FIELD_TYPE.INT24: 3,
    FIELD_TYPE.LONG: 4,
    FIELD_TYPE.LONGLONG: 8,
}
_COMPRESSED = (BLOB_COMPRESSED, VARCHAR_COMPRESSED)
_WITHOUT_HEADER = 0x08
_DAY_MICROS = 86_400_000_000
_EPOCH_DAY = datetime.date(1970, 1, 1).toordinal()
_TIME_OFFSET = 0x800000


def _timestamp_text(micros: int, digits: int) -> str:
    """MySQL's text of microseconds since 1970; of 0, the zero date."""
    if not micros:
        return _datetime_text((0,) * 7, digits)
    timestamp = datetime.datetime(1970, 1, 1) + datetime.timedelta(microseconds=micros)
    text = timestamp.isoformat(" ", "seconds")
    return f"{text}.{timestamp.microsecond:06d}"[: len(text) + 1 + digits] if digits else text


def days(year: int, month: int, day: int) -> int | None:
    """Days since 1970; None for a zero date, and for a day that does not exist."""
    if year == 0 or month == 0 or day == 0:
        return None
    try:
        return datetime.date(year, month, day).toordinal() - _EPOCH_DAY
    except ValueError:  # such as 31 February, which ALLOW_INVALID_DATES lets in
        return None


def micros(
    year: int, month: int, day: int, hours: int, minutes: int, seconds: int, fraction: int
) -> int | None:
    """Microseconds since 1970; None where `days` is None."""
    whole = days(year, month, day)
    if whole is None:
        return None
    of_day = ((hours * 60 + minutes) * 60 + seconds) * 1_000_000 + fraction
    return whole * _DAY_MICROS + of_day


def year_reader(wire: LoggedColumn) -> Read:
    return lambda data, at: (1900 + data[at] if data[at] else 0, at + 1)


def date_reader(wire: LoggedColumn) -> Read:
    def read(data: bytes, at: int) -> tuple[int | None, int]:
        packed = int.from_bytes(data[at : at + 3], "little")
        return days(packed >> 9, packed >> 5 & 15, packed & 31), at + 3

    return read


def datetime_reader(wire: LoggedColumn) -> Read:
    if wire.type == FIELD_TYPE.DATETIME:
        return _old_datetime
    extra = (wire.fraction + 1) // 2

    def read(data: bytes, at: int) -> tuple[int | None, int]:
        packed = int.from_bytes(data[at : at + 5], "big") - 0x8000000000
        months, end = packed >> 22, at + 5 + extra
        whole = days(months // 13, months % 13, packed >> 17 & 31)
        if whole is None:
            return None, end
        hours, minutes, seconds = packed >> 12 & 31, packed >> 6 & 63, packed & 63
        of_day = ((hours * 60 + minutes) * 60 + seconds) * 1_000_000
        return whole * _DAY_MICROS + of_day + _fraction(data, at + 5, extra), end

    return read


def timestamp_reader(wire: LoggedColumn) -> Read:
    if wire.type == FIELD_TYPE.TIMESTAMP:
        return _old_timestamp
    extra = (wire.fraction + 1) // 2

    def read(data: bytes, at: int) -> tuple[int | None, int]:
        seconds = int.from_bytes(data[at : at + 4], "big")
        timestamp = seconds * 1_000_000 + _fraction(data, at + 4, extra)
        return (timestamp or None), at + 4 + extra

    return read


def date_text_reader(wire: LoggedColumn, digits: int) -> Read:
    """Decodes a DATE, DATETIME or TIMESTAMP to MySQL's text, whether or not it is a date.

    `digits`: how many to give after the seconds. A TIMESTAMP is in UTC.
    """
    if wire.type == FIELD_TYPE.DATE:
        return _date_text
    if wire.type in (FIELD_TYPE.TIMESTAMP, TIMESTAMP2):
        read_micros = timestamp_reader(wire)

        def read_timestamp(data: bytes, at: int) -> tuple[str, int]:
            value, end = read_micros(data, at)
            return _timestamp_text(value, digits), end

        return read_timestamp
    parts_of = _old_datetime_parts
    if wire.type == DATETIME2:
        parts_of = partial(_datetime_parts, (wire.fraction + 1) // 2)

    def read(data: bytes, at: int) -> tuple[str, int]:
        parts, end = parts_of(data, at)
        return _datetime_text(parts, digits), end

    return read


def _date_text(data: bytes, at: int) -> tuple[str, int]:
    packed = int.from_bytes(data[at : at + 3], "little")
    return f"{packed >> 9:04d}-{packed >> 5 & 15:02d}-{packed & 31:02d}", at + 3


def _datetime_text(parts: Sequence[int], digits: int) -> str:
    year, month, day, hours, minutes, seconds, fraction = parts
    text = f"{year:04d}-{month:02d}-{day:02d} {hours:02d}:{minutes:02d}:{seconds:02d}"
    return f"{text}.{fraction:06d}"[: len(text) + 1 + digits] if digits else text


def _datetime_parts(extra: int, data: bytes, at: int) -> tuple[tuple[int, ...], int]:
    """The year, month, …, and microseconds of a DATETIME; `extra`: the bytes of its fraction."""
    packed = int.from_bytes(data[at : at + 5], "big") - 0x8000000000
    months = packed >> 22
    parts = (
        months // 13, months % 13, packed >> 17 & 31,
        packed >> 12 & 31, packed >> 6 & 63, packed & 63, _fraction(data, at + 5, extra),
    )  # fmt: skip
    return parts, at + 5 + extra


def time_reader(wire: LoggedColumn) -> Read:
    if wire.type == FIELD_TYPE.TIME:
        return _old_time
    digits = wire.fraction
    extra = (digits + 1) // 2
    shift = 8 * extra

    def read(data: bytes, at: int) -> tuple[str, int]:
        end = at + 3 + extra
        packed = int.from_bytes(data[at:end], "big") - (_TIME_OFFSET << shift)
        sign, packed = ("-", -packed) if packed < 0 else ("", packed)
        whole, fraction = packed >> shift, packed & ((1 << shift) - 1)
        text = f"{sign}{whole >> 12 & 1023:02d}:{whole >> 6 & 63:02d}:{whole & 63:02d}"
        if digits:
            text += f".{fraction * 100 ** (3 - extra):06d}"[: digits + 1]
        return text, end

    return read


def _fraction(data: bytes, at: int, size: int) -> int:
    scale: int = 100 ** (3 - size)
    return int.from_bytes(data[at : at + size], "big") * scale


def _old_datetime(data: bytes, at: int) -> tuple[int | None, int]:
    parts, end = _old_datetime_parts(data, at)
    return micros(*parts), end


def _old_datetime_parts(data: bytes, at: int) -> tuple[tuple[int, ...], int]:
    # The decimal digits YYYYMMDDhhmmss are the number.
    date, clock = divmod(int.from_bytes(data[at : at + 8], "little"), 1_000_000)
    parts = (
        date // 10_000, date // 100 % 100, date % 100,
        clock // 10_000, clock // 100 % 100, clock % 100, 0,
    )  # fmt: skip
    return parts, at + 8


def _old_timestamp(data: bytes, at: int) -> tuple[int | None, int]:
    seconds = int.from_bytes(data[at : at + 4], "little")
    return (seconds * 1_000_000 or None), at + 4


def _old_time(data: bytes, at: int) -> tuple[str, int]:
    # The decimal digits hhhmmss are the number.
    number = int.from_bytes(data[at : at + 3], "little", signed=True)
    sign, number = ("-", -number) if number < 0 else ("", number)
    clock = f"{number // 10_000:02d}:{number // 100 % 100:02d}:{number % 100:02d}"
    return sign + clock, at + 3


def decimal_text_reader(precision: int, scale: int) -> Callable[[bytes, int], tuple[str, int]]:
    """Reads a number at a byte offset: its text with `scale` digits, and the offset after it."""
    groups = decimal_groups(precision, scale)
    size = sum(length for length, _ in groups)
    all_bits = (1 << 8 * size) - 1
    sign_bit = 1 << (8 * size - 1)

    def read(data: bytes, at: int) -> tuple[str, int]:
        # The sign bit is inverted so that bytes sort; a negative number has all bits inverted.
        bits = int.from_bytes(data[at : at + size], "big") ^ sign_bit
        negative = bool(bits & sign_bit)
        raw = (bits ^ all_bits if negative else bits).to_bytes(size, "big")
        text, start = "", 0
        for length, digits_of in groups:
            text += f"{int.from_bytes(raw[start : start + length], 'big'):0{digits_of}d}"
            start += length
        point = len(text) - scale
        shown = (text[:point].lstrip("0") or "0") + (f".{text[point:]}" if scale else "")
        return f"-{shown}" if negative else shown, at + size

    return read


_Maker: TypeAlias = Callable[[LoggedColumn, MySqlColumn, Context], Read]


def reader(wire: LoggedColumn, column: MySqlColumn, context: Context) -> Read:
    """The decoder of one column; `wire` is its description in the TABLE_MAP event.

    A narrower or wider form of the same type is decoded as it was logged. Raises
    `SchemaChangeError` if the binlog has another type than the table's column.
    """
    check_type(wire, column)
    read = _MAKERS[column.family](wire, column, context)
    if not column.has_date or context.dates.is_default:
        return read
    return _checked_dates(read, date_text_reader(wire, context.digits), column, context.dates)


def _checked_dates(read: Read, read_text: Read, column: MySqlColumn, reading: DateReading) -> Read:
    def checked(data: bytes, at: int) -> tuple[Any, int]:
        value, end = read(data, at)
        first = FIRST_DAY if column.data_type == "date" else FIRST_US
        if reading.as_text or value is None or value == first:
            text = pa.array([read_text(data, at)[0]])
            (value,) = to_values(column, parsed(column, text, column.plain, reading))
        return value, end

    return checked


def skipper(wire: LoggedColumn, column: MySqlColumn | None = None) -> Read:
    """A decoder that skips an unwanted column; its value is None.

    `column`: the table's column, if it is known.
    """
    size, length_size = width(wire, column)
    if length_size:
        return _skip_with_length(length_size)
    return lambda data, at: (None, at + size)


def _skip_with_length(size: int) -> Read:
    def read(data: bytes, at: int) -> tuple[None, int]:
        start = at + size
        return None, start + int.from_bytes(data[at:start], "little")

    return read


def rows(
    data: bytes, at: int, end: int, readers: Sequence[Read], wanted: Sequence[int]
) -> list[tuple[Any, ...]]:
    """All row images between two bytes, each a tuple of the `wanted` columns."""
    bitmap = (len(readers) + 7) // 8
    images = []
    indexed = list(enumerate(readers))
    while at < end:
        nulls = int.from_bytes(data[at : at + bitmap], "little")
        at += bitmap
        values: list[Any] = [None] * len(readers)
        for index, read in indexed:
            if not nulls >> index & 1:
                values[index], at = read(data, at)
        images.append(tuple([values[index] for index in wanted]))
    return images


def _prefixed(wire: LoggedColumn, decode: Callable[[bytes], Any], column: MySqlColumn) -> Read:
    """Decodes a value that follows its length."""
    size = wire.length_size
    if wire.type in _COMPRESSED:
        decode = _inflated(decode)

    def read(data: bytes, at: int) -> tuple[Any, int]:
        start = at + size
        end = start + int.from_bytes(data[at:start], "little")
        try:
            return decode(data[start:end]), end
        except ValueError as error:
            raise unreadable(column, str(error)) from None

    return read


def _inflated(decode: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """For values of COMPRESSED columns: a byte with flags, the length, then zlib data."""

    def inflate(data: bytes) -> Any:
        if not data or not data[0]:
            return decode(data[1:])
        packed = memoryview(data)[1 + (data[0] & 7) :]
        window = -zlib.MAX_WBITS if data[0] & _WITHOUT_HEADER else zlib.MAX_WBITS
        return decode(zlib.decompress(packed, window))

    return inflate


def _number(wire: LoggedColumn, column: MySqlColumn, context: Context) -> Read:
    size = _INTEGERS[wire.type]
    signed = not is_unsigned(wire, column)

    def read(data: bytes, at: int) -> tuple[int, int]:
        return int.from_bytes(data[at : at + size], "little", signed=signed), at + size

    return read


def _real(wire: LoggedColumn, column: MySqlColumn, context: Context) -> Read:
    layout = struct.Struct("<f" if wire.type == FIELD_TYPE.FLOAT else "<d")
    return lambda data, at: (layout.unpack_from(data, at)[0], at + layout.size)


def _decimal(wire: LoggedColumn, column: MySqlColumn, context: Context) -> Read:
    read_text = decimal_text_reader(wire.precision, wire.scale)

    def read(data: bytes, at: int) -> tuple[Decimal, int]:
        text, end = read_text(data, at)
        return Decimal(text), end

    return read


def _text(wire: LoggedColumn, column: MySqlColumn, context: Context) -> Read:
    charset = logged_charset(wire, column)
    return _prefixed(
        wire, lambda raw: context.charsets.texts(charset, [raw], context.dates.in_key)[0], column
    )


def _binary(wire: LoggedColumn, column: MySqlColumn, context: Context) -> Read:
    if column.data_type == "binary" and wire.type == FIELD_TYPE.STRING:
        # The binlog leaves out BINARY's trailing zeros.
        length = wire.length
        return _prefixed(wire, lambda data: bytes(data).ljust(length, b"\0"), column)
    return _prefixed(wire, bytes, column)


def _address(text_of: Callable[[bytes], str], size: int) -> _Maker:
    def make(wire: LoggedColumn, column: MySqlColumn, context: Context) -> Read:
        # The binlog leaves out trailing zeros.
        return _prefixed(wire, lambda data: text_of(data.ljust(size, b"\0")), column)

    return make


def _geometry(wire: LoggedColumn, column: MySqlColumn, context: Context) -> Read:
    return _prefixed(wire, lambda data: geometry_texts(pa.array([data]))[0].as_py(), column)


def _json_document(wire: LoggedColumn, column: MySqlColumn, context: Context) -> Read:
    return _prefixed(wire, json_text, column)


def _bit(wire: LoggedColumn, column: MySqlColumn, context: Context) -> Read:
    size = wire.size
    return lambda data, at: (bytes(data[at : at + size]), at + size)


def _enum(wire: LoggedColumn, column: MySqlColumn, context: Context) -> Read:
    members = ["", *members_of(wire, column, context)]
    size = wire.size

    def read(data: bytes, at: int) -> tuple[str, int]:
        try:
            return members[int.from_bytes(data[at : at + size], "little")], at + size
        except IndexError:
            raise no_member(column) from None

    return read


def _set(wire: LoggedColumn, column: MySqlColumn, context: Context) -> Read:
    members = members_of(wire, column, context)
    size = wire.size

    def read(data: bytes, at: int) -> tuple[str, int]:
        mask = int.from_bytes(data[at : at + size], "little")
        if mask >> len(members):
            raise no_member(column)
        chosen = [name for index, name in enumerate(members) if mask >> index & 1]
        return ",".join(chosen), at + size

    return read


def _temporal(make: Callable[[LoggedColumn], Read]) -> _Maker:
    def maker(wire: LoggedColumn, column: MySqlColumn, context: Context) -> Read:
        return make(wire)

    return maker


_MAKERS: dict[str, _Maker] = {
    "int": _number,
    "uint64": _number,
    "decimal": _decimal,
    "float": _real,
    "double": _real,
    "string": _text,
    "binary": _binary,
    "bit": _bit,
    "date": _temporal(date_reader),
    "datetime": _temporal(datetime_reader),
    "timestamp": _temporal(timestamp_reader),
    "time": _temporal(time_reader),
    "year": _temporal(year_reader),
    "enum": _enum,
    "set": _set,
    "json": _json_document,
    "geometry": _geometry,
    "vector": _binary,
    "uuid": _address(uuid_text, 16),
    "inet4": _address(inet4_text, 4),
    "inet6": _address(inet6_text, 16),
}


class Change(NamedTuple):
    """The change of one row: its images before and after, of the captured columns in their order.

    `seconds`: when the server executed the change, since 1970 (UTC).
    """

    before: tuple[Any, ...] | None
    after: tuple[Any, ...] | None
    seconds: int


def changes(event: RowEvent) -> Iterator[Change]:
    """The changes of rows in the event."""
    seconds = int.from_bytes(event.data[event.at : event.at + 4], "little")
    images = _images(event)
    for first in range(0, len(images), 1 if event.kind in INSERTS | DELETES else 2):
        if event.kind in INSERTS:
            yield Change(None, images[first], seconds)
        elif event.kind in DELETES:
            yield Change(images[first], None, seconds)
        else:
            yield Change(images[first], images[first + 1], seconds)


def _images(event: RowEvent) -> Sequence[tuple[Any, ...]]:
    data, table = event.data, event.table
    at = event.at + HEADER.size + 8
    if event.kind in ROWS_2:
        at += int.from_bytes(data[at : at + 2], "little")
    count, at = packed(data, at)
    at += (count + 7) // 8 * (1 if event.kind in INSERTS | DELETES else 2)
    return rows(data, at, event.end, _readers(table), table.indexes)


def _readers(table: LoggedTable) -> list[Read]:
    captured = dict(zip(table.indexes, table.captured.columns, strict=True))
    charsets = charsets_of(table.captured.options)
    readers = []
    for index, (wire, column) in enumerate(table.columns):
        if index not in captured:
            readers.append(skipper(wire, column))
            continue
        known, own = column or captured[index], captured[index]
        reading = table.captured.date_reading(known)
        readers.append(reader(wire, known, Context(charsets, reading, own.fraction)))
    return readers
