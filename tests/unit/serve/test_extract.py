"""All rows of tables and views as of one point in time."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from tests.unit.serve.test_view_feed import keep

from streamhouse.errors import DataLossError, SqlError, TableError
from streamhouse.paimon.catalog.table_declaration import TableDeclaration
from streamhouse.serve.export_files import Extract
from streamhouse.serve.queries.pinned_tables import PinnedTables
from streamhouse.sql.plan import Column
from streamhouse.sql.schema_changes import AddColumn


def rows(extract: Extract, tick: Callable[[int], None] = lambda rows: None) -> list[Any]:
    with extract.open(tick) as (schema, found):
        batches = list(found)
        assert all(batch.schema.names == schema.names for batch in batches)
        return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


def look(shop: Any, name: str, *columns: str, as_of: str | None = None) -> Extract:
    return Extract(shop.warehouse, name, columns or None, as_of)


def test_rows_are_sorted_by_primary_key(shop: Any) -> None:
    columns = (Column("a", "STRING"), Column("n", "INT"), Column("v", "DECIMAL(9, 2)"))
    table = shop.create("pairs", columns, ["a", "n"], {"bucket": "4"})
    given = [(word, number, None) for word in ("Z", "a", "é", "") for number in (3, -1, 20)]
    last = shop.write(table, *given)
    found = look(shop, table)
    assert (found.snapshot, found.total) == (last, 12)
    assert rows(found) == sorted(given)
    assert rows(look(shop, table, "v", "n")) == [(None, n) for _, n, _ in sorted(given)]


def test_extract_is_pinned_to_its_snapshot(shop: Any) -> None:
    table = shop.sales()
    first = shop.write(table, ("Peru", 2, 2.5), ("Chad", 1, 1.5))
    found = look(shop, table)
    shop.write(table, ("Chad", 7, 7.5))
    assert found.snapshot == first
    assert found.time_ms == shop.warehouse.table(table).snapshot(first).time_ms
    assert rows(found) == [("Chad", 1, 1.5), ("Peru", 2, 2.5)]
    assert rows(found) == rows(found)


def test_state_changes_only_with_the_rows(shop: Any) -> None:
    table = shop.sales()
    pin = partial(Extract, shop.warehouse, table)
    empty = pin()
    assert (empty.snapshot, empty.time_ms, rows(empty)) == (None, None, [])
    assert pin().state == empty.state
    shop.write(table, ("Chad", 1, 1.5))
    one = pin()
    assert one.state != empty.state and pin().state == one.state
    shop.warehouse.alter_table(table, AddColumn(Column("city", "STRING")))
    wider = pin()
    assert wider.state != one.state
    assert rows(wider) == [("Chad", 1, 1.5, None)]
    shop.warehouse.drop_table("shop", "sales")
    shop.sales()
    shop.write(table, ("Chad", 1, 1.5))
    assert pin().state not in (one.state, wider.state)


def test_append_tables_and_branches(shop: Any) -> None:
    table = shop.orders()
    shop.write(table, (2, "nut", None), (1, "fig", None))
    shop.tag(table, "then", 1)
    shop.branch(table, "b", "then")
    shop.write(table, (3, "nut", None))
    assert sorted(rows(look(shop, table, "id"))) == [(1,), (2,), (3,)]
    assert sorted(rows(look(shop, f"{table}$branch_b", "id"))) == [(1,), (2,)]


def test_time_travel(shop: Any) -> None:
    table = shop.sales()
    first = shop.write(table, ("Chad", 1, 1.5))
    shop.tag(table, "then", first)
    shop.warehouse.alter_table(table, AddColumn(Column("city", "STRING")))
    shop.write(table, ("Chad", 2, 1.5, "Abéché"))
    time_ms = shop.warehouse.table(table).snapshot(first).time_ms
    when = datetime.datetime.fromtimestamp(time_ms / 1000, datetime.UTC)
    for as_of in ("1", "then", when.isoformat(timespec="milliseconds")):
        found = look(shop, table, as_of=as_of)
        assert (found.snapshot, rows(found)) == (first, [("Chad", 1, 1.5)])
    (shop.path / "shop.db" / "sales" / "snapshot" / "snapshot-1").unlink()
    assert rows(look(shop, table, as_of="then")) == [("Chad", 1, 1.5)]
    with pytest.raises(DataLossError, match="snapshot 1 is gone"):
        look(shop, table, as_of="1")
    with pytest.raises(TableError, match="has no tag 'than'; did you mean 'then'"):
        look(shop, table, as_of="than")


@pytest.fixture
def views(shop: Any) -> Any:
    shop.sales()
    shop.sales("other")
    keep(shop.warehouse, "twice", "SELECT country, orders * 2 AS n FROM shop.sales", "country", "n")
    query = (
        "SELECT a.country, b.orders FROM shop.sales a JOIN shop.other b ON a.country = b.country"
    )
    keep(shop.warehouse, "both", query, "country", "orders")
    return shop


def test_view_is_pinned_to_its_snapshot(views: Any) -> None:
    first = views.write("shop.sales", ("Peru", 2, 1.0))
    found = look(views, "shop.twice")
    views.write("shop.sales", ("Peru", 5, 1.0))
    assert (found.snapshot, rows(found)) == (first, [("Peru", 4)])
    assert rows(look(views, "shop.twice", "n")) == [(10,)]
    assert rows(look(views, "shop.twice", as_of="1")) == [("Peru", 4)]


def test_a_view_of_several_tables(views: Any) -> None:
    assert (look(views, "shop.both").snapshot, rows(look(views, "shop.both"))) == (None, [])
    views.write("shop.sales", ("Peru", 2, 1.0))
    last = views.write("shop.other", ("Peru", 3, 1.0))
    pin = partial(Extract, views.warehouse, "shop.both")
    found = pin()
    assert found.snapshot == 2
    assert found.time_ms == views.warehouse.table("shop.other").snapshot(last).time_ms
    assert rows(found) == [("Peru", 3)]
    views.write("shop.other", ("Peru", 4, 1.0))
    assert (found.state != pin().state, rows(found)) == (True, [("Peru", 3)])
    keep(views.warehouse, "both", "SELECT country FROM shop.sales", "country")
    assert rows(pin()) == [("Peru",)]
    assert rows(look(views, "shop.both", as_of="0 s")) == [("Peru",)]


def test_snapshot_id_is_ambiguous_for_several_tables(views: Any) -> None:
    for table in ("shop.sales", "shop.other"):
        views.write(table, ("Peru", 2, 1.0))
    with pytest.raises(TableError, match=r"view of several tables \(shop.other, shop.sales\)"):
        look(views, "shop.both", as_of="1")


def test_progress_callback_can_stop_reading(shop: Any) -> None:
    class Enough(Exception):
        pass

    def tick(count: int) -> None:
        read.append(count)
        raise Enough

    for table in (shop.sales(), shop.orders()):
        read: list[int] = []
        shop.write(table, *([("Peru", 2, 1.0)] if table == "shop.sales" else [(1, "nut", None)]))
        with pytest.raises(Enough):
            rows(look(shop, table), tick)
        assert read == [1]


def test_nanosecond_timestamps_are_exact(shop: Any) -> None:
    columns = (Column("id", "INT"), Column("p", "TIMESTAMP(9)"), Column("z", "TIMESTAMP_LTZ(9)"))
    table = "shop.times"
    # As Flink would: tables that cannot be written are not made here.
    shop.warehouse._create(table, TableDeclaration(columns, ["id"], (), {"bucket": "1"}))
    shop.write(table, (2, 1_700_000_000_123_456_789, 1_700_000_000_123_456_789))
    with look(shop, table).open(lambda rows: None) as (_, batches):
        (batch,) = batches
    assert [batch.column(i).cast("int64").to_pylist() for i in (1, 2)] == [
        [1_700_000_000_123_456_789]
    ] * 2


@pytest.mark.parametrize(
    ("name", "columns", "error", "message"),
    [
        ("shop.sale", (), TableError, "no table 'sale' in database 'shop'; did you mean 'sales'"),
        ("shop.sales", ("orders", "revenu"), TableError, "no column 'revenu'; did you mean"),
        ("shop.twice", ("m",), TableError, "has no column 'm'"),
        ("sales", (), TableError, "'sales' names no database; write database.table"),
        ("shop.sales$files", (), TableError, "is a system table: it can be queried"),
    ],
)
def test_errors_for_missing_objects(
    views: Any, name: str, columns: tuple[str, ...], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        look(views, name, *columns)


def test_table_dropped_while_its_view_is_pinned(
    views: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold = PinnedTables.pin_all

    def hold_too_late(pins: PinnedTables, scans: Any) -> None:
        views.warehouse.drop_table("shop", "sales")
        hold(pins, scans)

    monkeypatch.setattr(PinnedTables, "pin_all", hold_too_late)
    with pytest.raises(SqlError, match=r"the view reads 'shop\.sales', which does not exist"):
        look(views, "shop.twice")
