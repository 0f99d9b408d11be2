"""Records that the Kinesis Producer Library (KPL) has packed into one record.

The format is that of AWS's "KPL Aggregated Record Format": four magic bytes, a protobuf message
`AggregatedRecord`, and the MD5 digest of the message.

A producer that does not know yet that a shard was split can put a user record into a shard whose
range does not include its hash key. It notices this and sends the record again. So consumers leave
out such records, as AWS's own Kinesis Client Library does.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

_MAGIC = b"\xf3\x89\x9a\xc2"
_DIGEST = 16
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_PARTITION_KEYS, _HASH_KEYS, _RECORDS = 1, 2, 3
"""The fields of `AggregatedRecord`."""
_PARTITION_KEY_INDEX, _HASH_KEY_INDEX, _DATA = 1, 2, 3
"""The fields of `Record`; the indexes are of the two lists of keys of its `AggregatedRecord`."""


@dataclass(frozen=True)
class HashKeyRange:
    """The hash keys of the records in a shard, from `first` to `last` inclusive."""

    first: int
    last: int


@dataclass
class _Message:
    """The fields of a protobuf message by number: those of bytes, and those of integers."""

    bytes: dict[int, list[bytes]] = field(default_factory=dict)
    integers: dict[int, int] = field(default_factory=dict)


def deaggregated(data: bytes, keys: HashKeyRange | None = None) -> list[tuple[int, bytes]] | None:
    """The user records in an aggregated record, each with its index, from 1 on.

    Leaves out those whose hash keys are outside `keys`, the range of the shard (None: unknown).
    Returns None if the producer has not aggregated the record.
    """
    if not data.startswith(_MAGIC) or len(data) < len(_MAGIC) + _DIGEST:
        return None
    content, digest = data[len(_MAGIC) : -_DIGEST], data[-_DIGEST:]
    if hashlib.md5(content, usedforsecurity=False).digest() != digest:
        return None
    message = _parse(content)
    partition_keys = message.bytes.get(_PARTITION_KEYS, [])
    hash_keys = message.bytes.get(_HASH_KEYS, [])
    found: list[tuple[int, bytes]] = []
    for index, each in enumerate(message.bytes.get(_RECORDS, []), 1):
        record = _parse(each)
        key = _hash_key(record, partition_keys, hash_keys)
        if keys is None or key is None or keys.first <= key <= keys.last:
            found.extend((index, payload) for payload in record.bytes.get(_DATA, []))
    return found


def _hash_key(
    record: _Message, partition_keys: Sequence[bytes], hash_keys: Sequence[bytes]
) -> int | None:
    """The number by which Kinesis chooses the shard of a record; None if the record has no key."""
    explicit = record.integers.get(_HASH_KEY_INDEX)
    if explicit is not None and explicit < len(hash_keys):
        return int(hash_keys[explicit])
    partition = record.integers.get(_PARTITION_KEY_INDEX)
    if partition is None or partition >= len(partition_keys):
        return None
    return int.from_bytes(hashlib.md5(partition_keys[partition], usedforsecurity=False).digest())


def _parse(content: bytes) -> _Message:
    message, at = _Message(), 0
    while at < len(content):
        tag, at = _varint(content, at)
        number, kind = tag >> 3, tag & 7
        if kind == _BYTES:
            length, at = _varint(content, at)
            message.bytes.setdefault(number, []).append(content[at : at + length])
            at += length
        elif kind == _VARINT:
            message.integers[number], at = _varint(content, at)
        elif kind in (_FIXED32, _FIXED64):
            at += 4 if kind == _FIXED32 else 8
        else:
            raise ValueError(f"aggregated record with the unknown wire type {kind}")
    return message


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
