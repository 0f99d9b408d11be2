"""Decodes MySQL's binary form of JSON documents to the text that a SELECT returns."""

import base64
import json
import struct
from collections.abc import Callable, Iterator

import numpy as np

from streamhouse.connectors.mysql_cdc.binlog.format.packed_decimal import decimal_text_reader
from streamhouse.formats.protobuf_fields import varint

_SMALL_OBJECT, _LARGE_OBJECT, _SMALL_ARRAY, _LARGE_ARRAY = 0, 1, 2, 3
_LITERAL, _DOUBLE, _STRING, _OPAQUE = 4, 11, 12, 15
_INTEGERS = {5: (2, True), 6: (2, False), 7: (4, True), 8: (4, False), 9: (8, True), 10: (8, False)}
_LITERALS = {0: "null", 1: "true", 2: "false"}
_CONTAINERS = (_SMALL_OBJECT, _LARGE_OBJECT, _SMALL_ARRAY, _LARGE_ARRAY)
_DECIMAL, _TIMESTAMP, _DATE, _TIME, _DATETIME = 246, 7, 10, 11, 12
"""MySQL's types of values that JSON does not have."""
_MOST_PLACES = 15


def json_text(data: bytes) -> str:
    """The text of a document; raises `ValueError` for invalid bytes."""
    if not data:
        return "null"
    try:
        return _value(data[0], data, 1)
    except (IndexError, KeyError, ValueError, struct.error):
        raise ValueError(f"{data[:40].hex()} is not a JSON document") from None


def _value(kind: int, data: bytes, at: int) -> str:
    if kind in _CONTAINERS:
        return _container(kind, data, at)
    if kind == _LITERAL:
        return _LITERALS[data[at]]
    if kind in _INTEGERS:
        size, signed = _INTEGERS[kind]
        return str(int.from_bytes(data[at : at + size], "little", signed=signed))
    if kind == _DOUBLE:
        return double_text(struct.unpack_from("<d", data, at)[0])
    if kind == _STRING:
        size, at = varint(data, at)
        return _quoted(data[at : at + size].decode())
    if kind == _OPAQUE:
        size, start = varint(data, at + 1)
        return _opaque(data[at], data[start : start + size])
    raise KeyError(kind)


def _container(kind: int, data: bytes, at: int) -> str:
    width = 4 if kind in (_LARGE_OBJECT, _LARGE_ARRAY) else 2
    count = int.from_bytes(data[at : at + width], "little")
    if kind in (_SMALL_ARRAY, _LARGE_ARRAY):
        entries = at + 2 * width
        return "[" + ", ".join(_entries(data, at, entries, count, width)) + "]"
    entries = at + 2 * width + count * (width + 2)
    pairs = zip(
        _keys(data, at, count, width), _entries(data, at, entries, count, width), strict=True
    )
    return "{" + ", ".join(f"{_quoted(key)}: {value}" for key, value in pairs) + "}"


def _keys(data: bytes, base: int, count: int, width: int) -> Iterator[str]:
    for at in range(base + 2 * width, base + 2 * width + count * (width + 2), width + 2):
        start = base + int.from_bytes(data[at : at + width], "little")
        size = int.from_bytes(data[at + width : at + width + 2], "little")
        yield data[start : start + size].decode()


def _entries(data: bytes, base: int, at: int, count: int, width: int) -> Iterator[str]:
    """The values of a container: small ones are in its table, others where its table points to."""
    for entry in range(at, at + count * (width + 1), width + 1):
        kind = data[entry]
        is_inside = kind == _LITERAL or (kind in _INTEGERS and _INTEGERS[kind][0] <= width)
        offset = int.from_bytes(data[entry + 1 : entry + 1 + width], "little")
        yield _value(kind, data, entry + 1 if is_inside else base + offset)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def double_text(value: float) -> str:
    """A double as the server writes it, with the fewest digits that identify it.

    Numbers from 1e-15 to below 1e15, and greater ones with a fraction, have no exponent; whole ones
    of them end with `.0`.
    """
    text: str = np.format_float_scientific(value, trim="-", exp_digits=1)
    mantissa, _, exponent = text.partition("e")
    digits, point = len(mantissa.strip("-").replace(".", "")), int(exponent) + 1
    if -_MOST_PLACES < point <= _MOST_PLACES or 0 < point < digits:
        plain: str = np.format_float_positional(value, trim="0")
        return plain
    return text.replace("+", "")


def _opaque(kind: int, data: bytes) -> str:
    read = _OPAQUE_READERS.get(kind)
    if read is not None:
        return read(data)
    return _quoted(f"base64:type{kind}:{base64.encodebytes(data).decode()}".removesuffix("\n"))


def _packed_time(data: bytes) -> tuple[str, int, str]:
    """The sign, the packed days, and the time of day in MySQL's packed form."""
    packed = int.from_bytes(data, "little", signed=True)
    sign, packed = "-" if packed < 0 else "", abs(packed)
    micros, clock = packed & 0xFFFFFF, packed >> 24
    hours = clock >> 12 & 31
    return sign, clock >> 17, f"{hours:02d}:{clock >> 6 & 63:02d}:{clock & 63:02d}.{micros:06d}"


def _date_of(days: int) -> str:
    year, month = divmod(days >> 5, 13)
    return f"{year:04d}-{month:02d}-{days & 31:02d}"


def _datetime(data: bytes) -> str:
    _, days, clock = _packed_time(data)
    return f'"{_date_of(days)} {clock}"'


def _time(data: bytes) -> str:
    sign, days, clock = _packed_time(data)
    hours = (days & 31) << 5 | int(clock[:2])
    return f'"{sign}{hours:02d}{clock[2:]}"'


_OPAQUE_READERS: dict[int, Callable[[bytes], str]] = {
    _DECIMAL: lambda data: decimal_text_reader(data[0], data[1])(data[2:]),
    _DATE: lambda data: f'"{_date_of(_packed_time(data)[1])}"',
    _TIME: _time,
    _DATETIME: _datetime,
    _TIMESTAMP: _datetime,
}
