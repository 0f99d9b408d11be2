"""A streaming SELECT: prints each change as it arrives, until stopped."""

import time

import pyarrow as pa

from streamhouse.connectors.base import warn_of_bad_records
from streamhouse.lookup.strategies.selection import choose_all
from streamhouse.runtime.query_operator import QueryOperator, numbered
from streamhouse.runtime.query_source import source_caught_up
from streamhouse.runtime.run_output import RunOutput
from streamhouse.runtime.session.session import Session
from streamhouse.runtime.streaming.dimensions.open_dimensions import Dimensions
from streamhouse.runtime.streaming.dimensions.versions import DimensionVersions
from streamhouse.runtime.streaming.tasks.task_run import chunks
from streamhouse.runtime.streaming.watermark import NOTHING, advanced
from streamhouse.source import ROW_KIND, Offset
from streamhouse.sql.expressions.zones import UTC
from streamhouse.sql.plan import StreamQuery
from streamhouse.types import arrow_type


class StreamingSelect:
    """Runs in the driver without a checkpoint: each start begins at the source's initial offset."""

    def __init__(self, session: Session, query: StreamQuery, output: RunOutput) -> None:
        self._query = query
        self._output, self._zone = output, session.zone
        self._pinned: Offset = {}
        self._watermark = NOTHING
        specs = list(map(session.dimension, query.lookups))
        choices = choose_all(specs)
        self._versions = DimensionVersions(specs, choices)
        self._dimensions = Dimensions(specs, choices)
        source = session.source(query)
        self.reads = [] if source.address is None else [source.address]
        """The source table, if it is a Paimon table; else empty."""
        self._source = source.open(query.scan.columns)
        self._offset = self._source.initial_offset()
        schema = pa.schema([pa.field(c.name, arrow_type(c.type)) for c in query.rows.columns])
        self._operator = QueryOperator(query, schema, None)

    def step(self) -> None:
        """Run one micro-batch: print the new changes, if there are any."""
        end = self._source.latest_offset(self._offset)
        if end == self._offset:
            return
        now_ms = time.time_ns() // 1_000_000
        self._operator.bind(now_ms, self._watermark["at"])
        loaded = self._dimensions.loaded(self._pinned)
        pinned = self._versions.offset_keys(self._pinned, now_ms, loaded)
        self._pinned = {**pinned, "now": now_ms}
        self._dimensions.at(self._pinned)
        for partition in self._source.partitions(self._offset, end):
            for chunk in chunks(self._source.read(partition)):
                found = self._operator.watermarks(chunk)
                if found:
                    # The watermark of this batch stays as it is.
                    self._watermark = advanced(self._watermark, found, self._query, now_ms)
                src = numbered(chunk, 0)
                self._dimensions.bind(self._operator, src)
                self._print(self._operator.rows(src))
        warn_of_bad_records(self._source.bad_records().num_rows)
        self._offset = end
        self._source.committed(end)

    def caught_up_offset(self) -> Offset | None:
        """The current offset, if the source has nothing newer; else None."""
        return self._offset if source_caught_up(self._source, self._offset) else None

    def close(self) -> None:
        self._source.close()
        self._dimensions.close()

    def _print(self, rows: pa.Table) -> None:
        if ROW_KIND in rows.column_names:
            kinds = rows.column(ROW_KIND)
            rows = rows.drop_columns([ROW_KIND])
        else:
            kinds = pa.chunked_array([pa.repeat(pa.scalar("+I"), rows.num_rows)])
        reader = rows.add_column(0, ROW_KIND, kinds).combine_chunks().to_reader()
        for batch in shown_in(self._zone, reader):
            self._output.changes(batch)


def shown_in(zone: str, rows: pa.RecordBatchReader) -> pa.RecordBatchReader:
    """Rows whose instants texts show as local times of a session's zone; other formats have UTC.

    Times within arrays, maps and rows stay in UTC.
    """
    if zone == UTC:
        return rows
    schema = pa.schema([field.with_type(_shown(field.type, zone)) for field in rows.schema])
    return pa.RecordBatchReader.from_batches(schema, (batch.cast(schema) for batch in rows))


def _shown(kind: pa.DataType, zone: str) -> pa.DataType:
    if not pa.types.is_timestamp(kind) or kind.tz is None:
        return kind
    return pa.timestamp(kind.unit, zone.removeprefix("GMT") if ":" in zone else zone)
