"""Feeds of views: the current rows, then exactly the changes."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import pytest
from rich.console import Console
from tests.unit.serve.test_feed import taken

from streamhouse.cli.table_view import TableView
from streamhouse.errors import SqlError
from streamhouse.paimon.catalog.views import Views
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.serve.feeds.view_feed import ViewFeed
from streamhouse.serve.views.served_view import ServedView
from streamhouse.sql.plan import Column, ViewInfo

TOP = "SELECT country, orders * 2 AS twice FROM `shop`.`sales` WHERE orders > 1"
PAIRS = "SELECT a.country AS a, b.country AS b FROM shop.big a JOIN shop.sales b ON a.twice = 4"


def keep(warehouse: Warehouse, name: str, query: str, *columns: str) -> None:
    made = tuple(Column(column, "STRING") for column in columns)
    Views(warehouse).create(ViewInfo(("shop", name), made, query))


def big_sales(shop: Any) -> ServedView:
    """A view over sales, with the row of Peru."""
    shop.sales()
    keep(shop.warehouse, "big", TOP, "country", "twice")
    shop.write("shop.sales", ("Peru", 2, 1.0))
    return ServedView("shop.big", "shop.big")


@pytest.fixture
def shop_with_views(shop: Any) -> Any:
    shop.sales()
    keep(shop.warehouse, "big", TOP, "country", "twice")
    keep(shop.warehouse, "pairs", PAIRS, "a", "b")
    return shop


@pytest.fixture
def feed(shop_with_views: Any) -> Iterator[ViewFeed]:
    warehouse = shop_with_views.warehouse
    made = ViewFeed(warehouse, ServedView("shop.big", "shop.big"))
    yield made
    made.close()


def test_rows_then_changes(shop_with_views: Any, feed: ViewFeed) -> None:
    assert taken(feed.poll()) == []
    table = "shop.sales"
    shop_with_views.write(table, ("Peru", 2, 1.0), ("Chad", 1, 1.0))
    assert taken(feed.poll()) == [("+I", "Peru", 4)]
    last = shop_with_views.write(table, ("Peru", 3, 1.0), ("Chad", 5, 1.0))
    change = feed.poll()
    assert change is not None and (change.snapshot, change.rows) == (last, 2)
    assert taken(change) == [("-D", "Peru", 4), ("+I", "Chad", 10), ("+I", "Peru", 6)]
    assert feed.rows is not None and feed.rows.column("country").to_pylist() == ["Chad", "Peru"]
    shop_with_views.write(table, ("Mali", 1, 1.0))
    assert taken(feed.poll()) == []
    assert feed.poll() is None


def test_view_of_views_and_tables(shop_with_views: Any) -> None:
    warehouse = shop_with_views.warehouse
    shop_with_views.write("shop.sales", ("Peru", 2, 1.0))
    feed = ViewFeed(warehouse, ServedView("shop.pairs", "shop.pairs"))
    assert taken(feed.poll()) == [("+I", "Peru", "Peru")]
    feed.close()


def test_redefined_view(shop_with_views: Any, feed: ViewFeed) -> None:
    shop_with_views.write("shop.sales", ("Peru", 2, 1.0))
    feed.poll()
    keep(shop_with_views.warehouse, "big", "SELECT revenue FROM shop.sales", "revenue")
    shop_with_views.write("shop.sales", ("Peru", 2, 7.0))
    change = feed.poll()
    assert change is not None and change.is_whole_table
    assert taken(change) == [("+I", 7.0)]
    keep(shop_with_views.warehouse, "big", "SELECT nosuch FROM shop.sales", "nosuch")
    shop_with_views.write("shop.sales", ("Peru", 2, 8.0))
    with pytest.raises(SqlError, match="there is no column 'nosuch'"):
        feed.poll()


def test_a_view_with_a_column_named_rowkind_is_drawn(shop_with_views: Any) -> None:
    shop, warehouse = shop_with_views, shop_with_views.warehouse
    keep(warehouse, "kinds", "SELECT country AS rowkind, orders FROM shop.sales", "rowkind", "n")
    feed = ViewFeed(warehouse, ServedView("shop.kinds", "shop.kinds"))
    view = TableView(feed)
    for orders in (2, 3):
        shop.write("shop.sales", ("Peru", orders, 1.0))
        change = feed.poll()
        assert change is not None and view.apply(change)
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(view.render(height=20))
    drawn = console.export_text()
    assert "Peru" in drawn and "removed: Peru/2" in drawn
    feed.close()
