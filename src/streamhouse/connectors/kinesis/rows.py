"""Decodes records into rows, with the METADATA columns; splits those that a producer has packed.

The format of packed records is that of AWS's "KPL Aggregated Record Format": four magic bytes, a
protobuf message `AggregatedRecord`, and the MD5 digest of the message.

A producer that does not know yet that a shard was split can put a user record into a shard whose
range does not include its hash key. It notices this and sends the record again. So consumers leave
out such records, as AWS's own Kinesis Client Library does.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from streamhouse.connectors.specs import arrow_schema, declared_rows
from streamhouse.formats.base import BadRecord, FormatChoice
from streamhouse.formats.protobuf_fields import Fields, parsed_fields
from streamhouse.sql.plan import Column

_MAGIC = b"\xf3\x89\x9a\xc2"
_DIGEST = 16
_PARTITION_KEYS, _HASH_KEYS, _RECORDS = 1, 2, 3
"""The fields of `AggregatedRecord`."""
_PARTITION_KEY_INDEX, _HASH_KEY_INDEX, _DATA = 1, 2, 3
"""The fields of `Record`; the indexes are of the two lists of keys of its `AggregatedRecord`."""


_TIME, _NUMBER = "timestamp", "sequence-number"


@dataclass(frozen=True)
class Record:
    """A record of a shard; `number` is its sequence number, `arrival_ms` is epoch milliseconds."""

    number: int
    arrival_ms: int
    data: bytes


@dataclass(frozen=True)
class UserRecord:
    """A record, or one of those that a producer has packed into a record.

    `number` is the sequence number of the record, `index` the position in it, from 1 on (None: the
    producer has not packed it).
    """

    shard: str
    number: int
    index: int | None
    arrival_ms: int
    data: bytes

    def position(self, stream: str) -> str:
        """The position as text, which errors and the dead-letter table have."""
        part = "" if self.index is None else f", part {self.index}"
        return f"stream {stream}, {self.shard}, record {self.number}{part}"


def deaggregated(data: bytes, keys: range | None = None) -> list[tuple[int, bytes]] | None:
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
    partition_keys, hash_keys = message[_PARTITION_KEYS], message[_HASH_KEYS]
    found: list[tuple[int, bytes]] = []
    for index, each in enumerate(message[_RECORDS], 1):
        record = parsed_fields(each)
        key = _hash_key(record, partition_keys, hash_keys)
        if keys is None or key is None or key in keys:
            found.extend((index, payload) for payload in record[_DATA])
    return found


def _hash_key(
    record: Fields, partition_keys: Sequence[bytes], hash_keys: Sequence[bytes]
) -> int | None:
    """The number by which Kinesis chooses the shard of a record; None if the record has no key."""
    for explicit in record[_HASH_KEY_INDEX][-1:]:
        if explicit < len(hash_keys):
            return int(hash_keys[explicit])
    for partition in record[_PARTITION_KEY_INDEX][-1:]:
        if partition < len(partition_keys):
            key = partition_keys[partition]
            return int.from_bytes(hashlib.md5(key, usedforsecurity=False).digest())
    return None


class RecordRows:
    """The rows of records, with the `columns` of the table; raises `OptionError`."""

    def __init__(self, columns: Sequence[Column], form: FormatChoice) -> None:
        self._columns = tuple(columns)
        stored = [column for column in columns if column.metadata is None]
        self._decoder, self.changelog = form.decoder(arrow_schema(stored)), form.changelog
        self.schema = arrow_schema(columns)

    def decode(self, records: Sequence[UserRecord]) -> tuple[pa.RecordBatch, Sequence[BadRecord]]:
        """The rows of records, and the records that cannot be decoded, by index."""
        decoded = self._decoder.decode([record.data for record in records])
        origins = records
        if decoded.records is not None:
            origins = [records[index] for index in decoded.records]
        metadata = partial(_values, origins)
        return declared_rows(decoded.rows, self._columns, self.schema, metadata), decoded.bad


def _values(origins: Sequence[UserRecord], key: str) -> pa.Array:
    if key == _TIME:
        return pa.array([origin.arrival_ms for origin in origins], pa.timestamp("ms", "UTC"))
    if key == _NUMBER:
        return pa.array([str(origin.number) for origin in origins], pa.string())
    return pa.array([origin.shard for origin in origins], pa.string())


_POSITION = re.compile(r"stream (.*), (\S+), record (\d+)(?:, part (\d+))?")


def user_records(
    shard: str, records: Iterable[Record], keys: range | None = None
) -> Iterator[UserRecord]:
    """The user records in the records of a shard, in order; `keys`: the shard's range."""
    for record in records:
        found = deaggregated(record.data, keys)
        if found is None:
            yield UserRecord(shard, record.number, None, record.arrival_ms, record.data)
            continue
        for index, data in found:
            yield UserRecord(shard, record.number, index, record.arrival_ms, data)


def from_bad_record(row: Mapping[str, Any]) -> UserRecord:
    """The user record of a row of the dead-letter table."""
    match = _POSITION.fullmatch(row["position"])
    assert match is not None
    index = None if match[4] is None else int(match[4])
    return UserRecord(match[2], int(match[3]), index, row["timestamp"] or 0, row["value"] or b"")
