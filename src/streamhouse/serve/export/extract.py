"""Reads all rows of a table or a view as of one snapshot, in batches and in bounded memory."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

from streamhouse.duckdb_engine import Batches, Scanner, bounded_reader
from streamhouse.errors import TableError
from streamhouse.paimon.read.table import Table
from streamhouse.serve.queries.pinned_tables import PinnedTable, PinnedTables
from streamhouse.serve.views.warehouse_tables import WarehouseTables
from streamhouse.sql.batch.bounded_query import analyze_bounded
from streamhouse.sql.plan import BoundedQuery, BoundedScan, TableInfo
from streamhouse.sql.statements.create_view import ticked
from streamhouse.sql.syntax import Query, TextPosition

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from streamhouse.paimon.catalog.warehouse import Warehouse
    from streamhouse.sql.plan import ViewInfo

OnRows: TypeAlias = Callable[[int], None]
"""Callback with the number of rows read since the last call; it may raise to stop the reading."""


@dataclass(frozen=True)
class ExtractedRows:
    """A stream of batches. `sorted`: all input is read before the first batch is returned."""

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]
    sorted: bool


@dataclass(frozen=True)
class Extract:
    """The rows of `name` as of one point in time.

    `snapshot` and `time_ms` (the commit time in milliseconds since 1970) are None before the first
    commit. For a view they are those of its table; for a view of several tables the sum of the
    snapshot ids, which increases with each commit, and the latest time. `total` is the approximate
    number of rows to read, None if unknown. Extracts of one name with the same `state` have the
    same rows. `open` starts the reading.
    """

    name: str
    snapshot: int | None
    time_ms: int | None
    total: int | None
    state: str
    open: Callable[[OnRows], AbstractContextManager[ExtractedRows]] = field(
        repr=False, compare=False
    )


class Extractor:
    """Makes extracts of a table, a branch (`db.t$branch_b`) or a view; not thread-safe.

    `columns` are the wanted columns, by default all. `as_of` is a tag, a snapshot id, a time in UTC
    or a duration such as `5 min ago`, by default now; each table of a view is read as of that point
    in time. The rows of a table with a primary key are in the key's order, those of a view in its
    query's.
    """

    def __init__(
        self,
        warehouse: Warehouse,
        name: str,
        columns: Sequence[str] | None = None,
        as_of: str | None = None,
    ) -> None:
        self._warehouse = warehouse
        self._tables = WarehouseTables(warehouse)
        self._name = name
        self._columns = columns
        self._as_of = as_of

    def pin(self) -> Extract:
        """Pin the current snapshots, or those of the point in time.

        Raises `TableError`, `SqlError` or `DataLossError` if something is missing; the message
        names what exists instead.
        """
        if "." not in self._name:
            raise TableError(f"'{self._name}' names no database; write database.table")
        pins = PinnedTables(self._warehouse, self._as_of)
        try:
            pin = pins.get(self._name)
        except TableError:
            view = self._tables.view(tuple(self._name.split(".", 1)))
            if view is None:
                raise
            return self._of_view(view, pins)
        return self._of_table(pin, pins)

    def _of_table(self, pin: PinnedTable, pins: PinnedTables) -> Extract:
        names = list(pin.shown.names if self._columns is None else self._columns)
        schema, snapshot = pin.schema(names), pin.snapshot
        read = partial(_sorted_by_key if _sortable(pin.table) else _unsorted, pin, schema)
        total = 0 if snapshot is None else snapshot.total_record_count
        return Extract(self._name, pins.snapshot, pins.time_ms, total, pins.stamp, read)

    def _of_view(self, view: ViewInfo, pins: PinnedTables) -> Extract:
        plan = self._plan(view)
        try:
            pins.pin_all(plan.scans)
        except TableError:
            self._plan(view)  # A table was just dropped: this raises the error about the view.
            raise
        if self._as_of is not None and self._as_of.isdigit() and len(pins.tables) > 1:
            raise TableError(
                f"'{self._name}' is a view of several tables ({', '.join(pins.tables)}), whose "
                f"snapshots {self._as_of} are of different times; give a time or a tag"
            )
        state = f"{view.query}\n{pins.stamp}"
        read = partial(_query_rows, plan, pins.scanner)
        return Extract(self._name, pins.snapshot, pins.time_ms, None, state, read)

    def _plan(self, view: ViewInfo) -> BoundedQuery:
        name = ".".join(ticked(part) for part in view.name[-2:])
        items = "*" if self._columns is None else ", ".join(map(ticked, self._columns))
        query = Query(f"SELECT {items} FROM {name}", TextPosition(1, 1))
        return analyze_bounded(query, self._tables)


@contextlib.contextmanager
def _unsorted(pin: PinnedTable, schema: pa.Schema, on_rows: OnRows) -> Iterator[ExtractedRows]:
    yield ExtractedRows(schema, _with_progress(pin.read(schema.names), on_rows), False)


@contextlib.contextmanager
def _sorted_by_key(pin: PinnedTable, schema: pa.Schema, on_rows: OnRows) -> Iterator[ExtractedRows]:
    """Sort by the primary key in DuckDB, which spills to disk."""
    table, key = pin.table, pin.table.primary_key
    columns = list(dict.fromkeys((*schema.names, *key)))
    info = TableInfo((table.database, table.name), table.columns)
    scan = BoundedScan(info, "scan_0", tuple(columns))
    items, order = (", ".join(map(_ansi, names)) for names in (schema.names, key))
    sql = f"SELECT {items} FROM scan_0 ORDER BY {order}"
    plan = BoundedQuery((scan,), sql, tuple(schema.names))

    def scanner(_: BoundedScan) -> tuple[pa.Schema, Batches]:
        return pin.schema(columns), lambda: pin.read(columns)

    with _query_rows(plan, scanner, on_rows) as rows:
        yield ExtractedRows(schema, (batch.cast(schema) for batch in rows.batches), True)


@contextlib.contextmanager
def _query_rows(plan: BoundedQuery, scanner: Scanner, on_rows: OnRows) -> Iterator[ExtractedRows]:
    def counting_scanner(scan: BoundedScan) -> tuple[pa.Schema, Batches]:
        schema, read = scanner(scan)
        return schema, lambda: _with_progress(read(), on_rows)

    with bounded_reader(plan, counting_scanner) as reader:
        yield ExtractedRows(reader.schema, iter(reader), True)


def _sortable(table: Table) -> bool:
    """Whether the table can be sorted without losing digits.

    It needs a primary key. DuckDB's timestamps with time zone end at microseconds.
    """
    kinds = [item.type for item in table.arrow_schema]
    loses_digits = any(
        pa.types.is_timestamp(kind) and kind.unit == "ns" and kind.tz for kind in kinds
    )
    return bool(table.primary_key) and not loses_digits


def _with_progress(batches: Iterator[pa.RecordBatch], on_rows: OnRows) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        on_rows(batch.num_rows)
        yield batch


def _ansi(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
