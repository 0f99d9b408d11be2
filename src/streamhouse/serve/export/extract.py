"""All rows of a table or a view as of one moment, in batches, however many they are."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

from streamhouse.engine import Batches, Scanner, bounded_reader
from streamhouse.errors import TableError
from streamhouse.paimon.read.table import Table
from streamhouse.serve.queries.pinned_tables import Pin, Pins
from streamhouse.serve.views.warehouse_tables import WarehouseTables
from streamhouse.sql.batch.bounded_query import analyze_bounded
from streamhouse.sql.plan import BoundedQuery, BoundedScan, Position, Query, TableInfo

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from streamhouse.paimon.catalog.warehouse import Warehouse
    from streamhouse.sql.plan import ViewInfo

Tick: TypeAlias = Callable[[int], None]
"""Is told how many more rows of the tables were read; may raise, to end the reading."""


@dataclass(frozen=True)
class Rows:
    """Rows as they are read. `sorted`: all were read before the first batch comes."""

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]
    sorted: bool


@dataclass(frozen=True)
class Extract:
    """The rows of `name` at one moment.

    `snapshot` and `time_ms` (of its commit, since 1970) are None where nothing was committed yet.
    Those of a view are its table's; of several tables the sum of the snapshots, which grows as
    well, and the latest time. `total` is about how many rows there are to read, if anybody knows.
    Extracts of one table with the same `state` have the same rows.
    """

    name: str
    snapshot: int | None
    time_ms: int | None
    total: int | None
    state: str
    open: Callable[[Tick], AbstractContextManager[Rows]] = field(repr=False, compare=False)


class Extracts:
    """Looks at a table, a branch (`db.t$branch_b`) or a view; not for several threads at once.

    `columns` are those wanted, all by default. `moment` is a tag, a snapshot's number, a time in
    UTC or a duration such as `5 min ago`, by default now; of a view each of its tables is read as
    of then. A table with a primary key gives its rows in the key's order, a view in that of its
    query.
    """

    def __init__(
        self,
        warehouse: Warehouse,
        name: str,
        columns: Sequence[str] | None = None,
        moment: str | None = None,
    ) -> None:
        self._warehouse = warehouse
        self._tables = WarehouseTables(warehouse)
        self._name = name
        self._columns = columns
        self._moment = moment

    def look(self) -> Extract:
        """What is there now, or was at the moment.

        `TableError`, `SqlError` and `DataLossError` for what is missing say what there is.
        """
        if "." not in self._name:
            raise TableError(f"'{self._name}' names no database; write database.table")
        pins = Pins(self._warehouse, self._moment)
        try:
            found = pins.take(self._name)
        except TableError:
            view = self._tables.view(tuple(self._name.split(".", 1)))
            if view is None:
                raise
            return self._of_view(view, pins)
        return self._of_table(found, pins)

    def _of_table(self, found: Pin, pins: Pins) -> Extract:
        names = found.table.arrow_schema.names if self._columns is None else list(self._columns)
        schema, snapshot = found.schema(names), found.snapshot
        read = partial(_in_order if _sortable(found.table) else _as_read, found, schema)
        total = 0 if snapshot is None else snapshot.total_record_count
        return Extract(self._name, pins.snapshot, pins.time_ms, total, pins.stamp, read)

    def _of_view(self, view: ViewInfo, pins: Pins) -> Extract:
        plan = self._plan(view)
        try:
            pins.hold(plan.scans)
        except TableError:
            self._plan(view)  # Of a table that went just now the view tells in its own words.
            raise
        if self._moment is not None and self._moment.isdigit() and len(pins.held) > 1:
            raise TableError(
                f"'{self._name}' is a view of several tables ({', '.join(pins.held)}), of which "
                f"snapshot {self._moment} means another moment each; give a time or a tag"
            )
        state = f"{view.query}\n{pins.stamp}"
        read = partial(_answered, plan, pins.scanner)
        return Extract(self._name, pins.snapshot, pins.time_ms, None, state, read)

    def _plan(self, view: ViewInfo) -> BoundedQuery:
        name = ".".join(_quoted(part) for part in view.name[-2:])
        items = "*" if self._columns is None else ", ".join(map(_quoted, self._columns))
        query = Query(f"SELECT {items} FROM {name}", Position(1, 1))
        return analyze_bounded(query, self._tables)


@contextlib.contextmanager
def _as_read(found: Pin, schema: pa.Schema, tick: Tick) -> Iterator[Rows]:
    yield Rows(schema, _told(found.read(schema.names), tick), False)


@contextlib.contextmanager
def _in_order(found: Pin, schema: pa.Schema, tick: Tick) -> Iterator[Rows]:
    """Sorted by the key, on the disk where the rows do not fit into memory."""
    table, key = found.table, found.table.primary_key
    columns = list(dict.fromkeys((*schema.names, *key)))
    info = TableInfo((table.database, table.name), table.columns)
    scan = BoundedScan(info, "scan_0", tuple(columns))
    items, order = (", ".join(map(_ansi, names)) for names in (schema.names, key))
    sql = f"SELECT {items} FROM scan_0 ORDER BY {order}"
    plan = BoundedQuery((scan,), sql, tuple(schema.names))

    def scanner(_: BoundedScan) -> tuple[pa.Schema, Batches]:
        return found.schema(columns), lambda: found.read(columns)

    with _answered(plan, scanner, tick) as rows:
        yield Rows(schema, (batch.cast(schema) for batch in rows.batches), True)


@contextlib.contextmanager
def _answered(plan: BoundedQuery, scanner: Scanner, tick: Tick) -> Iterator[Rows]:
    def told(scan: BoundedScan) -> tuple[pa.Schema, Batches]:
        schema, read = scanner(scan)
        return schema, lambda: _told(read(), tick)

    with bounded_reader(plan, told) as reader:
        yield Rows(reader.schema, iter(reader), True)


def _sortable(table: Table) -> bool:
    """Whether a sort keeps all values: the engine's zoned times end at the microsecond."""
    kinds = [one.type for one in table.arrow_schema]
    cut = any(pa.types.is_timestamp(one) and one.unit == "ns" and one.tz for one in kinds)
    return bool(table.primary_key) and not cut


def _told(batches: Iterator[pa.RecordBatch], tick: Tick) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        tick(batch.num_rows)
        yield batch


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _ansi(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
