"""Decodes records into rows, with the METADATA columns."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from streamhouse.connectors.base import Metadata
from streamhouse.connectors.kinesis.aggregation import HashKeyRange, deaggregated
from streamhouse.connectors.kinesis.stream import Record
from streamhouse.formats.base import BadRecord, Decoder
from streamhouse.source import ROW_KIND
from streamhouse.sql.plan import Column
from streamhouse.types import arrow_type

_TIME, _SHARD, _NUMBER = "timestamp", "shard-id", "sequence-number"
METADATA = (
    Metadata(_TIME, "TIMESTAMP_LTZ(3)", "when the record arrived in the stream, approximately"),
    Metadata(_SHARD, "STRING", "the shard of the record"),
    Metadata(_NUMBER, "STRING", "the record's sequence number, unique within its shard"),
)


class RecordRows:
    """The rows of records; `columns` are those of the table, `decoder` has the stored ones."""

    def __init__(self, columns: Sequence[Column], decoder: Decoder) -> None:
        self._columns = tuple(columns)
        self._decoder = decoder
        self.schema = table_schema(columns)

    @property
    def changelog(self) -> bool:
        """Whether the format expresses updates and deletes."""
        return self._decoder.changelog

    def decode(self, records: Sequence[UserRecord]) -> tuple[pa.RecordBatch, Sequence[BadRecord]]:
        """The rows of records, and the records that cannot be decoded, by index."""
        decoded = self._decoder.decode([record.data for record in records])
        origins = records
        if decoded.records is not None:
            origins = [records[index] for index in decoded.records]
        return self._with_metadata(decoded.rows, origins), decoded.bad

    def _with_metadata(self, rows: pa.RecordBatch, origins: Sequence[UserRecord]) -> pa.RecordBatch:
        arrays = [
            rows.column(column.name)
            if column.metadata is None
            else _values(column.metadata, origins).cast(arrow_type(column.type))
            for column in self._columns
        ]
        if not self.changelog:
            return pa.record_batch(arrays, schema=self.schema)
        schema = self.schema.append(rows.schema.field(ROW_KIND))
        return pa.record_batch([*arrays, rows.column(ROW_KIND)], schema=schema)


def table_schema(columns: Sequence[Column]) -> pa.Schema:
    """The Arrow schema of columns of a declared table."""
    return pa.schema([pa.field(column.name, arrow_type(column.type)) for column in columns])


def _values(key: str, origins: Sequence[UserRecord]) -> pa.Array:
    if key == _TIME:
        return pa.array([origin.arrival_ms for origin in origins], pa.timestamp("ms", "UTC"))
    if key == _NUMBER:
        return pa.array([str(origin.number) for origin in origins], pa.string())
    return pa.array([origin.shard for origin in origins], pa.string())


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
