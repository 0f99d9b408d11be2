"""Bounded INSERT into a table of another connector than Paimon."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pyarrow as pa

from streamhouse.connectors.base import BoundedSink, WrittenBatch
from streamhouse.duckdb_engine import bounded_reader
from streamhouse.errors import UnsupportedSqlError
from streamhouse.runtime.batch.insert_columns import given_columns
from streamhouse.runtime.batch.progress_line import progress
from streamhouse.runtime.batch.scans import Scans
from streamhouse.runtime.session.session import Session
from streamhouse.sql.batch.bounded_query import analyze_bounded
from streamhouse.sql.plan import TableInfo
from streamhouse.sql.syntax import Insert


def insert_into_sink(session: Session, statement: Insert, target: TableInfo) -> int:
    """Write the rows of VALUES or of a bounded SELECT as one batch; returns the number of rows."""
    position = statement.position
    if statement.overwrite or statement.partition:
        clause = "OVERWRITE" if statement.overwrite else "PARTITION"
        raise UnsupportedSqlError.at(
            position,
            f"{clause} needs a Paimon table; {'.'.join(statement.target)} has the connector "
            f"'{target.connector}'",
        )
    plan = analyze_bounded(statement.query, session, target, given_columns(target, statement))
    spec = session.endpoints.sink(target, statement.options)
    assert spec is not None
    sink, query_id = spec.open(), uuid.uuid4().hex
    count = 0

    def named(reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        nonlocal count
        count = 0
        for batch in reader:
            count += batch.num_rows
            columns = pa.RecordBatch.from_arrays(batch.columns, names=sink.schema.names)
            yield columns.cast(sink.schema)

    def write() -> WrittenBatch:
        writer = sink.writer(query_id, 0, query_id[:12])
        try:
            with progress() as bar, bounded_reader(plan, Scans(session, plan, bar).open) as reader:
                for batch in named(reader):
                    writer.write(batch)
            return WrittenBatch(0, writer.prepare())
        finally:
            writer.close()

    if isinstance(sink, BoundedSink):
        with progress() as bar, bounded_reader(plan, Scans(session, plan, bar).open) as reader:
            sink.insert(query_id, named(reader))
    else:
        sink.committer(query_id).commit(write, lambda: None)
    return count
