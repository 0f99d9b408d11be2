"""Statements that end: a SELECT with its rows, and INSERT of VALUES or of such a SELECT."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from streamhouse.engine import Batches, bounded_reader, warehouse_scanner
from streamhouse.errors import OptionError, UnsupportedSqlError
from streamhouse.mysql import MySqlSource
from streamhouse.paimon.catalog import Warehouse
from streamhouse.paimon.commit import TableCommitter, TableWriter, overwrite_table
from streamhouse.runtime.kernel import conformed
from streamhouse.runtime.session import Session, connector_options
from streamhouse.runtime.spec import SourceSpec
from streamhouse.sql.analysis import analyze_bounded
from streamhouse.sql.plan import BoundedScan, Insert, Query, TableInfo


@contextmanager
def select(session: Session, query: Query) -> Iterator[pa.RecordBatchReader]:
    """The rows of a SELECT that ends."""
    plan = analyze_bounded(query, session)
    with bounded_reader(plan, lambda scan: _scan(session, scan)) as reader:
        yield reader


def insert(session: Session, statement: Insert) -> int:
    """Write the rows of VALUES or of a SELECT that ends, in one commit; how many there were."""
    target = session.table(statement.target)
    if target.connector != "paimon":
        raise UnsupportedSqlError(
            f"INSERT into a {target.connector} table; the target must be a Paimon table",
            line=statement.position.line,
            column=statement.position.column,
        )
    plan = analyze_bounded(statement.query, session, target, statement.columns)
    address = session.address(target)
    user = str(uuid.uuid4())
    options = dict(statement.options)
    writer = TableWriter(
        address.warehouse,
        address.identifier,
        user,
        table_options=options,
        overwrite=statement.overwrite,
    )
    rows = 0
    schema = address.open().arrow_schema
    try:
        with bounded_reader(plan, lambda scan: _scan(session, scan)) as reader:
            for batch in reader:
                rows += batch.num_rows
                named = pa.Table.from_arrays(batch.columns, names=schema.names)
                for part in conformed(named, schema).to_batches():
                    writer.write(part)
        messages = writer.prepare(0)
    finally:
        writer.close()
    if statement.overwrite:
        overwrite_table(address.open(), user, messages, options)
    else:
        TableCommitter(address.warehouse, address.identifier, user).commit(0, messages)
    return rows


def _scan(session: Session, scan: BoundedScan) -> tuple[pa.Schema, Batches]:
    if scan.table.connector == "paimon":
        address = session.address(scan.table)
        return warehouse_scanner(Warehouse(address.warehouse))(scan)
    return _foreign(scan.table, scan.columns)


def _foreign(table: TableInfo, columns: tuple[str, ...]) -> tuple[pa.Schema, Batches]:
    source = SourceSpec(table.connector, connector_options(table), table.columns).open()
    schema = pa.schema([source.schema.field(name) for name in columns])

    def read() -> Iterator[pa.RecordBatch]:
        if isinstance(source, MySqlSource):
            pieces = source.whole_table(1)
            for piece in pieces:
                for batch in source.read(piece):
                    yield batch.select(list(columns))
            return
        offset = source.initial_offset()
        while not source.finished(offset):
            end = source.latest_offset(offset)
            for piece in source.partitions(offset, end):
                for batch in source.read(piece):
                    yield batch.select(list(columns))
            offset = end

    if table.connector == "datagen" and not getattr(source, "bounded", False):
        raise OptionError(
            f"table {table.name[-1]} never ends, so a bounded query over it would not; give it "
            "'number-of-rows', or leave SET 'execution.runtime-mode' at 'streaming'"
        )
    return schema, read
