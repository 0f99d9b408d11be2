"""Statements that end: a SELECT with its rows, and INSERT of VALUES or of such a SELECT."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pyarrow as pa

from streamhouse.engine import Batches, bounded_reader, warehouse_scanner
from streamhouse.errors import OptionError, SqlError, TableError, UnsupportedSqlError
from streamhouse.mysql import MySqlSource
from streamhouse.options import nearest
from streamhouse.paimon.catalog import Warehouse
from streamhouse.paimon.change_files import rows_changed
from streamhouse.paimon.commit import TableCommitter, TableWriter, overwrite_table
from streamhouse.paimon.lock import commit_lock
from streamhouse.paimon.table import Table
from streamhouse.runtime.kernel import conformed
from streamhouse.runtime.session import Session, connector_options
from streamhouse.runtime.spec import SourceSpec
from streamhouse.sql.analysis import analyze_bounded
from streamhouse.sql.plan import BoundedQuery, BoundedScan, Insert, Query, TableInfo

_TRIES = 3
"""Times that rows are written again because a statement changed others; then that one waits."""


@contextmanager
def select(session: Session, query: Query) -> Iterator[pa.RecordBatchReader]:
    """The rows of a SELECT that ends."""
    plan = analyze_bounded(query, session)
    with bounded_reader(plan, lambda scan: scan_of(session, scan)) as reader:
        yield reader


def insert(session: Session, statement: Insert) -> int:
    """Write the rows of VALUES or of a SELECT that ends, in one commit; how many there were.

    OVERWRITE replaces the table's rows, of a partitioned table those of the partitions that are
    written to, or of PARTITION (…); the option `dynamic-partition-overwrite` = false replaces all.
    An OVERWRITE that reads its own table keeps other writers waiting from its start.
    """
    target = session.table(statement.target)
    if target.connector != "paimon":
        raise UnsupportedSqlError(
            f"INSERT into a {target.connector} table; the target must be a Paimon table",
            line=statement.position.line,
            column=statement.position.column,
        )
    given = statement.columns
    if statement.partition:
        given = _columns(target, statement)
    plan = analyze_bounded(statement.query, session, target, given)
    address = session.address(target)
    own = statement.overwrite and any(
        scan.table.connector == "paimon" and session.address(scan.table) == address
        for scan in plan.scans
    )
    with commit_lock(address.open().location) if own else nullcontext():
        return _Insert(session, statement, plan, address.open()).run(own)


class _Insert:
    """Rows of one statement on their way into a table."""

    def __init__(
        self, session: Session, statement: Insert, plan: BoundedQuery, table: Table
    ) -> None:
        self._session = session
        self._statement = statement
        self._plan = plan
        self._table = table
        self._user = str(uuid.uuid4())
        self._partition = {
            name: _value(table, name, text) for name, text in statement.partition.items()
        }
        self._options = dict(statement.options)
        if self._partition and len(self._partition) == len(table.partition_keys):
            # All is said: an overwrite without rows empties the partition.
            self._options["dynamic-partition-overwrite"] = "false"

    def run(self, lock_held: bool) -> int:
        """Write and commit; how many rows there were."""
        for number in range(_TRIES + 1):
            hold = number == _TRIES and not lock_held
            with commit_lock(self._table.location) if hold else nullcontext():
                rows = self._try(lock_held or hold)
                if rows is not None:
                    return rows
        raise AssertionError("an INSERT that holds the lock cannot lose")

    def _try(self, lock_held: bool) -> int | None:
        """The number of rows; None if they would be hidden by rows that changed meanwhile."""
        table, seen = self._table, self._table.latest_snapshot_id()
        values = {name: value.as_py() for name, value in self._partition.items()}
        rows, messages = self._prepare(values)
        if self._statement.overwrite:
            overwrite_table(table, self._user, messages, self._options, values, lock_held)
            return rows
        committer = TableCommitter(table.catalog_options, table.identifier, self._user)
        with nullcontext() if lock_held else commit_lock(table.location):
            if not table.primary_key or not rows_changed(table, seen):
                committer.commit(0, messages, lock_held=True)
                return rows
        committer.abort(messages)
        return None

    def _prepare(self, partition: dict[str, Any]) -> tuple[int, list[bytes]]:
        table = self._table
        writer = TableWriter(
            table.catalog_options, table.identifier, self._user, table_options=self._options,
            overwrite=self._statement.overwrite, partition=partition,
        )  # fmt: skip
        rows = 0
        try:
            for batch in self._batches():
                rows += batch.num_rows
                writer.write(batch)
            return rows, writer.prepare(0)
        finally:
            writer.close()

    def _batches(self) -> Iterator[pa.RecordBatch]:
        schema = self._table.arrow_schema
        with bounded_reader(self._plan, lambda scan: scan_of(self._session, scan)) as reader:
            for batch in reader:
                columns = [
                    pa.repeat(self._partition[name], batch.num_rows)
                    if name in self._partition
                    else column
                    for name, column in zip(schema.names, batch.columns, strict=True)
                ]
                named = pa.Table.from_arrays(columns, names=schema.names)
                yield from conformed(named, schema).to_batches()


def _columns(target: TableInfo, statement: Insert) -> tuple[str, ...]:
    """The columns that the query fills, beside those of PARTITION (…)."""
    place = statement.position
    where = f"PARTITION of {'.'.join(target.name)}"
    for name in statement.partition:
        if name not in target.partitioned_by:
            if not target.partitioned_by:
                reason = "the table is not partitioned; leave out PARTITION (…)"
            else:
                reason = f"'{name}' is no partition column; {nearest(name, target.partitioned_by)}"
            raise SqlError(f"{where}: {reason}", line=place.line, column=place.column)
        if name in statement.columns:
            raise SqlError(
                f"{where}: '{name}' is among the columns too; leave it out of one of the two",
                line=place.line,
                column=place.column,
            )
    names = [column.name for column in target.columns if column.name not in statement.partition]
    return statement.columns or tuple(names)


def _value(table: Table, name: str, text: str) -> pa.Scalar:
    field = table.arrow_schema.field(name)
    try:
        return pa.array([text]).cast(field.type)[0]
    except pa.ArrowException:
        raise TableError(
            f"table {table.identifier}: '{text}' is no value of partition column '{name}', which "
            f"is {field.type}"
        ) from None


def scan_of(session: Session, scan: BoundedScan) -> tuple[pa.Schema, Batches]:
    """The rows of a table of the session, as the engine takes them."""
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
