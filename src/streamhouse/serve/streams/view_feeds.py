"""Opens the feed of a served view, whether its source is a table, a branch or a SQL view."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamhouse.errors import TableError
from streamhouse.serve.feeds.table_feed import Feed
from streamhouse.serve.feeds.view_feed import ViewFeed
from streamhouse.serve.views.definition import definition, hidden_errors
from streamhouse.serve.views.warehouse_tables import WarehouseTables

if TYPE_CHECKING:
    from streamhouse.paimon.catalog.warehouse import Warehouse
    from streamhouse.serve.streams.memory import Memory
    from streamhouse.serve.views.served_view import ServedView


def open_view(warehouse: Warehouse, view: ServedView, memory: Memory | None = None) -> Feed:
    """Open a feed over the served columns and rows of a table, a branch or a view.

    `memory` counts and limits the rows that the feed keeps.
    """
    with hidden_errors(warehouse, view):
        feed = _opened(warehouse, view)
    feed.memory = memory
    return feed


def _opened(warehouse: Warehouse, view: ServedView) -> Feed:
    tables = WarehouseTables(warehouse)
    if view.filter is None:
        try:
            return Feed(warehouse, view.source, view.columns)
        except TableError:
            if tables.view(tuple(view.source.split(".", 1))) is None:
                raise
        if view.columns is None:
            return ViewFeed(warehouse, view.source, tables)
    return ViewFeed(warehouse, view.name, tables, definition(view))
