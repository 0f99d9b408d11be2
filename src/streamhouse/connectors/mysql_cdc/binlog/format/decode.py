"""The binary form of single values in row images, as the binlog describes their columns."""

import zlib
from collections.abc import Callable
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
from streamhouse.errors import SchemaChangeError
from streamhouse.mysql.charsets import Charsets, charset_of
from streamhouse.mysql.position import START_AGAIN
from streamhouse.mysql.values.byte_values import inet4_text, inet6_text, uuid_text
from streamhouse.mysql.values.dates import AS_NULL, DateReading
from streamhouse.mysql.values.types import MySqlColumn

_INTEGERS = (
    FIELD_TYPE.TINY, FIELD_TYPE.SHORT, FIELD_TYPE.INT24, FIELD_TYPE.LONG, FIELD_TYPE.LONGLONG,
)  # fmt: skip
COMPRESSED = (BLOB_COMPRESSED, VARCHAR_COMPRESSED)
"""The binlog types of COMPRESSED columns; see `inflated`."""
_TEXTS = (FIELD_TYPE.STRING, FIELD_TYPE.VARCHAR, FIELD_TYPE.BLOB, *COMPRESSED)
# The binlog types of each family of columns. A widened column keeps its family, and its values are
# decoded as the binlog describes them.
_WIRE: dict[str, tuple[int, ...]] = {
    "int": _INTEGERS,
    "uint64": _INTEGERS,
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
_OLD_TEMPORAL = (FIELD_TYPE.DATETIME, FIELD_TYPE.TIMESTAMP, FIELD_TYPE.TIME)
_TIME_OFFSET = 0x800000
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


Read: TypeAlias = Callable[[bytes], Any]
"""Decodes the bytes of one value, without their length."""
_Maker: TypeAlias = Callable[[LoggedColumn, MySqlColumn, Context], Read]


def check_type(wire: LoggedColumn, column: MySqlColumn) -> None:
    """Raise `SchemaChangeError` if the binlog has another type than the table's column.

    A narrower or wider form of the same type is decoded as it was logged.
    """
    if wire.type not in _WIRE[column.family] or not _same_sign(wire, column):
        raise SchemaChangeError(
            f"column '{column.name}' is {column.column_type}, but the binlog has another type "
            f"(number {wire.type}): it was altered; {START_AGAIN}"
        )
    if wire.type in _OLD_TEMPORAL and column.fraction:
        raise SchemaChangeError(
            f"column '{column.name}' ({column.column_type}) has fractions of seconds in the "
            "form before MariaDB 10.1, which is not supported; run ALTER TABLE … FORCE, and "
            f"{START_AGAIN}"
        )


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
        return Width(sum(size for size, _ in decimal_groups(wire.precision, wire.scale)))
    if wire.size or wire.length_size:
        return Width(wire.size, 0 if wire.size else wire.length_size)
    name = wire.name or (column.name if column else "")
    raise SchemaChangeError(
        f"column '{name}' has a binlog type (number {kind}) that is not supported"
    )


def inflated(data: bytes) -> bytes:
    """The bytes of a value of a COMPRESSED column: a byte with flags, the length, zlib data."""
    if not data or not data[0]:
        return data[1:]
    packed = memoryview(data)[1 + (data[0] & 7) :]
    window = -zlib.MAX_WBITS if data[0] & _WITHOUT_HEADER else zlib.MAX_WBITS
    return zlib.decompress(packed, window)


def is_unsigned(wire: LoggedColumn, column: MySqlColumn) -> bool:
    """Whether a number is logged without a sign."""
    return column.unsigned if wire.unsigned is None else wire.unsigned


def _same_sign(wire: LoggedColumn, column: MySqlColumn) -> bool:
    """Whether all integers of the logged type fit into the column's family."""
    if column.family == "uint64":
        return is_unsigned(wire, column)
    is_bigint = column.family == "int" and wire.type == FIELD_TYPE.LONGLONG
    return not (is_bigint and is_unsigned(wire, column))


def _decimal(wire: LoggedColumn, column: MySqlColumn, context: Context) -> Read:
    text_of = decimal_text_reader(wire.precision, wire.scale)
    return lambda data: Decimal(text_of(data))


def logged_charset(wire: LoggedColumn, column: MySqlColumn) -> str:
    """The character set that the binlog names, else the column's declared one."""
    charset = column.charset if wire.collation is None else charset_of(wire.collation)
    if charset is not None and charset != "binary":
        return charset
    found = f"collation number {wire.collation}" if charset is None else charset
    raise SchemaChangeError(
        f"column '{column.name}' is {column.column_type} CHARACTER SET {column.charset}, but the "
        f"binlog has it as {found}: it was altered; {START_AGAIN}"
    )


def is_padded(wire: LoggedColumn, column: MySqlColumn) -> bool:
    """Whether the column is a BINARY, whose trailing zeros the binlog leaves out."""
    return column.data_type == "binary" and wire.type == FIELD_TYPE.STRING


def _plain(text_of: Callable[[bytes], str], size: int = 0) -> _Maker:
    """Makes a decoder that needs no more than the bytes, without trailing zeros up to `size`."""
    return lambda wire, column, context: lambda data: text_of(data.ljust(size, b"\0"))


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
    return context.charsets.texts(logged_charset(wire, column), wire.members)


def no_member(column: MySqlColumn) -> SchemaChangeError:
    """The error for a number that no member of the column has."""
    return SchemaChangeError(
        f"column '{column.name}' ({column.column_type}) has another member in the binlog: it was "
        f"altered; {START_AGAIN}"
    )


def _set(wire: LoggedColumn, column: MySqlColumn, context: Context) -> Read:
    members = members_of(wire, column, context)

    def read(data: bytes) -> str:
        mask = int.from_bytes(data, "little")
        if mask >> len(members):
            raise no_member(column)
        return ",".join(name for index, name in enumerate(members) if mask >> index & 1)

    return read


def _time(wire: LoggedColumn, column: MySqlColumn, context: Context) -> Read:
    if wire.type == FIELD_TYPE.TIME:
        return _old_time
    shift = 8 * ((wire.fraction + 1) // 2)

    def read(data: bytes) -> str:
        packed = int.from_bytes(data, "big") - (_TIME_OFFSET << shift)
        sign, packed = ("-", -packed) if packed < 0 else ("", packed)
        whole, fraction = packed >> shift, packed & ((1 << shift) - 1)
        text = f"{sign}{whole >> 12 & 1023:02d}:{whole >> 6 & 63:02d}:{whole & 63:02d}"
        digits = f".{fraction * 100 ** (3 - shift // 8):06d}"
        return text + digits[: wire.fraction + 1] if shift else text

    return read


def _old_time(data: bytes) -> str:
    # The decimal digits hhhmmss are the number.
    number = int.from_bytes(data, "little", signed=True)
    sign, number = ("-", -number) if number < 0 else ("", number)
    return f"{sign}{number // 10_000:02d}:{number // 100 % 100:02d}:{number % 100:02d}"


READERS: dict[str, _Maker] = {
    "decimal": _decimal,
    "time": _time,
    "set": _set,
    "json": _plain(json_text),
    "uuid": _plain(uuid_text, 16),
    "inet4": _plain(inet4_text, 4),
    "inet6": _plain(inet6_text, 16),
}
"""Make the decoders of single values, for families that `rows.arrays` does not convert together."""
