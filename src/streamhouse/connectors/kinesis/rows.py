"""Decodes the records of a shard into rows, with the METADATA columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from streamhouse.connectors.base import Metadata
from streamhouse.connectors.kinesis.aggregation import unpacked
from streamhouse.connectors.kinesis.stream import Record
from streamhouse.errors import QueryError
from streamhouse.formats.base import Decoder
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

    def __init__(self, columns: Sequence[Column], decoder: Decoder, stream: str) -> None:
        self._columns = tuple(columns)
        self._decoder = decoder
        self._stream = stream
        self.schema = table_schema(columns)

    @property
    def changelog(self) -> bool:
        """Whether the format expresses updates and deletes."""
        return self._decoder.changelog

    def batches(self, shard: str, records: Sequence[Record]) -> Iterator[pa.RecordBatch]:
        """The rows of records; raises `QueryError` for one that cannot be decoded."""
        parts = [(record, part) for record in records for part in unpacked(record.data)]
        if not parts:
            return
        decoded = self._decoder.decode([part for _, part in parts])
        for bad in decoded.bad:
            raise QueryError(
                f"kinesis stream {self._stream}: the record {parts[bad.index][0].number} of "
                f"{shard} cannot be read: {bad.reason}"
            )
        if decoded.rows.num_rows == 0:
            return
        indexes = decoded.records
        if indexes is None:
            indexes = np.arange(len(parts), dtype=np.int64)
        origins = [parts[index][0] for index in indexes]
        yield self._with_metadata(decoded.rows, shard, origins)

    def _with_metadata(
        self, rows: pa.RecordBatch, shard: str, origins: Sequence[Record]
    ) -> pa.RecordBatch:
        arrays = [
            rows.column(column.name)
            if column.metadata is None
            else _values(column.metadata, shard, origins).cast(arrow_type(column.type))
            for column in self._columns
        ]
        if not self.changelog:
            return pa.record_batch(arrays, schema=self.schema)
        schema = self.schema.append(rows.schema.field(ROW_KIND))
        return pa.record_batch([*arrays, rows.column(ROW_KIND)], schema=schema)


def table_schema(columns: Sequence[Column]) -> pa.Schema:
    """The Arrow schema of columns of a declared table."""
    return pa.schema([pa.field(column.name, arrow_type(column.type)) for column in columns])


def _values(key: str, shard: str, origins: Sequence[Record]) -> pa.Array:
    if key == _TIME:
        return pa.array([one.arrival_ms for one in origins], pa.timestamp("ms", "UTC"))
    if key == _NUMBER:
        return pa.array([str(one.number) for one in origins])
    return pa.repeat(pa.scalar(shard), len(origins))
