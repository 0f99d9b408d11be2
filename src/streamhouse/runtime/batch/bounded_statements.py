"""Bounded SELECT, and INSERT [OVERWRITE] of VALUES or of a bounded SELECT, into any connector."""

import logging
import uuid
from collections.abc import Generator, Iterator
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from streamhouse.connectors import registry
from streamhouse.connectors.base import WrittenBatch
from streamhouse.duckdb_engine import bounded_reader
from streamhouse.errors import TableError, UnsupportedSqlError
from streamhouse.options import choice
from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.paimon.java.sidecar import Sidecar
from streamhouse.paimon.maintenance.other_compactors import written_by_live_query
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.read.visibility import hides_new_rows
from streamhouse.paimon.storage.lock import commit_lock
from streamhouse.paimon.write.commit import TableCommitter, overwrite_table
from streamhouse.paimon.write.commit_retries import rows_changed, with_retries
from streamhouse.paimon.write.table_writer import TableWriter
from streamhouse.runtime.batch.insert_differences import (
    EQUAL_ROWS,
    InsertResult,
    WrittenKeys,
    can_skip_equal_rows,
    insert_differences,
)
from streamhouse.runtime.batch.progress_line import ProgressLine, progress
from streamhouse.runtime.batch.scans import Scans, scan_of
from streamhouse.runtime.batch.wait_for_compaction import (
    java_core,
    make_visible,
    overwrite,
    shows_at_once,
    write_iceberg_metadata,
)
from streamhouse.runtime.query_operator import conformed
from streamhouse.runtime.session.session import Session
from streamhouse.sql.batch.bounded_query import analyze_bounded
from streamhouse.sql.plan import BoundedQuery, TableInfo
from streamhouse.sql.resolution.insert_target import given_columns
from streamhouse.sql.syntax import Insert, Query

_LOG = logging.getLogger("streamhouse")


def select(session: Session, query: Query) -> AbstractContextManager[pa.RecordBatchReader]:
    """Run a bounded SELECT; yields a reader of its rows."""
    return bounded_reader(analyze_bounded(query, session), lambda scan: scan_of(session, scan))


def insert(session: Session, statement: Insert, sidecar: Sidecar | None = None) -> InsertResult:
    """Write the rows of VALUES or of a bounded SELECT, in one commit; returns the row counts.

    A SELECT into a `deduplicate` table writes only rows that differ from the table's rows, unless
    the hint `insert.equal-rows` is `write` (see `insert_differences`). If new rows are invisible
    until compaction, the table is compacted afterwards (in `sidecar`, or in one started for this).

    OVERWRITE replaces all rows of the table; in a partitioned table, those of the partitions that
    are written to, or of PARTITION (…). The option `dynamic-partition-overwrite` = false replaces
    all rows. An OVERWRITE that reads its own table holds the commit lock from its start, so other
    writers wait.
    """
    target = session.table(statement.target)
    registry.check_sink(target, statement.position)
    if target.connector != "paimon":
        rows = insert_into_sink(session, statement, target)
        return InsertResult(rows, rows)
    if statement.fills and target.name in session.tables.found:
        session.notice(
            f"{'.'.join(target.name[1:])} exists, and IF NOT EXISTS leaves its rows as they are"
        )
        return InsertResult(0, 0)
    columns = given_columns(target, statement)
    plan = analyze_bounded(statement.query, session, target, columns)
    address = session.address(target)
    if statement.overwrite:
        _warn_if_live(address.open())
    with java_core(address.warehouse, sidecar) as java:
        with progress() as bar:
            result = _write(session, statement, plan, address, bar, java)
        write_iceberg_metadata(address, java)
    return result


def _write(
    session: Session,
    statement: Insert,
    plan: BoundedQuery,
    address: TableAddress,
    bar: ProgressLine,
    java: Sidecar,
) -> InsertResult:
    """Write the rows, or those that differ from the table's; then compact if they are invisible."""
    table, options = address.open(), dict(statement.options)
    compares = bool(plan.scans) and not statement.overwrite
    if compares:
        equal = choice(EQUAL_ROWS, options.pop(EQUAL_ROWS, "skip"), ("skip", "write"))
        compares = equal == "skip" and not options
        statement = replace(statement, options=options)
    reads_target = statement.overwrite and any(
        scan.table.connector == "paimon" and session.address(scan.table) == address
        for scan in plan.scans
    )
    with commit_lock(table.location) if reads_target else nullcontext():
        job = _Insert(session, statement, plan, address.open(), bar, java)
        if compares and can_skip_equal_rows(table) and table.latest_snapshot_id():
            result = insert_differences(address, job.tables(), job.scans.total, bar)
        else:
            rows = job.run()
            result = InsertResult(rows, rows)
    if hides_new_rows(table) and (statement.overwrite or result.inserted or result.updated):
        bar.part("compacting", None)
        make_visible(address, java)
    return replace(result, hidden=job.keys.hidden(address.open()))


def _warn_if_live(table: Table) -> None:
    """Log a warning if a running query adds to the aggregation table that is overwritten."""
    if table.options.get("merge-engine") == "aggregation" and written_by_live_query(table):
        _LOG.warning(
            "table %s: a running query writes this table; the rows that it writes later are "
            "added to those of INSERT OVERWRITE, and may count twice; `streamhouse repair %s` "
            "computes the view as of the query's last commit",
            table.identifier, table.identifier,
        )  # fmt: skip


@dataclass
class _Insert:
    """Writes the rows of one INSERT into its table."""

    _session: Session
    _statement: Insert
    _plan: BoundedQuery
    _table: Table
    _progress: ProgressLine
    _java: Sidecar

    def __post_init__(self) -> None:
        table, statement = self._table, self._statement
        self.scans = Scans(self._session, self._plan, self._progress)
        self.keys = WrittenKeys(table)
        self._user = str(uuid.uuid4())
        self._partition = {
            name: _value(table, name, text) for name, text in statement.partition.items()
        }
        self._options = dict(statement.options)
        if self._partition and len(self._partition) == len(table.partition_keys):
            # PARTITION (…) is complete: an overwrite without rows empties the partition.
            self._options["dynamic-partition-overwrite"] = "false"

    def run(self) -> int:
        """Write and commit; returns the number of rows."""
        if self._statement.overwrite:
            rows, messages = self._prepare()
            self._overwrite(messages)
            return rows
        return with_retries(self._table, self._append)

    def _append(self) -> int | None:
        """Append; returns the number of rows, None if other commits outdated the written files."""
        table, seen = self._table, self._table.latest_snapshot_id()
        rows, messages = self._prepare()
        committer = TableCommitter(table.catalog_options, table.identifier, self._user)
        with commit_lock(table.location):
            if not table.primary_key or not rows_changed(table, seen):
                committer.commit(0, messages)
                return rows
        committer.abort(messages)
        return None

    def _overwrite(self, messages: list[bytes]) -> None:
        table, options = self._table, self._options
        if messages and shows_at_once(table):
            partition = self._statement.partition
            overwrite(self._java, table, self._user, messages, options, partition)
        else:
            overwrite_table(table, self._user, messages, options, self._partition_values)

    @property
    def _partition_values(self) -> dict[str, Any]:
        return {name: value.as_py() for name, value in self._partition.items()}

    def _prepare(self) -> tuple[int, list[bytes]]:
        table = self._table
        writer = TableWriter(
            table.catalog_options, table.identifier, self._user, table_options=self._options,
            overwrite=self._statement.overwrite, partition=self._partition_values,
        )  # fmt: skip
        rows = 0
        self._progress.part("writing", self.scans.total)

        def batches() -> Iterator[pa.RecordBatch]:
            nonlocal rows
            for part in self.tables():
                rows += part.num_rows
                yield from part.to_batches()

        messages = writer.write_all(batches(), 0)
        return rows, messages

    def tables(self) -> Iterator[pa.Table]:
        """The rows, with the table's columns and types."""
        schema = self._table.arrow_schema
        self.keys.clear()
        with bounded_reader(self._plan, self.scans.open) as reader:
            for batch in reader:
                columns = [
                    pa.repeat(self._partition[name], batch.num_rows)
                    if name in self._partition
                    else column
                    for name, column in zip(schema.names, batch.columns, strict=True)
                ]
                named = pa.Table.from_arrays(columns, names=schema.names)
                rows = conformed(named, schema, self._table.primary_key)
                self.keys.add(rows)
                yield rows


def _value(table: Table, name: str, text: str) -> pa.Scalar:
    field = table.arrow_schema.field(name)
    try:
        return pa.array([text]).cast(field.type)[0]
    except pa.ArrowException:
        raise TableError(
            f"table {table.identifier}: '{text}' is not a value of partition column '{name}', "
            f"which is {field.type}"
        ) from None


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
    spec = session.sink(target, statement.options)
    assert spec is not None
    sink, schema, query_id = spec.open(), spec.arrow_schema, uuid.uuid4().hex
    count = 0

    def read(bar: ProgressLine) -> Generator[pa.RecordBatch, None, None]:
        nonlocal count
        count = 0
        with bounded_reader(plan, Scans(session, plan, bar).open) as reader:
            for batch in reader:
                count += batch.num_rows
                columns = pa.RecordBatch.from_arrays(batch.columns, names=schema.names)
                yield columns.cast(schema)

    def write() -> WrittenBatch:
        writer = sink.writer(query_id, 0, query_id[8:20])
        try:
            with progress() as bar, closing(read(bar)) as batches:
                for batch in batches:
                    writer.write(batch)
            return WrittenBatch(0, writer.prepare())
        finally:
            writer.close()

    if sink.insert is not None:
        with progress() as bar, closing(read(bar)) as batches:
            sink.insert(query_id, batches)
        return count
    committer = sink.committer(query_id)
    try:
        committer.commit(write, lambda: None)
    finally:
        committer.forget()
    return count
