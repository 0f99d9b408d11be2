"""Streams of tables that are altered, dropped, recreated, rolled back or unreadable."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from tests.unit.serve.streams import (
    BOTH,
    ORDERS,
    SALES,
    Gate,
    a_hub,
    at,
    following,
    joined,
    rows_of,
    run,
    snapshot_of,
    stats,
    take_until,
    until,
)
from tests.unit.serve.test_view_feed import big_sales, keep
from tests.waiting import DEADLINE_S

from streamhouse.errors import ExpiredError, TableError
from streamhouse.serve.streams import view_poller
from streamhouse.serve.views.served_view import ServedView
from streamhouse.sql.plan import Column
from streamhouse.sql.schema_changes import AddColumn, DropColumn, RenameColumn, SetTableOption


class Panic(BaseException):
    """As the table format's core raises it when it breaks down."""

    __module__ = "pyo3_runtime"


@pytest.fixture(autouse=True)
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view_poller, "RETRY_S", (0.01, 0.05))


def make(shop: Any, view: ServedView) -> str:
    table: str = shop.sales() if view is SALES else shop.orders()
    return table


def row(view: ServedView, number: int) -> tuple[Any, ...]:
    return (f"c{number}", number, 1.0) if view is SALES else (number, "nut", None)


@BOTH
def test_table_dropped_and_recreated(shop: Any, view: ServedView) -> None:
    table = make(shop, view)
    shop.write(table, row(view, 1), row(view, 2))

    async def work() -> None:
        async with a_hub(shop, missing_s=DEADLINE_S) as hub:
            client, reader = await joined(hub, view)
            shop.warehouse.drop_table(*table.split("."))
            await until(lambda: stats(hub, table).failures > 0)
            with pytest.raises(TableError, match="no table"):
                await hub.subscribe(view)
            make(shop, view)
            await take_until(client, reader, lambda c: c.begun == 2)
            assert client.rows == []
            shop.write(table, row(view, 3))
            await take_until(client, reader, lambda c: c.snapshot == 1)
            assert client.rows == [row(view, 3)]

    run(work())


@BOTH
def test_table_recreated_between_two_polls_with_as_many_snapshots(
    shop: Any, view: ServedView
) -> None:
    table, gate = make(shop, view), Gate(shop)
    shop.write(table, row(view, 1))

    async def work() -> None:
        async with a_hub(shop, gate.open_feed) as hub:
            client, reader = await joined(hub, view)
            before = client.last_id
            gate.shut()
            shop.warehouse.drop_table(*table.split("."))
            make(shop, view)
            shop.write(table, row(view, 7))
            gate.open()
            await take_until(client, reader, lambda c: c.begun == 2)
            assert (client.rows, client.snapshot) == ([row(view, 7)], 1)
            assert client.last_id != before
            with pytest.raises(ExpiredError):
                await hub.subscribe(view, before)

    run(work())


@BOTH
@pytest.mark.parametrize("more", [0, 1, 2])
def test_table_rolled_back(shop: Any, view: ServedView, more: int) -> None:
    table, gate = make(shop, view), Gate(shop)
    for number in range(1, 4):
        shop.write(table, row(view, number))

    async def work() -> None:
        async with a_hub(shop, gate.open_feed) as hub:
            client, reader = await joined(hub, view)
            gate.shut()
            folder = shop.path / "shop.db" / table.split(".")[1] / "snapshot"
            (folder / "snapshot-3").unlink()
            (folder / "LATEST").write_text("2")
            for number in range(more):
                shop.write(table, row(view, 10 + number))
            gate.open()
            await take_until(client, reader, lambda c: c.begun == 2)
            expected = [row(view, number) for number in (1, 2, *range(10, 10 + more))]
            assert client.rows == sorted(expected, key=repr)
            assert client.snapshot == 2 + more

    run(work())


@BOTH
def test_schema_change_without_commit_sends_all_rows(shop: Any, view: ServedView) -> None:
    table = make(shop, view)
    shop.write(table, row(view, 1))

    async def work() -> None:
        async with a_hub(shop) as hub:
            reader = await hub.subscribe(view)
            await following(reader)
            shop.warehouse.alter_table(table, AddColumn(Column("zip", "STRING")))
            event = await following(reader)
            assert (event.kind, snapshot_of(event)) == ("snapshot", 1)
            assert rows_of(event)[0]["zip"] is None
            shop.warehouse.alter_table(table, RenameColumn(("zip",), "code"))
            event = await following(reader)
            assert event.kind == "snapshot" and "code" in rows_of(event)[0]
            # Options are no columns.
            shop.warehouse.alter_table(table, SetTableOption("snapshot.num-retained.min", "5"))
            shop.write(table, (*row(view, 2), "0001"))
            event = await following(reader)
            assert (event.kind, rows_of(event)[0]["code"]) == ("changes", "0001")
            assert (await following(await hub.subscribe(view, "1"))) is event

    run(work())


@pytest.mark.parametrize("together", [False, True], ids=["apart", "together"])
def test_schema_change_with_a_commit(shop: Any, together: bool) -> None:
    table, gate = shop.sales(), Gate(shop)
    shop.write(table, ("Chad", 1, 1.0))

    async def work() -> None:
        async with a_hub(shop, gate.open_feed) as hub:
            client, reader = await joined(hub, SALES)
            gate.shut()
            shop.warehouse.alter_table(table, AddColumn(Column("zip", "STRING")))
            last = shop.write(table, ("Chad", 2, 1.0, "0001"))
            if together:
                last = shop.write(table, ("Mali", 2, 1.0, "0002"))
            gate.open()
            await take_until(client, reader, at(last))
            assert client.begun == 2 and ("Chad", 2, 1.0, "0001") in client.rows

    run(work())


def test_append_commits_expire_before_a_poll(shop: Any, caplog: pytest.LogCaptureFixture) -> None:
    table, gate = shop.orders(), Gate(shop)
    shop.write(table, (1, "nut", None))
    caplog.set_level(logging.WARNING, "streamhouse.serve")

    async def work() -> None:
        async with a_hub(shop, gate.open_feed) as hub:
            client, reader = await joined(hub, ORDERS)
            gate.shut()
            lost = shop.write(table, (2, "nut", None))
            last = shop.write(table, (3, "nut", None))
            folder = shop.path / "shop.db" / "orders" / "snapshot"
            for number in (1, lost):
                (folder / f"snapshot-{number}").unlink()
            (folder / "EARLIEST").write_text(str(last))
            gate.open()
            await take_until(client, reader, lambda c: c.begun == 2)
            assert client.rows == [(number, "nut", None) for number in (1, 2, 3)]
            assert client.snapshot == last
            shop.write(table, (4, "nut", None))
            await take_until(client, reader, lambda c: len(c.rows) == 4)
            assert stats(hub, table).failures == 0

    run(work())
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "get all rows again" in caplog.text and "snapshot 2 is gone" in caplog.text


@BOTH
def test_failed_polls_lose_nothing_and_are_logged_once(
    shop: Any, view: ServedView, caplog: pytest.LogCaptureFixture
) -> None:
    table, gate = make(shop, view), Gate(shop)
    shop.write(table, row(view, 1))
    caplog.set_level(logging.INFO, "streamhouse.serve")

    async def work() -> None:
        async with a_hub(shop, gate.open_feed, heartbeat_s=0.02) as hub:
            client, reader = await joined(hub, view)
            gate.shut()
            shop.write(table, row(view, 2))
            gate.errors += [OSError("away, password=hunter2"), ValueError("odd"), Panic("away")]
            gate.open()
            await until(lambda: stats(hub, table).failures == 3)
            last = shop.write(table, row(view, 3))
            await take_until(client, reader, at(last))
            assert client.begun == 1
            assert client.rows == [row(view, number) for number in (1, 2, 3)]
            await until(lambda: "can be read again" in caplog.text)

    run(work())
    reported = [record.levelname for record in caplog.records]
    assert reported == ["WARNING", "INFO"]
    assert "retrying: away, password=***" in caplog.text and "hunter2" not in caplog.text


def test_error_of_the_first_poll_reaches_the_subscriber(shop: Any) -> None:
    table, gate = shop.sales(), Gate(shop)
    shop.write(table, ("Chad", 1, 1.0))
    gate.errors += [OSError("the disk is away"), Panic("index out of bounds")]

    async def work() -> None:
        async with a_hub(shop, gate.open_feed) as hub:
            with pytest.raises(Exception, match="shop.sales cannot be read: the disk is away"):
                await hub.subscribe(SALES)
            with pytest.raises(Exception, match="cannot be read: index out of bounds"):
                await hub.subscribe(SALES)
            assert len(rows_of(await following(await hub.subscribe(SALES)))) == 1

    run(work())


def test_heartbeats_while_the_table_is_unreadable(shop: Any) -> None:
    table, gate = shop.sales(), Gate(shop)
    shop.write(table, ("Chad", 1, 1.0))

    async def work() -> None:
        async with a_hub(shop, gate.open_feed, heartbeat_s=0.02) as hub:
            reader = await hub.subscribe(SALES)
            first = await following(reader)
            gate.shut()
            for _ in range(3):
                beat = await following(reader)
                assert (beat.kind, beat.id) == ("heartbeat", first.id)
            gate.open()

    run(work())


def test_too_large_change_ends_the_stream(shop: Any) -> None:
    table = shop.orders()
    shop.write(table, (0, "nut", None))

    async def work() -> None:
        async with a_hub(shop, max_rows=10) as hub:
            reader, other = await hub.subscribe(ORDERS), await hub.subscribe(ORDERS)
            await following(reader)
            shop.write(table, *((number, "nut", None) for number in range(11)))
            with pytest.raises(ExpiredError, match="more than 10 rows changed at once"):
                await following(reader)
            # One that is behind gets what came before first.
            assert (await following(other)).kind == "snapshot"
            with pytest.raises(ExpiredError):
                await following(other)
            assert stats(hub, table).subscribers == 0
            latest = await hub.subscribe(ORDERS, "latest")
            await following(latest)
            shop.write(table, (1, "fig", None))
            assert rows_of(await following(latest))[0]["item"] == "fig"

    run(work())


def test_view_redefined(shop: Any) -> None:
    view = big_sales(shop)

    async def work() -> None:
        async with a_hub(shop) as hub:
            client, reader = await joined(hub, view)
            # Seen within a second, though no table beneath has changed.
            keep(shop.warehouse, "big", "SELECT revenue FROM shop.sales", "revenue")
            await take_until(client, reader, lambda c: c.begun == 2)
            assert client.rows == [(1.0,)]
            shop.write("shop.sales", ("Peru", 2, 7.0))
            await take_until(client, reader, lambda c: c.rows == [(7.0,)])
            assert client.begun == 2

    run(work())


def test_view_of_a_recreated_table(shop: Any) -> None:
    view = big_sales(shop)

    async def work() -> None:
        async with a_hub(shop, missing_s=DEADLINE_S) as hub:
            client, reader = await joined(hub, view)
            shop.warehouse.drop_table("shop", "sales")
            await until(lambda: stats(hub, "shop.big").failures > 0)
            shop.sales()
            shop.write("shop.sales", ("Mali", 5, 1.0))
            await take_until(client, reader, lambda c: c.rows == [("Mali", 10)])
            assert client.begun >= 2

    run(work())


@BOTH
def test_subscribers_of_a_dropped_table_get_an_error(shop: Any, view: ServedView) -> None:
    table = make(shop, view)
    shop.write(table, row(view, 1))

    async def work() -> None:
        async with a_hub(shop, missing_s=0.0) as hub:
            reader, behind = await hub.subscribe(view), await hub.subscribe(view)
            last_id = (await following(reader)).id
            shop.warehouse.drop_table(*table.split("."))
            with pytest.raises(TableError, match=f"{table} no longer exists"):
                await following(reader)
            with pytest.raises(StopAsyncIteration):
                await following(reader)
            # One that is behind gets what came before first.
            assert rows_of(await following(behind)) != []
            with pytest.raises(TableError, match="no longer exists"):
                await following(behind)
            with pytest.raises(TableError, match="no table"):
                await hub.subscribe(view)
            assert stats(hub, table).subscribers == 0
            make(shop, view)
            shop.write(table, row(view, 2))
            with pytest.raises(ExpiredError):
                await hub.subscribe(view, last_id)
            client, _ = await joined(hub, view)
            assert client.rows == [row(view, 2)]

    run(work())


def test_error_of_a_dropped_view_hides_its_source(shop: Any) -> None:
    big_sales(shop)

    async def work() -> None:
        async with a_hub(shop, missing_s=0.0) as hub:
            _, reader = await joined(hub, ServedView("shop.big", "shop.big"))
            shop.warehouse.drop_table("shop", "sales")
            with pytest.raises(TableError, match=r"shop\.big no longer exists") as gone:
                await following(reader)
            assert "sales" not in str(gone.value)

    run(work())


def test_selected_column_is_dropped(shop: Any) -> None:
    table = shop.sales()
    shop.write(table, ("Peru", 2, 1.0))
    some = ServedView(table, table, ("country", "orders"))

    async def work() -> None:
        async with a_hub(shop, missing_s=0.0) as hub:
            _, reader = await joined(hub, some)
            client, other = await joined(hub, SALES)
            shop.warehouse.alter_table(table, DropColumn(("orders",)))
            with pytest.raises(TableError, match="a table that it reads, was dropped"):
                await following(reader)
            # Who reads all columns has those that are left.
            await take_until(client, other, lambda c: c.rows == [("Peru", 1.0)])

    run(work())
