"""Decodes the row images of the binlog, column by column, to exact values.

Integers become int, decimals Decimal, text str, binaries bytes, DATE days since 1970, DATETIME and
TIMESTAMP microseconds since 1970, and TIME MySQL's own text.
"""

from __future__ import annotations

import datetime
import struct
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, TypeAlias

from pymysqlreplication.constants import FIELD_TYPE
from pymysqlreplication.json_binary import parse_json

from streamhouse.connectors.mysql_cdc.server.types import MySqlColumn, json_text
from streamhouse.errors import SchemaChangeError

Read: TypeAlias = Callable[[bytes, int], tuple[Any, int]]
"""Decodes the value at a byte offset; returns it and the offset after it."""

_DAY_MICROS = 86_400_000_000
_EPOCH_DAY = datetime.date(1970, 1, 1).toordinal()
_GROUP_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
_CODECS = {
    "utf8": "utf-8",
    "utf8mb3": "utf-8",
    "utf8mb4": "utf-8",
    "ascii": "ascii",
    "latin1": "cp1252",
    "latin2": "iso8859_2",
    "latin5": "iso8859_9",
    "latin7": "iso8859_13",
    "greek": "iso8859_7",
    "hebrew": "iso8859_8",
    "cp1250": "cp1250",
    "cp1251": "cp1251",
    "cp1256": "cp1256",
    "cp1257": "cp1257",
    "cp850": "cp850",
    "cp852": "cp852",
    "cp866": "cp866",
    "koi8r": "koi8_r",
    "koi8u": "koi8_u",
    "ucs2": "utf-16-be",
    "utf16": "utf-16-be",
    "utf16le": "utf-16-le",
    "utf32": "utf-32-be",
    "gbk": "gbk",
    "gb2312": "gb2312",
    "gb18030": "gb18030",
    "big5": "big5",
    "sjis": "shift_jis",
    "cp932": "cp932",
    "ujis": "euc_jp",
    "eucjpms": "euc_jp",
    "euckr": "euc_kr",
}
_INTEGERS = {
    FIELD_TYPE.TINY: 1,
    FIELD_TYPE.SHORT: 2,
    FIELD_TYPE.INT24: 3,
    FIELD_TYPE.LONG: 4,
    FIELD_TYPE.LONGLONG: 8,
}
_TEXTS = (FIELD_TYPE.STRING, FIELD_TYPE.VARCHAR, FIELD_TYPE.BLOB)
# The binlog types that a family of columns may have. A widened column keeps its family, and its
# values are decoded as the binlog describes them.
_WIRE: dict[str, tuple[int, ...]] = {
    "int": tuple(_INTEGERS),
    "uint64": tuple(_INTEGERS),
    "decimal": (FIELD_TYPE.NEWDECIMAL,),
    "float": (FIELD_TYPE.FLOAT, FIELD_TYPE.DOUBLE),
    "double": (FIELD_TYPE.FLOAT, FIELD_TYPE.DOUBLE),
    "bit": (FIELD_TYPE.BIT,),
    "date": (FIELD_TYPE.DATE,),
    "datetime": (FIELD_TYPE.DATETIME2,),
    "timestamp": (FIELD_TYPE.TIMESTAMP2,),
    "time": (FIELD_TYPE.TIME2,),
    "year": (FIELD_TYPE.YEAR,),
    "string": _TEXTS,
    "binary": _TEXTS,
    "enum": (FIELD_TYPE.ENUM,),
    "set": (FIELD_TYPE.SET,),
    "json": (FIELD_TYPE.JSON, FIELD_TYPE.BLOB),
}


def reader(wire: Any, column: MySqlColumn) -> Read:
    """The decoder of one column; `wire` is its description in the TABLE_MAP event.

    A narrower or wider form of the same type is decoded as it was logged. Raises
    `SchemaChangeError` if the binlog has another type than the table's column.
    """
    if wire.type not in _WIRE[column.family] or not _same_sign(wire, column):
        raise SchemaChangeError(
            f"column '{column.name}' is {column.column_type}, but the binlog has another type "
            f"(number {wire.type}): it was altered; start again with a new checkpoint "
            "(temporal columns from before MySQL 5.6 need ALTER TABLE … FORCE first)"
        )
    return _MAKERS[column.family](wire, column)


def skipper(wire: Any) -> Read:
    """A decoder that skips an unwanted column; its value is None."""
    kind = wire.type
    sizes = {
        FIELD_TYPE.TINY: 1, FIELD_TYPE.YEAR: 1, FIELD_TYPE.SHORT: 2, FIELD_TYPE.INT24: 3,
        FIELD_TYPE.DATE: 3, FIELD_TYPE.TIME: 3, FIELD_TYPE.LONG: 4, FIELD_TYPE.FLOAT: 4,
        FIELD_TYPE.TIMESTAMP: 4, FIELD_TYPE.DOUBLE: 8, FIELD_TYPE.LONGLONG: 8,
        FIELD_TYPE.DATETIME: 8,
    }  # fmt: skip
    if kind in sizes:
        size = sizes[kind]
    elif kind in (FIELD_TYPE.TIME2, FIELD_TYPE.TIMESTAMP2, FIELD_TYPE.DATETIME2):
        whole = {FIELD_TYPE.TIME2: 3, FIELD_TYPE.TIMESTAMP2: 4, FIELD_TYPE.DATETIME2: 5}
        size = whole[kind] + (wire.fsp + 1) // 2
    elif kind == FIELD_TYPE.NEWDECIMAL:
        size = sum(_decimal_groups(wire.precision, wire.decimals))
    elif kind in (FIELD_TYPE.ENUM, FIELD_TYPE.SET):
        size = wire.size
    elif kind == FIELD_TYPE.BIT:
        size = wire.bytes
    else:
        return _prefixed(_length_size(wire), lambda data: None)
    return lambda data, at: (None, at + size)


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


def _length_size(wire: Any) -> int:
    if wire.type in (FIELD_TYPE.VARCHAR, FIELD_TYPE.STRING, FIELD_TYPE.VAR_STRING):
        return 2 if wire.max_length > 255 else 1
    size = getattr(wire, "length_size", None)
    if size is None:
        raise SchemaChangeError(
            f"column '{wire.name}' has a binlog type (number {wire.type}) that is not supported"
        )
    return int(size)


def _prefixed(size: int, decode: Callable[[bytes], Any]) -> Read:
    def read(data: bytes, at: int) -> tuple[Any, int]:
        start = at + size
        end = start + int.from_bytes(data[at:start], "little")
        return decode(data[start:end]), end

    return read


def _unsigned(wire: Any, column: MySqlColumn) -> bool:
    # Without binlog_row_metadata = FULL, the library does not know.
    return bool(wire.unsigned) if wire.name else column.unsigned


def _same_sign(wire: Any, column: MySqlColumn) -> bool:
    """Whether all integers of the logged type fit into the column's family."""
    if column.family == "uint64":
        return _unsigned(wire, column)
    is_bigint = column.family == "int" and wire.type == FIELD_TYPE.LONGLONG
    return not (is_bigint and _unsigned(wire, column))


def _number(wire: Any, column: MySqlColumn) -> Read:
    size = _INTEGERS[wire.type]
    signed = not _unsigned(wire, column)

    def read(data: bytes, at: int) -> tuple[int, int]:
        return int.from_bytes(data[at : at + size], "little", signed=signed), at + size

    return read


def _real(wire: Any, column: MySqlColumn) -> Read:
    layout = struct.Struct("<f" if wire.type == FIELD_TYPE.FLOAT else "<d")
    return lambda data, at: (layout.unpack_from(data, at)[0], at + layout.size)


def _decimal_groups(precision: int, scale: int) -> list[int]:
    whole = precision - scale
    return [
        _GROUP_BYTES[whole % 9],
        *[4] * (whole // 9),
        *[4] * (scale // 9),
        _GROUP_BYTES[scale % 9],
    ]


def _decimal(wire: Any, column: MySqlColumn) -> Read:
    precision, scale = wire.precision, wire.decimals
    whole = precision - scale
    sizes = _decimal_groups(precision, scale)
    digits = [whole % 9, *[9] * (whole // 9), *[9] * (scale // 9), scale % 9]
    groups = [pair for pair in zip(sizes, digits, strict=True) if pair[0]]
    size = sum(sizes)
    all_bits = (1 << 8 * size) - 1
    sign_bit = 1 << (8 * size - 1)

    def read(data: bytes, at: int) -> tuple[Decimal, int]:
        # The sign bit is inverted so that bytes sort; a negative number has all bits inverted.
        bits = int.from_bytes(data[at : at + size], "big") ^ sign_bit
        negative = bool(bits & sign_bit)
        raw = (bits ^ all_bits if negative else bits).to_bytes(size, "big")
        text, start = "", 0
        for length, width in groups:
            text += f"{int.from_bytes(raw[start : start + length], 'big'):0{width}d}"
            start += length
        point = len(text) - scale
        sign = "-" if negative else ""
        return Decimal(f"{sign}{text[:point]}.{text[point:]}"), at + size

    return read


def _decoder(charset: str) -> Callable[[bytes], str]:
    codec = _CODECS.get(charset)
    if codec is None:
        raise SchemaChangeError(f"the character set {charset} is not supported; use utf8mb4")
    if codec != "cp1252":
        return lambda data: data.decode(codec)

    def latin1(data: bytes) -> str:
        # MySQL's latin1 is cp1252 with control characters at the five undefined bytes.
        try:
            return data.decode("cp1252")
        except UnicodeDecodeError:
            return "".join(
                chr(b) if b in (0x81, 0x8D, 0x8F, 0x90, 0x9D) else bytes([b]).decode("cp1252")
                for b in data
            )

    return latin1


def _text(wire: Any, column: MySqlColumn) -> Read:
    logged = str(wire.collation_name or "").partition("_")[0]
    charset = logged if logged in _CODECS else column.charset
    return _prefixed(_length_size(wire), _decoder(charset or "utf8mb4"))


def _binary(wire: Any, column: MySqlColumn) -> Read:
    if column.data_type == "binary" and wire.type == FIELD_TYPE.STRING:
        # The binlog leaves out BINARY's trailing zeros.
        length = wire.max_length
        return _prefixed(_length_size(wire), lambda data: bytes(data).ljust(length, b"\0"))
    return _prefixed(_length_size(wire), bytes)


def _json_document(wire: Any, column: MySqlColumn) -> Read:
    def decode(data: bytes) -> str | None:
        return json_text(parse_json(data[0], data[1:])) if data else "null"

    return _prefixed(_length_size(wire), decode)


def _bit(wire: Any, column: MySqlColumn) -> Read:
    size = wire.bytes
    return lambda data, at: (bytes(data[at : at + size]), at + size)


def _enum(wire: Any, column: MySqlColumn) -> Read:
    members = ["", *(wire.enum_values[1:] if wire.enum_values else column.members)]
    size = wire.size
    return lambda data, at: (
        members[int.from_bytes(data[at : at + size], "little")],
        at + size,
    )


def _set(wire: Any, column: MySqlColumn) -> Read:
    members = wire.set_values or column.members
    size = wire.size

    def read(data: bytes, at: int) -> tuple[str, int]:
        mask = int.from_bytes(data[at : at + size], "little")
        chosen = [name for index, name in enumerate(members) if mask >> index & 1]
        return ",".join(chosen), at + size

    return read


def _year(wire: Any, column: MySqlColumn) -> Read:
    return lambda data, at: (1900 + data[at] if data[at] else 0, at + 1)


def _days(year: int, month: int, day: int) -> int | None:
    if year == 0 or month == 0 or day == 0:
        return None
    try:
        return datetime.date(year, month, day).toordinal() - _EPOCH_DAY
    except ValueError:  # such as 31 February, which ALLOW_INVALID_DATES lets in
        return None


def _date(wire: Any, column: MySqlColumn) -> Read:
    def read(data: bytes, at: int) -> tuple[int | None, int]:
        packed = int.from_bytes(data[at : at + 3], "little")
        return _days(packed >> 9, packed >> 5 & 15, packed & 31), at + 3

    return read


def _fraction(data: bytes, at: int, size: int) -> int:
    scale: int = 100 ** (3 - size)
    return int.from_bytes(data[at : at + size], "big") * scale


def _datetime(wire: Any, column: MySqlColumn) -> Read:
    extra = (wire.fsp + 1) // 2

    def read(data: bytes, at: int) -> tuple[int | None, int]:
        packed = int.from_bytes(data[at : at + 5], "big") - 0x8000000000
        months, end = packed >> 22, at + 5 + extra
        days = _days(months // 13, months % 13, packed >> 17 & 31)
        if days is None:
            return None, end
        hours, minutes, seconds = packed >> 12 & 31, packed >> 6 & 63, packed & 63
        micros = ((hours * 60 + minutes) * 60 + seconds) * 1_000_000 + _fraction(
            data, at + 5, extra
        )
        return days * _DAY_MICROS + micros, end

    return read


def _timestamp(wire: Any, column: MySqlColumn) -> Read:
    extra = (wire.fsp + 1) // 2

    def read(data: bytes, at: int) -> tuple[int | None, int]:
        seconds = int.from_bytes(data[at : at + 4], "big")
        micros = seconds * 1_000_000 + _fraction(data, at + 4, extra)
        return (micros or None), at + 4 + extra

    return read


def _time(wire: Any, column: MySqlColumn) -> Read:
    digits = wire.fsp
    extra = (digits + 1) // 2
    shift = 8 * extra

    def read(data: bytes, at: int) -> tuple[str, int]:
        end = at + 3 + extra
        packed = int.from_bytes(data[at:end], "big") - (0x800000 << shift)
        sign, packed = ("-", -packed) if packed < 0 else ("", packed)
        whole, fraction = packed >> shift, packed & ((1 << shift) - 1)
        text = f"{sign}{whole >> 12 & 1023:02d}:{whole >> 6 & 63:02d}:{whole & 63:02d}"
        if digits:
            text += f".{fraction * 100 ** (3 - extra):06d}"[: digits + 1]
        return text, end

    return read


_MAKERS: dict[str, Callable[[Any, MySqlColumn], Read]] = {
    "int": _number,
    "uint64": _number,
    "decimal": _decimal,
    "float": _real,
    "double": _real,
    "string": _text,
    "binary": _binary,
    "bit": _bit,
    "date": _date,
    "datetime": _datetime,
    "timestamp": _timestamp,
    "time": _time,
    "year": _year,
    "enum": _enum,
    "set": _set,
    "json": _json_document,
}
