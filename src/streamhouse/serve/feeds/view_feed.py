"""A feed of one view: its current rows, then each change; opens the feed of any served view."""

import contextlib
import hashlib
import math
import threading
import time
from dataclasses import replace

import pyarrow as pa

from streamhouse.duckdb_engine import Limits, bounded_reader, run_bounded, warehouse_scanner
from streamhouse.errors import TimeLimitError
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.storage.table_identity import Identity
from streamhouse.serve.admission.fair_queue import SHORT_S
from streamhouse.serve.feeds.feed import Feed, FeedChange, FeedMemory
from streamhouse.serve.feeds.table_feed import TableFeed
from streamhouse.serve.queries.pinned_tables import full_name, is_data
from streamhouse.serve.views.served_view import (
    ServedView,
    WarehouseTables,
    hide_definition_errors,
    planned,
    table_of,
)
from streamhouse.serve.views.shown_table import ShownTable
from streamhouse.sql.plan import BoundedQuery

_DEFINITION_EVERY_S = 1.0


class ViewFeed(Feed):
    """Polls a view: reruns its query whenever one of its tables has a new snapshot.

    A view has no key, so whole rows are compared: removed rows are -D, added rows +I; `primary_key`
    is all columns. The `snapshot` of a change is that of the view's table; of several tables the
    sum of theirs, which increases with each commit. The source of a served view that selects
    columns or rows may also be a table. The constructor and `poll` raise `TableError` or `SqlError`
    if the view, or a table that it reads, is missing.
    """

    def __init__(self, warehouse: Warehouse, view: ServedView) -> None:
        super().__init__(view.name)
        self._warehouse = warehouse
        self._view = view
        self._resolver = WarehouseTables(warehouse)
        self._cancelled = threading.Event()
        self._short = True
        self._snapshots: tuple[int | None, ...] | None = None
        self._identities: dict[str, Identity] = {}
        self._times: dict[str, tuple[int, int]] = {}
        self._defined = self._definition()
        self._definition_read_at = time.monotonic()
        self._plan, self._schema = self._planned()

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    @property
    def primary_key(self) -> tuple[str, ...]:
        return tuple(self._schema.names)

    @property
    def incarnation(self) -> str:
        """A digest that changes with the view's query, or if one of its tables is recreated."""
        digest = hashlib.blake2b(self._plan.sql.encode(), digest_size=16)
        for name, table in self._tables().items():
            digest.update(f"{name} {self._identity_of(name, table).digest}".encode())
        return digest.hexdigest()

    def was_replaced(self, snapshot: int, time_ms: int, immediate: bool = True) -> bool:
        """Whether the view was redefined, or one of its tables was recreated or rolled back.

        Unless `immediate`, the definition is read at most once a second.
        """
        if immediate or time.monotonic() - self._definition_read_at > _DEFINITION_EVERY_S:
            self._definition_read_at = time.monotonic()
            if self._definition() != self._defined:
                return True
        seen = self._times.items()
        return not all(
            self._identities[name].is_unchanged(*commit, immediate) for name, commit in seen
        )

    def resume_after(self, snapshot: int, state: pa.Table | None) -> None:
        """Make the next poll return the difference from `state`."""
        self.kept, self._snapshots = state, ()

    def cancel(self) -> None:
        self._cancelled.set()

    def poll(self) -> FeedChange | None:
        tables = self._tables()
        snapshots = tuple(table.latest_snapshot_id() for table in tables.values())
        if snapshots == self._snapshots:
            return None
        # Picks up a redefinition of the view, and schema changes of its tables.
        self._defined = self._definition()
        self._plan, self._schema = self._planned()
        new = self._computed().cast(self._schema)
        order = [f.name for f in self._schema if not pa.types.is_nested(f.type)]
        new = new.sort_by([(name, "ascending") for name in order]) if order else new
        changes, first = self._replace_state(new, (), self._snapshots is None)
        self._snapshots = snapshots
        snapshot_sum = sum(snapshot or 0 for snapshot in snapshots)
        self._times = self._commit_times(tables, snapshots)
        times = [time_ms for _, time_ms in self._times.values()]
        return FeedChange(
            snapshot_sum, max(times, default=0), first, new.num_rows, changes.to_batches()
        )

    def _computed(self) -> pa.Table:
        """The rows of the view, computed in a slot of the server."""
        slots, limits = self.computations, self.limits
        if slots is None:
            return self._query_rows(limits)
        first, client, cancelled = self._snapshots is None, self.client, self._cancelled
        seconds = math.inf if limits is None or limits.seconds is None else limits.seconds
        if self._short and seconds > SHORT_S:
            with (
                slots.slot(slots.short, client, cancelled, first),
                contextlib.suppress(TimeLimitError),
            ):
                return self._query_rows(replace(limits or Limits(), seconds=SHORT_S))
        with slots.slot(slots.long, client, cancelled, first):
            began = time.monotonic()
            rows = self._query_rows(limits)
        self._short = time.monotonic() - began < SHORT_S
        return rows

    def _query_rows(self, limits: Limits | None) -> pa.Table:
        cancelled = self._cancelled
        with bounded_reader(self._plan, self._warehouse, limits, cancelled=cancelled) as reader:
            return self.memory.collect(reader, reader.schema, self.identifier)

    def _commit_times(
        self, tables: dict[str, Table], snapshots: tuple[int | None, ...]
    ) -> dict[str, tuple[int, int]]:
        """The latest snapshot and its commit time, for each table that has one."""
        commits = {}
        for (name, table), snapshot in zip(tables.items(), snapshots, strict=True):
            self._identity_of(name, table)
            if snapshot is not None:
                commits[name] = (snapshot, table.snapshot(snapshot).time_ms)
        return commits

    def _identity_of(self, name: str, table: Table) -> Identity:
        if name not in self._identities:
            self._identities[name] = Identity(table)
        return self._identities[name]

    def _tables(self) -> dict[str, Table]:
        names = [full_name(scan) for scan in self._plan.scans if is_data(scan)]
        return {name: self._warehouse.table(name) for name in dict.fromkeys(names)}

    def _definition(self) -> str | None:
        """The stored SQL text of the view; None if columns or rows of its source are selected."""
        if self._view.columns is not None or self._view.filter is not None:
            return None
        return self._resolver.stored_view(self._view.source).query

    def _planned(self) -> tuple[BoundedQuery, pa.Schema]:
        plan = planned(self._view, self._resolver)
        scanner = warehouse_scanner(self._warehouse)
        empty = run_bounded(plan, lambda scan: (scanner(scan)[0], lambda: iter(())))
        fields = [field.with_nullable(True) for field in empty.schema]
        return plan, pa.schema(fields)


def open_served_view(
    warehouse: Warehouse,
    view: ServedView,
    memory: FeedMemory | None = None,
    limits: Limits | None = None,
) -> Feed:
    """Open a feed over the served columns and rows of a table, a branch or a view.

    `memory` counts and limits the rows that the feed keeps, `limits` are those of each computation.
    """
    with hide_definition_errors(warehouse, view):
        feed = _open(warehouse, view)
    feed.memory, feed.limits = memory or FeedMemory(), limits
    return feed


def open_sql_view(warehouse: Warehouse, name: str) -> ViewFeed | None:
    """Open the feed of the view `database.view`; None if there is no view of that name."""
    if WarehouseTables(warehouse).view(tuple(name.split(".", 1))) is None:
        return None
    return ViewFeed(warehouse, ServedView(name, name))


def _open(warehouse: Warehouse, view: ServedView) -> Feed:
    table = table_of(warehouse, view.source)
    if table is not None and view.filter is None:
        return TableFeed(warehouse, view.source, view.columns)
    if table is not None and view.columns is None and ShownTable(table).leaves_out:
        view = replace(view, columns=ShownTable(table).names)
    return ViewFeed(warehouse, view)
