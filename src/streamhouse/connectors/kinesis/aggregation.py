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
from dataclasses import dataclass

from streamhouse.formats.protobuf_fields import Fields, contents, numbers, parsed_fields

_MAGIC = b"\xf3\x89\x9a\xc2"
_DIGEST = 16
_PARTITION_KEYS, _HASH_KEYS, _RECORDS = 1, 2, 3
"""The fields of `AggregatedRecord`."""
_PARTITION_KEY_INDEX, _HASH_KEY_INDEX, _DATA = 1, 2, 3
"""The fields of `Record`; the indexes are of the two lists of keys of its `AggregatedRecord`."""


@dataclass(frozen=True)
class HashKeyRange:
    """The hash keys of the records in a shard, from `first` to `last` inclusive."""

    first: int
    last: int


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
    message = parsed_fields(content)
    partition_keys, hash_keys = contents(message, _PARTITION_KEYS), contents(message, _HASH_KEYS)
    found: list[tuple[int, bytes]] = []
    for index, each in enumerate(contents(message, _RECORDS), 1):
        record = parsed_fields(each)
        key = _hash_key(record, partition_keys, hash_keys)
        if keys is None or key is None or keys.first <= key <= keys.last:
            found.extend((index, payload) for payload in contents(record, _DATA))
    return found


def _hash_key(
    record: Fields, partition_keys: Sequence[bytes], hash_keys: Sequence[bytes]
) -> int | None:
    """The number by which Kinesis chooses the shard of a record; None if the record has no key."""
    for explicit in numbers(record, _HASH_KEY_INDEX)[-1:]:
        if explicit < len(hash_keys):
            return int(hash_keys[explicit])
    for partition in numbers(record, _PARTITION_KEY_INDEX)[-1:]:
        if partition < len(partition_keys):
            key = partition_keys[partition]
            return int.from_bytes(hashlib.md5(key, usedforsecurity=False).digest())
    return None
