"""Decodes the row images of the binlog, column by column, to exact values.

Integers become int, decimals Decimal, text str, binaries bytes, DATE days since 1970, DATETIME and
TIMESTAMP microseconds since 1970, and TIME MySQL's own text.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple, TypeAlias

from pymysql.constants import FIELD_TYPE

from streamhouse.connectors.mysql_cdc.binlog.format.json_binary import json_text
from streamhouse.connectors.mysql_cdc.binlog.format.packed_decimal import (
    decimal_groups,
    decimal_text_reader,
)
from streamhouse.connectors.mysql_cdc.binlog.format.table_map import (
    BLOB_COMPRESSED,
    DATETIME2,
    TIME2,
    TIMESTAMP2,
    VARCHAR_COMPRESSED,
    VECTOR,
    LoggedColumn,
)
from streamhouse.connectors.mysql_cdc.binlog.format.temporal import (
    Read,
    date_reader,
    date_text_reader,
    datetime_reader,
    time_reader,
    timestamp_reader,
    year_reader,
)
from streamhouse.errors import SchemaChangeError
from streamhouse.mysql.charsets import KNOWN, Charsets, charset_of
from streamhouse.mysql.position import START_AGAIN
from streamhouse.mysql.values.byte_values import geometry_text, inet4_text, inet6_text, uuid_text
from streamhouse.mysql.values.dates import AS_NULL, DateReading, first_of
from streamhouse.mysql.values.types import MySqlColumn, unreadable

_INTEGERS = {
    FIELD_TYPE.TINY: 1,
    FIELD_TYPE.SHORT: 2,
    FIELD_TYPE.INT24: 3,
    FIELD_TYPE.LONG: 4,
    FIELD_TYPE.LONGLONG: 8,
}
_COMPRESSED = (BLOB_COMPRESSED, VARCHAR_COMPRESSED)
_TEXTS = (FIELD_TYPE.STRING, FIELD_TYPE.VARCHAR, FIELD_TYPE.BLOB, *_COMPRESSED)
# The binlog types of each family of columns. A widened column keeps its family, and its values are
# decoded as the binlog describes them.
_WIRE: dict[str, tuple[int, ...]] = {
    "int": tuple(_INTEGERS),
    "uint64": tuple(_INTEGERS),
    "decimal": (FIELD_TYPE.NEWDECIMAL,),
    "float": (FIELD_TYPE.FLOAT, FIELD_TYPE.DOUBLE),
    "double": (FIELD_TYPE.FLOAT, FIELD_TYPE.DOUBLE),
    "bit": (FIELD_TYPE.BIT,),
    "date": (FIELD_TYPE.DATE,),
    "datetime": (DATETIME2, FIELD_TYPE.DATETIME),
    "timestamp": (TIMESTAMP2, FIELD_TYPE.TIMESTAMP),
    "time": (TIME2, FIELD_TYPE.TIME),
    "year": (FIELD_TYPE.YEAR,),
    "string": _TEXTS,
    "binary": _TEXTS,
    "enum": (FIELD_TYPE.ENUM,),
    "set": (FIELD_TYPE.SET,),
    "json": (FIELD_TYPE.JSON, FIELD_TYPE.BLOB),
    "geometry": (FIELD_TYPE.GEOMETRY,),
    "vector": (VECTOR,),
    "uuid": (FIELD_TYPE.STRING,),
    "inet4": (FIELD_TYPE.STRING,),
    "inet6": (FIELD_TYPE.STRING,),
}
_FIXED_SIZES = {
    FIELD_TYPE.TINY: 1, FIELD_TYPE.YEAR: 1, FIELD_TYPE.SHORT: 2, FIELD_TYPE.INT24: 3,
    FIELD_TYPE.DATE: 3, FIELD_TYPE.TIME: 3, FIELD_TYPE.LONG: 4, FIELD_TYPE.FLOAT: 4,
    FIELD_TYPE.TIMESTAMP: 4, FIELD_TYPE.DOUBLE: 8, FIELD_TYPE.LONGLONG: 8, FIELD_TYPE.DATETIME: 8,
}  # fmt: skip
_TEMPORAL_SIZES = {TIME2: 3, TIMESTAMP2: 4, DATETIME2: 5}
_WITHOUT_HEADER = 0x08


@dataclass(frozen=True)
class Context:
    """What decoders need besides the column.

    `charsets`: those of the server. `dates`: how to read dates. `digits`: of the captured column,
    after the seconds.
    """

    charsets: Charsets
    dates: DateReading = AS_NULL
    digits: int = 0

    @property
    def in_key(self) -> bool:
        """Whether the column is in the key, whose values must be exact."""
        return self.dates.in_key


_Maker: TypeAlias = Callable[[LoggedColumn, MySqlColumn, Context], Read]


def reader(wire: LoggedColumn, column: MySqlColumn, context: Context) -> Read:
    """The decoder of one column; `wire` is its description in the TABLE_MAP event.

    A narrower or wider form of the same type is decoded as it was logged. Raises
    `SchemaChangeError` if the binlog has another type than the table's column.
    """
    if wire.type not in _WIRE[column.family] or not _same_sign(wire, column):
        raise SchemaChangeError(
            f"column '{column.name}' is {column.column_type}, but the binlog has another type "
            f"(number {wire.type}): it was altered; {START_AGAIN}"
        )
    read = _MAKERS[column.family](wire, column, context)
    if not column.has_date or context.dates.is_default:
        return read
    return _checked_dates(read, date_text_reader(wire, context.digits), column, context.dates)


def _checked_dates(read: Read, read_text: Read, column: MySqlColumn, reading: DateReading) -> Read:
    first = first_of(column) if reading.rounds_key else None
    as_text = reading.as_text

    def checked(data: bytes, at: int) -> tuple[Any, int]:
        value, end = read(data, at)
        if as_text or value is None or value == first:
            return reading.value(column, read_text(data, at)[0], value), end
        return value, end

    return checked


class Width(NamedTuple):
    """The bytes of a value that is not NULL: `size`, if that is not 0.

    Else the value follows its length, an integer of `length_size` bytes.
    """

    size: int
    length_size: int = 0


def width(wire: LoggedColumn, column: MySqlColumn | None = None) -> Width:
    """The bytes of a column's values; `column`: the table's column, if it is known."""
    kind = wire.type
    if column is not None and column.old_fraction_bytes:
        return Width(column.old_fraction_bytes)
    if kind in _FIXED_SIZES:
        return Width(_FIXED_SIZES[kind])
    if kind in _TEMPORAL_SIZES:
        return Width(_TEMPORAL_SIZES[kind] + (wire.fraction + 1) // 2)
    if kind == FIELD_TYPE.NEWDECIMAL:
        return Width(sum(decimal_groups(wire.precision, wire.scale)))
    if wire.size or wire.length_size:
        return Width(wire.size, 0 if wire.size else wire.length_size)
    name = wire.name or (column.name if column else "")
    raise SchemaChangeError(
        f"column '{name}' has a binlog type (number {kind}) that is not supported"
    )


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


def is_unsigned(wire: LoggedColumn, column: MySqlColumn) -> bool:
    """Whether a number is logged without a sign."""
    return column.unsigned if wire.unsigned is None else wire.unsigned


def _same_sign(wire: LoggedColumn, column: MySqlColumn) -> bool:
    """Whether all integers of the logged type fit into the column's family."""
    if column.family == "uint64":
        return is_unsigned(wire, column)
    is_bigint = column.family == "int" and wire.type == FIELD_TYPE.LONGLONG
    return not (is_bigint and is_unsigned(wire, column))


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
    return _prefixed(wire, context.charsets.decoder(charset, context.in_key), column)


def logged_charset(wire: LoggedColumn, column: MySqlColumn) -> str:
    """The character set that the binlog names, else the column's declared one."""
    charset = column.charset if wire.collation is None else charset_of(wire.collation)
    if charset in KNOWN:
        return charset
    found = f"collation number {wire.collation}" if charset is None else charset
    raise SchemaChangeError(
        f"column '{column.name}' is {column.column_type} CHARACTER SET {column.charset}, but the "
        f"binlog has it as {found}: it was altered; {START_AGAIN}"
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
    return _prefixed(wire, geometry_text, column)


def _json_document(wire: LoggedColumn, column: MySqlColumn, context: Context) -> Read:
    return _prefixed(wire, json_text, column)


def _bit(wire: LoggedColumn, column: MySqlColumn, context: Context) -> Read:
    size = wire.size
    return lambda data, at: (bytes(data[at : at + size]), at + size)


def members_of(wire: LoggedColumn, column: MySqlColumn, context: Context) -> list[str]:
    """The members of an ENUM or SET, as the binlog has them, else as the table has them."""
    if wire.members is None:
        if column.members_are_uncertain:
            raise SchemaChangeError(
                f"column '{column.name}' ({column.column_type}) has members that the server "
                "names only in the binlog; set binlog_row_metadata = FULL, and start again with "
                "a new checkpoint"
            )
        return column.members
    decode = context.charsets.decoder(logged_charset(wire, column))
    return [decode(member) for member in wire.members]


def no_member(column: MySqlColumn) -> SchemaChangeError:
    """The error for a number that no member of the column has."""
    return SchemaChangeError(
        f"column '{column.name}' ({column.column_type}) has another member in the binlog: it was "
        f"altered; {START_AGAIN}"
    )


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
        old = (FIELD_TYPE.DATETIME, FIELD_TYPE.TIMESTAMP, FIELD_TYPE.TIME)
        if wire.type in old and column.fraction:
            raise SchemaChangeError(
                f"column '{column.name}' ({column.column_type}) has fractions of seconds in the "
                "form before MariaDB 10.1, which is not supported; run ALTER TABLE … FORCE, and "
                f"{START_AGAIN}"
            )
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
