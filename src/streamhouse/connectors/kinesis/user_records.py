"""The parts of a stream's records that formats decode, and the places that name them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from streamhouse.connectors.kinesis.aggregation import deaggregated
from streamhouse.connectors.kinesis.stream import Record

_PLACE = re.compile(r"stream (.*), (\S+), record (\d+)(?:, part (\d+))?")


@dataclass(frozen=True)
class UserRecord:
    """A record, or one of those that a producer has packed into a record.

    `number` is the record's sequence number, `index` the part's place in it, from 1 on (None: it
    is the whole record).
    """

    shard: str
    number: int
    index: int | None
    arrival_ms: int
    data: bytes

    def position(self, stream: str) -> str:
        """Where it is."""
        part = "" if self.index is None else f", part {self.index}"
        return f"stream {stream}, {self.shard}, record {self.number}{part}"


def user_records(shard: str, records: Iterable[Record]) -> Iterator[UserRecord]:
    """The parts of the records of a shard, in order."""
    for record in records:
        found = deaggregated(record.data)
        # An aggregate can hold a single record.
        packed = len(found) != 1 or found[0] is not record.data
        for index, data in enumerate(found, 1):
            place = index if packed else None
            yield UserRecord(shard, record.number, place, record.arrival_ms, data)


def from_bad_record(row: Mapping[str, Any]) -> UserRecord:
    """The part that a row of the table of bad records was."""
    place = _PLACE.fullmatch(row["position"])
    assert place is not None
    index = None if place[4] is None else int(place[4])
    return UserRecord(place[2], int(place[3]), index, row["timestamp"] or 0, row["value"] or b"")
