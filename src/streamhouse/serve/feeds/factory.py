"""Opens the feed of a served view, whether its source is a table, a branch or a SQL view."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from streamhouse.errors import TableError
from streamhouse.paimon.read.time_travel import parse_as_of, resolve, snapshot_of, table_as_of
from streamhouse.serve.feeds.feed import FeedChange, as_inserts
from streamhouse.serve.feeds.table_feed import TableFeed
from streamhouse.serve.feeds.view_feed import ViewFeed
from streamhouse.serve.views.served_view import definition, hide_definition_errors
from streamhouse.serve.views.shown_table import ShownTable
from streamhouse.serve.views.warehouse_tables import WarehouseTables

if TYPE_CHECKING:
    from streamhouse.duckdb_engine import Limits
    from streamhouse.paimon.catalog.warehouse import Warehouse
    from streamhouse.serve.feeds.feed import Feed, FeedMemory
    from streamhouse.serve.views.served_view import ServedView


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
    feed.kept.memory, feed.limits = memory, limits
    return feed


def open_sql_view(warehouse: Warehouse, name: str) -> ViewFeed | None:
    """Open the feed of the view `database.view`; None if there is no view of that name."""
    tables = WarehouseTables(warehouse)
    if tables.view(tuple(name.split(".", 1))) is None:
        return None
    return ViewFeed(warehouse, name, tables)


def _open(warehouse: Warehouse, view: ServedView) -> Feed:
    if view.filter is None:
        try:
            return TableFeed(warehouse, view.source, view.columns)
        except TableError:
            tables = WarehouseTables(warehouse)
            if tables.view(tuple(view.source.split(".", 1))) is None:
                raise
        if view.columns is None:
            return ViewFeed(warehouse, view.source, tables)
    text = definition(_with_shown_columns(warehouse, view))
    return ViewFeed(warehouse, view.name, WarehouseTables(warehouse), text)


def _with_shown_columns(warehouse: Warehouse, view: ServedView) -> ServedView:
    """The view with the names of its table's columns, if readers do not see all of them."""
    if view.columns is not None:
        return view
    try:
        shown = ShownTable(warehouse.table(view.source))
    except TableError:
        return view  # The source is a view.
    return replace(view, columns=shown.names) if shown.leaves_out else view


class StaticFeed(TableFeed):
    """The rows as of one point in time; the first `poll` returns them, later ones None.

    `text` is a tag, a snapshot id, a time in UTC or a duration such as `5 min ago`. Raises
    `TableError` or `DataLossError`, which name what exists, if there is no such point in time.
    """

    def __init__(self, warehouse: Warehouse, identifier: str, text: str) -> None:
        super().__init__(warehouse, identifier)
        as_of = resolve(self._table, parse_as_of(self._table, text))
        self._record = snapshot_of(self._table, as_of)
        self._table = table_as_of(self._table, as_of)
        self._columns = self._select_columns()

    def poll(self) -> FeedChange | None:
        """All rows as `+I`; None afterwards, and if the table had no snapshot."""
        if self._record is None or self._seen is not None:
            return None
        self._seen = self._record.id
        if self.primary_key:
            self.kept.table = self.state_at(self._record.id)
        rows = self.rows
        if rows is None:
            rows = self._read(self._record.id, self._columns)
        batches = as_inserts(rows).to_batches()
        return FeedChange(
            self._record.id,
            self._record.time_ms,
            is_whole_table=True,
            rows=rows.num_rows,
            batches=batches,
        )

    def _read(self, snapshot: int, columns: Sequence[str]) -> pa.Table:
        # Not by the snapshot id: a tag outlives its snapshot.
        batches = list(self.shown.read(columns))
        return pa.Table.from_batches(batches, self.shown.read_schema(columns))
