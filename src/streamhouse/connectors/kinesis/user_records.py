"""User records, which formats decode, and their positions in the stream."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from streamhouse.connectors.kinesis.aggregation import HashKeyRange, deaggregated
from streamhouse.connectors.kinesis.stream import Record

_POSITION = re.compile(r"stream (.*), (\S+), record (\d+)(?:, part (\d+))?")


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


def user_records(
    shard: str, records: Iterable[Record], keys: HashKeyRange | None = None
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
