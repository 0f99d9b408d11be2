"""Records that the Kinesis Producer Library (KPL) has packed into one record.

The format is that of AWS's "KPL Aggregated Record Format": four magic bytes, a protobuf message
`AggregatedRecord`, and the MD5 digest of the message.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

_MAGIC = b"\xf3\x89\x9a\xc2"
_DIGEST = 16
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_RECORDS, _DATA = 3, 3
"""The fields `AggregatedRecord.records` and `Record.data`."""


def deaggregated(data: bytes) -> list[bytes]:
    """The user records in a record: itself, if the producer has not aggregated it."""
    if not data.startswith(_MAGIC) or len(data) < len(_MAGIC) + _DIGEST:
        return [data]
    message, digest = data[len(_MAGIC) : -_DIGEST], data[-_DIGEST:]
    if hashlib.md5(message, usedforsecurity=False).digest() != digest:
        return [data]
    return [
        payload
        for field, record in _fields(message)
        if field == _RECORDS
        for inner, payload in _fields(record)
        if inner == _DATA
    ]


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """The fields of a protobuf message that hold bytes: their numbers and values."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        kind = tag & 7
        if kind == _BYTES:
            length, at = _varint(message, at)
            yield tag >> 3, message[at : at + length]
            at += length
        elif kind == _VARINT:
            _, at = _varint(message, at)
        elif kind in (_FIXED32, _FIXED64):
            at += 4 if kind == _FIXED32 else 8
        else:
            raise ValueError(f"aggregated record with the unknown wire type {kind}")


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """A variable-length integer, and the position after it."""
    value = shift = 0
    while True:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
