"""Feeds of real tables: the initial rows, then exactly the changes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest

from streamhouse.errors import DataLossError, TableError
from streamhouse.serve.feeds.feed import FeedChange
from streamhouse.serve.feeds.table_feed import TableFeed
from streamhouse.sql.plan import Column
from streamhouse.sql.schema_changes import AddColumn, DropColumn, RenameColumn, SetType


def taken(change: FeedChange | None) -> list[tuple[Any, ...]]:
    assert change is not None
    return [tuple(row.values()) for batch in change.batches for row in batch.to_pylist()]


@pytest.fixture
def feeds() -> Iterator[list[TableFeed]]:
    opened: list[TableFeed] = []
    yield opened
    for feed in opened:
        feed.close()


def follow(feeds: list[TableFeed], shop: Any, table: str, *columns: str) -> TableFeed:
    feeds.append(TableFeed(shop.warehouse, table, columns or None))
    return feeds[-1]


def test_first_poll_returns_all_rows_in_key_order(shop: Any, feeds: list[TableFeed]) -> None:
    table = shop.sales()
    snapshot = shop.write(table, ("Peru", 2, 2.5), ("Chad", 1, 1.5))
    feed = follow(feeds, shop, table)
    change = feed.poll()
    assert change is not None
    assert (change.snapshot, change.is_whole_table, change.rows) == (snapshot, True, 2)
    assert abs(change.commit_time_ms / 1000 - time.time()) < 60
    assert taken(change) == [("+I", "Chad", 1, 1.5), ("+I", "Peru", 2, 2.5)]
    assert feed.poll() is None


def test_keyed_table_returns_only_changed_rows(shop: Any, feeds: list[TableFeed]) -> None:
    table = shop.sales()
    shop.write(table, ("Chad", 1, 1.5), ("Mali", None, 3.0), ("Peru", 2, float("nan")))
    feed = follow(feeds, shop, table)
    feed.poll()
    shop.write(table, ("Chad", 2, 1.5), ("Mali", None, 3.0), ("Peru", 2, float("nan")))
    assert taken(feed.poll()) == [("-U", "Chad", 1, 1.5), ("+U", "Chad", 2, 1.5)]
    shop.write(table, ("Mali", None, 3.0), ("Oman", 7, None), kinds=["-D", "+I"])
    assert taken(feed.poll()) == [("-D", "Mali", None, 3.0), ("+I", "Oman", 7, None)]
    assert feed.rows is not None
    assert feed.rows.column("country").to_pylist() == ["Chad", "Oman", "Peru"]


def test_snapshots_between_two_polls_are_skipped(shop: Any, feeds: list[TableFeed]) -> None:
    table = shop.sales()
    shop.write(table, ("Chad", 1, 1.0))
    feed = follow(feeds, shop, table)
    feed.poll()
    for orders in (2, 3, 4):
        last = shop.write(table, ("Chad", orders, 1.0))
    change = feed.poll()
    assert change is not None and change.snapshot == last
    assert taken(change) == [("-U", "Chad", 1, 1.0), ("+U", "Chad", 4, 1.0)]


def test_commit_without_effect_returns_no_rows(shop: Any, feeds: list[TableFeed]) -> None:
    table = shop.sales()
    shop.write(table, ("Chad", 1, 1.0))
    feed = follow(feeds, shop, table)
    feed.poll()
    shop.write(table, ("Chad", 1, 1.0))
    assert taken(feed.poll()) == []


def test_aggregation_table_returns_merged_rows(shop: Any, feeds: list[TableFeed]) -> None:
    options = {
        "merge-engine": "aggregation",
        "fields.orders.aggregate-function": "sum",
        "fields.revenue.aggregate-function": "sum",
    }
    columns = (Column("country", "STRING"), Column("orders", "BIGINT"), Column("revenue", "DOUBLE"))
    table = shop.create("view", columns, ["country"], options)
    shop.write(table, ("Chad", 1, 1.0))
    feed = follow(feeds, shop, table)
    feed.poll()
    shop.write(table, ("Chad", 2, 0.5))
    assert taken(feed.poll()) == [("-U", "Chad", 1, 1.0), ("+U", "Chad", 3, 1.5)]


def test_selected_columns_without_the_key(shop: Any, feeds: list[TableFeed]) -> None:
    table = shop.sales()
    shop.write(table, ("Chad", 1, 1.0))
    feed = follow(feeds, shop, table, "revenue")
    assert taken(feed.poll()) == [("+I", 1.0)]
    shop.write(table, ("Chad", 9, 1.0))
    assert taken(feed.poll()) == []
    shop.write(table, ("Chad", 9, 2.0))
    assert taken(feed.poll()) == [("-U", 1.0), ("+U", 2.0)]


def test_append_table_returns_each_row_once(shop: Any, feeds: list[TableFeed]) -> None:
    table = shop.orders()
    shop.write(table, (1, "nut", Decimal("1.10")))
    feed = follow(feeds, shop, table)
    assert taken(feed.poll()) == [("+I", 1, "nut", Decimal("1.10"))]
    second = shop.write(table, (2, "nut", None))
    shop.write(table, (2, "nut", None), (3, None, Decimal(3)))
    change = feed.poll()
    assert change is not None and change.snapshot == second and change.rows == 2
    assert taken(change) == [("+I", 2, "nut", None)]
    assert taken(feed.poll()) == [("+I", 2, "nut", None), ("+I", 3, None, Decimal(3))]
    assert feed.poll() is None


def test_overwrite_of_append_table_returns_row_changes(shop: Any, feeds: list[TableFeed]) -> None:
    table = shop.orders()
    shop.write(table, (1, "nut", None), (1, "nut", None), (2, "fig", None))
    feed = follow(feeds, shop, table)
    taken(feed.poll())
    shop.overwrite(table, (1, "nut", None), (3, "fig", None))
    changes = taken(feed.poll())
    assert sorted(changes, key=str) == [
        ("+I", 3, "fig", None),
        ("-D", 1, "nut", None),
        ("-D", 2, "fig", None),
    ]
    assert [kind for kind, *_ in changes] == ["-D", "-D", "+I"]


def test_expired_snapshot_of_append_table_is_data_loss(shop: Any, feeds: list[TableFeed]) -> None:
    table = shop.orders()
    shop.write(table, (1, "nut", None))
    feed = follow(feeds, shop, table)
    taken(feed.poll())
    lost = shop.write(table, (2, "nut", None))
    shop.write(table, (3, "nut", None))
    (shop.path / "shop.db" / "orders" / "snapshot" / f"snapshot-{lost}").unlink()
    with pytest.raises(DataLossError, match=f"snapshot {lost} is gone"):
        feed.poll()


@pytest.mark.parametrize("gone", [1, 3])
def test_feed_can_skip_expired_snapshots(shop: Any, feeds: list[TableFeed], gone: int) -> None:
    table = shop.orders()
    shop.write(table, (1, "nut", None))
    reported: list[tuple[int, int]] = []
    feeds.append(TableFeed(shop.warehouse, table, lost=lambda *which: reported.append(which)))
    feed = feeds[-1]
    taken(feed.poll())
    lost = [shop.write(table, (10 + number, "nut", None)) for number in range(gone)]
    left = shop.write(table, (20, "fig", None))
    for one in lost:
        (shop.path / "shop.db" / "orders" / "snapshot" / f"snapshot-{one}").unlink()
    (shop.path / "shop.db" / "orders" / "snapshot" / "EARLIEST").write_text(str(left))
    (shop.path / "shop.db" / "orders" / "snapshot" / "snapshot-1").unlink()
    change = feed.poll()
    assert change is not None and change.snapshot == left
    assert taken(change) == [("+I", 20, "fig", None)]
    assert reported == [(lost[0], lost[-1])]


def test_lost_callback_for_rows_that_expire_before_they_are_read(
    shop: Any, feeds: list[TableFeed]
) -> None:
    table = shop.orders()
    shop.write(table, (1, "nut", None))
    reported: list[tuple[int, int]] = []
    feeds.append(TableFeed(shop.warehouse, table, lost=lambda *which: reported.append(which)))
    feed = feeds[-1]
    taken(feed.poll())
    lost = shop.write(table, (2, "nut", None))
    change = feed.poll()
    for file in (shop.path / "shop.db" / "orders" / "bucket-0").iterdir():
        file.unlink()
    assert taken(change) == [] and reported == [(lost, lost)]


def test_empty_table_returns_nothing_until_its_first_commit(
    shop: Any, feeds: list[TableFeed]
) -> None:
    table = shop.sales()
    feed = follow(feeds, shop, table)
    assert feed.poll() is None
    assert feed.schema.names == ["country", "orders", "revenue"]
    shop.write(table, ("Chad", 1, 1.0))
    change = feed.poll()
    assert change is not None and change.is_whole_table


def test_column_added_while_followed(shop: Any, feeds: list[TableFeed]) -> None:
    from pypaimon import CatalogFactory
    from pypaimon.schema.data_types import AtomicType
    from pypaimon.schema.schema_change import SchemaChange

    table = shop.sales()
    shop.write(table, ("Chad", 1, 1.0), ("Mali", 1, 1.0))
    feed = follow(feeds, shop, table)
    feed.poll()
    catalog = CatalogFactory.create({"warehouse": str(shop.path)})
    catalog.alter_table(table, [SchemaChange.add_column("zip", AtomicType("STRING"))], False)
    shop.write(table, ("Chad", 1, 1.0, "0001"))
    assert taken(feed.poll()) == [("-U", "Chad", 1, 1.0, None), ("+U", "Chad", 1, 1.0, "0001")]


def test_columns_altered_while_followed(shop: Any, feeds: list[TableFeed]) -> None:
    table = shop.sales()
    shop.write(table, ("Chad", 1, 1.0), ("Mali", 1, 1.0))
    feed, some = follow(feeds, shop, table), follow(feeds, shop, table, "orders")
    for one in (feed, some):
        taken(one.poll())
    shop.warehouse.alter_table(
        table, RenameColumn(("orders",), "sold"), SetType(("sold",), "STRING")
    )
    shop.write(table, ("Peru", "7", 1.0))
    assert taken(feed.poll()) == [("+I", "Peru", "7", 1.0)]
    assert taken(some.poll()) == [("+I", "7")]
    assert feed.schema.names == ["country", "sold", "revenue"]
    # Another column of that name is not the one that was.
    shop.warehouse.alter_table(table, DropColumn(("sold",)))
    shop.warehouse.alter_table(table, AddColumn(Column("sold", "INT")))
    shop.write(table, ("Chad", 3.0, 5))
    assert taken(feed.poll()) == [("-U", "Chad", 1.0, None), ("+U", "Chad", 3.0, 5)]
    assert feed.schema.names == ["country", "revenue", "sold"]


def test_table_dropped_while_followed(shop: Any, feeds: list[TableFeed]) -> None:
    table = shop.sales()
    shop.write(table, ("Chad", 1, 1.0))
    feed = follow(feeds, shop, table)
    feed.poll()
    shop.warehouse.drop_table("shop", "sales")
    with pytest.raises(TableError, match="no table 'sales'"):
        feed.poll()


def test_missing_names_suggest_the_nearest(shop: Any) -> None:
    table = shop.sales()
    with pytest.raises(TableError, match="did you mean 'sales'"):
        TableFeed(shop.warehouse, "shop.sale")
    with pytest.raises(TableError, match="no column 'revenu'; did you mean 'revenue'"):
        TableFeed(shop.warehouse, table, ["revenu"])
