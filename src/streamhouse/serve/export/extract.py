"""Reads all rows of a table or a view as of one snapshot, in batches and in bounded memory."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

from streamhouse.close_matches import nearest
from streamhouse.duckdb_engine import Batches, Limits, bounded_reader
from streamhouse.errors import TableError
from streamhouse.paimon.read.table import Table
from streamhouse.serve.formats.row_formats import RowFormat
from streamhouse.serve.queries.output import OutputTarget
from streamhouse.serve.queries.pinned_tables import PinnedTable
from streamhouse.serve.queries.read_request import RowsRequest
from streamhouse.serve.queries.view_rows import RowsSource, cast_rows
from streamhouse.serve.views.served_view import ServedView
from streamhouse.sql.plan import BoundedQuery, BoundedScan

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from streamhouse.paimon.catalog.warehouse import Warehouse

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
        source = self._source()
        for column in self._columns or ():
            if column not in source.names:
                hint = nearest(column, source.names)
                raise TableError(f"'{self._name}' has no column '{column}'; {hint}")
        pin, pins = source.pin, source.pins
        total = None if pin is None else 0 if pin.snapshot is None else pins.records
        if pin is not None and not _sortable(pin.table):
            names = list(dict.fromkeys(self._columns or source.names))
            read, sql = partial(_unsorted, pin, names), ""
        else:
            plan = self._plan(source)
            read, sql = partial(_query_rows, plan, source), plan.sql
        state = f"{sql}\n{pins.stamp}"
        return Extract(self._name, pins.snapshot, pins.time_ms, total, state, read)

    def _plan(self, source: RowsSource) -> BoundedQuery:
        try:
            return source.plan()
        except TableError:
            self._source().plan()  # A table of a view was just dropped: the error names the view.
            raise

    def _source(self) -> RowsSource:
        columns = None if self._columns is None else tuple(self._columns)
        view, target = ServedView(self._name, self._name), OutputTarget("", RowFormat.JSON, 0, 0)
        request = RowsRequest(view, target, Limits(), columns, as_of=self._as_of)
        return RowsSource(self._warehouse, request, None)


@contextlib.contextmanager
def _unsorted(pin: PinnedTable, names: list[str], on_rows: OnRows) -> Iterator[ExtractedRows]:
    rows = _with_progress(pin.read(names), on_rows)
    yield ExtractedRows(pin.schema(names), rows, False)


@contextlib.contextmanager
def _query_rows(plan: BoundedQuery, source: RowsSource, on_rows: OnRows) -> Iterator[ExtractedRows]:
    """Sort by the primary key in DuckDB, which spills to disk, or run the query of a view."""

    def counting_scanner(scan: BoundedScan) -> tuple[pa.Schema, Batches]:
        schema, read = source.pins.scanner(scan)
        return schema, lambda: _with_progress(read(), on_rows)

    with bounded_reader(plan, counting_scanner) as reader:
        schema = source.schema(reader.schema)
        yield ExtractedRows(schema, cast_rows(reader, schema), True)


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
