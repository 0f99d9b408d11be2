"""All rows of a table or a view as of one moment, in batches, however many they are."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

from streamhouse.engine import Batches, bounded_reader
from streamhouse.errors import TableError
from streamhouse.paimon.table import Table
from streamhouse.paimon.travel import named, pinned, record, settled
from streamhouse.serve.warehouse_tables import WarehouseTables
from streamhouse.sql.analysis import analyze_bounded
from streamhouse.sql.moment import split_options
from streamhouse.sql.plan import AsOf, BoundedQuery, BoundedScan, Position, Query, TableInfo

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from streamhouse.paimon.catalog import Warehouse
    from streamhouse.paimon.snapshots import Snapshot
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
    state: tuple[object, ...]
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
        try:
            found = self._held(self._name)
        except TableError:
            view = self._tables.view(tuple(self._name.split(".", 1)))
            if view is None:
                raise
            return self._of_view(view)
        return self._of_table(found)

    def _held(self, name: str) -> _Held:
        table = self._warehouse.table(name)
        if self._moment is None:
            return _Held(table, record(table, settled(table, AsOf())), False)
        place = settled(table, named(table, self._moment))
        return _Held(pinned(table, place), record(table, place), True)

    def _of_table(self, found: _Held) -> Extract:
        table, snapshot = found.table, found.snapshot
        columns = table.arrow_schema.names if self._columns is None else list(self._columns)
        schema = table.read_schema(columns)
        read = partial(_in_order if _sortable(table) else _as_read, found, schema)
        return Extract(
            self._name,
            None if snapshot is None else snapshot.id,
            None if snapshot is None else snapshot.time_ms,
            0 if snapshot is None else snapshot.total_record_count,
            (table.location, schema, found.state),
            read,
        )

    def _of_view(self, view: ViewInfo) -> Extract:
        plan = self._plan(view)
        names = dict.fromkeys(_full(scan) for scan in plan.scans if _is_data(scan))
        self._check_moment(list(names))
        tables = {name: self._held(name) for name in names}
        there = [one.snapshot for one in tables.values() if one.snapshot is not None]
        return Extract(
            self._name,
            sum(one.id for one in there) if there else None,
            max((one.time_ms for one in there), default=None),
            None,
            (view.query, *(one.state for one in tables.values())),
            partial(self._view_rows, plan, tables),
        )

    def _plan(self, view: ViewInfo) -> BoundedQuery:
        name = ".".join(_quoted(part) for part in view.name[-2:])
        items = "*" if self._columns is None else ", ".join(map(_quoted, self._columns))
        query = Query(f"SELECT {items} FROM {name}", Position(1, 1))
        return analyze_bounded(query, self._tables)

    def _check_moment(self, names: Sequence[str]) -> None:
        if self._moment is not None and self._moment.isdigit() and len(names) > 1:
            raise TableError(
                f"'{self._name}' is a view of several tables ({', '.join(names)}), of which "
                f"snapshot {self._moment} means another moment each; give a time or a tag"
            )

    @contextlib.contextmanager
    def _view_rows(
        self, plan: BoundedQuery, tables: dict[str, _Held], tick: Tick
    ) -> Iterator[Rows]:
        def scanner(scan: BoundedScan) -> tuple[pa.Schema, Batches]:
            options, hinted = split_options(scan.options)
            columns = list(scan.columns)
            if scan.as_of or hinted or not _is_data(scan):
                moment = scan.as_of or hinted
                other = self._warehouse.readable(_full(scan), moment, options, pin=True)
                return other.read_schema(columns), lambda: other.read(columns=columns)
            found = tables[_full(scan)].with_options(options)
            return found.table.read_schema(columns), lambda: _told(found.read(columns), tick)

        with bounded_reader(plan, scanner) as reader:
            yield Rows(reader.schema, iter(reader), True)


@dataclass(frozen=True)
class _Held:
    """A table that is read as of one snapshot; `then` with the columns that it had then."""

    table: Table
    snapshot: Snapshot | None
    then: bool

    @property
    def state(self) -> tuple[object, ...]:
        """Tells the snapshot also from that of a table of the same name made later."""
        one = self.snapshot
        return () if one is None else (one.id, one.time_ms, one.commit_user, self.table.schema_id)

    def with_options(self, options: dict[str, str]) -> _Held:
        return _Held(self.table.copy(options), self.snapshot, self.then) if options else self

    def read(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        if self.snapshot is None:
            return iter(())
        if self.then:
            return self.table.read(columns=columns)
        return self.table.read(columns=columns, snapshot=self.snapshot.id)


@contextlib.contextmanager
def _as_read(found: _Held, schema: pa.Schema, tick: Tick) -> Iterator[Rows]:
    yield Rows(schema, _told(found.read(schema.names), tick), False)


@contextlib.contextmanager
def _in_order(found: _Held, schema: pa.Schema, tick: Tick) -> Iterator[Rows]:
    """Sorted by the key on the disk where the rows do not fit into memory."""
    table, key = found.table, found.table.primary_key
    columns = list(dict.fromkeys((*schema.names, *key)))
    info = TableInfo((table.database, table.name), table.columns)
    scan = BoundedScan(info, "scan_0", tuple(columns))
    items, order = (", ".join(map(_ansi, names)) for names in (schema.names, key))
    plan = BoundedQuery(
        (scan,), f"SELECT {items} FROM scan_0 ORDER BY {order}", tuple(schema.names)
    )

    def scanner(_: BoundedScan) -> tuple[pa.Schema, Batches]:
        return table.read_schema(columns), lambda: _told(found.read(columns), tick)

    with bounded_reader(plan, scanner) as reader:
        yield Rows(schema, (batch.cast(schema) for batch in reader), True)


def _sortable(table: Table) -> bool:
    """Whether a sort keeps all values: the engine's zoned times end at the microsecond."""
    kinds = [one.type for one in table.arrow_schema]
    cut = any(pa.types.is_timestamp(one) and one.unit == "ns" and one.tz for one in kinds)
    return bool(table.primary_key) and not cut


def _told(batches: Iterator[pa.RecordBatch], tick: Tick) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        tick(batch.num_rows)
        yield batch


def _full(scan: BoundedScan) -> str:
    return ".".join(scan.table.name[-2:])


def _is_data(scan: BoundedScan) -> bool:
    """Whether a scan is of a table or a branch, not of a system table."""
    name = scan.table.name[-1]
    return "$" not in name.replace("$branch_", "", 1)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _ansi(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
