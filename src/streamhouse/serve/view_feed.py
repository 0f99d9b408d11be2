"""A view as what it is now, and then as each change of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from streamhouse.engine import run_bounded, warehouse_scanner
from streamhouse.serve.feed import Change, Feed, with_kind
from streamhouse.sql.analysis import analyze_bounded
from streamhouse.sql.plan import BoundedQuery, Position, Query

if TYPE_CHECKING:
    from streamhouse.paimon.catalog import Warehouse
    from streamhouse.sql.plan import Resolver


class ViewFeed(Feed):
    """Follows a view: its query is run again whenever one of its tables has a new snapshot.

    A view has no key, so its rows are compared as a whole: rows that went are -D, rows that came
    +I; `primary_key` is all columns. A change's `snapshot` is that of the view's table; of several
    tables the sum of theirs, which grows as well. `TableError` and `SqlError` when the view or what
    it reads is missing, here and in `poll`.
    """

    def __init__(self, warehouse: Warehouse, identifier: str, resolver: Resolver) -> None:
        self._warehouse = warehouse
        self._resolver = resolver
        self._differ = None
        self._rows = None
        self._states: tuple[int | None, ...] | None = None
        self.identifier = identifier
        self._plan, self._schema = self._planned()

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    @property
    def primary_key(self) -> tuple[str, ...]:
        return tuple(self._schema.names)

    @property
    def rows(self) -> pa.Table | None:
        return self._rows

    def poll(self) -> Change | None:
        tables = [self._warehouse.table(name) for name in self._names()]
        states = tuple(table.latest_snapshot_id() for table in tables)
        if states == self._states:
            return None
        # Another view of that name, or other columns beneath it, show themselves here.
        self._plan, self._schema = self._planned()
        new = run_bounded(self._plan, self._warehouse).cast(self._schema)
        order = [f.name for f in self._schema if not pa.types.is_nested(f.type)]
        new = new.sort_by([(name, "ascending") for name in order]) if order else new
        old, self._rows, first = self._rows, new, self._states is None
        self._states = states
        if first or old is None or old.schema != new.schema:
            changes, first = with_kind(new, "+I"), True
        else:
            changes = self._compare().by_row(old, new)
        number = sum(state or 0 for state in states)
        times = [
            table.snapshot(state).time_ms
            for table, state in zip(tables, states, strict=True)
            if state is not None
        ]
        return Change(number, max(times, default=0), first, new.num_rows, changes.to_batches())

    def _names(self) -> list[str]:
        names = [".".join(scan.table.name[-2:]) for scan in self._plan.scans]
        return list(dict.fromkeys(name for name in names if "$" not in name or "$branch_" in name))

    def _planned(self) -> tuple[BoundedQuery, pa.Schema]:
        name = ".".join(f"`{part}`" for part in self.identifier.split(".", 1))
        plan = analyze_bounded(Query(f"SELECT * FROM {name}", Position(1, 1)), self._resolver)
        scanner = warehouse_scanner(self._warehouse)
        empty = run_bounded(plan, lambda scan: (scanner(scan)[0], lambda: iter(())))
        fields = [field.with_nullable(True) for field in empty.schema]
        return plan, pa.schema(fields)
