"""Resuming subscribers: no change is lost or repeated, else there is an error."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.unit.serve.streams import (
    BOTH,
    ORDERS,
    SALES,
    Client,
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
from tests.unit.serve.test_view_feed import big_sales

from streamhouse.errors import BadIdError, ExpiredError, TooLargeError
from streamhouse.serve.views.served_view import ServedView
from streamhouse.sql.plan import Column
from streamhouse.sql.schema_changes import AddColumn


def expire(shop: Any, table: str, before: int) -> None:
    """Remove the snapshots before one, as an expiry does."""
    folder = shop.path / "shop.db" / table / "snapshot"
    for number in range(1, before):
        (folder / f"snapshot-{number}").unlink(missing_ok=True)
    (folder / "EARLIEST").write_text(str(before))


async def begun(shop: Any, view: ServedView) -> Client:
    """A client that has received the first snapshot from a server that has ended."""
    key = ("country",) if view is SALES else ()
    async with a_hub(shop) as hub:
        client, _ = await joined(hub, view, key)
    return client


def filled(shop: Any, view: ServedView) -> tuple[str, tuple[Any, ...]]:
    """The table of `SALES` or `ORDERS`, with one row, and that row."""
    table = shop.sales() if view is SALES else shop.orders()
    row = ("Chad", 1, 1.0) if view is SALES else (1, "nut", None)
    shop.write(table, row)
    return table, row


def test_resume_from_memory(shop: Any) -> None:
    table = shop.sales()
    shop.write(table, ("Chad", 0, 1.0))

    async def work() -> None:
        async with a_hub(shop) as hub:
            client, reader = Client(("country",)), await hub.subscribe(SALES)
            events = [await following(reader)]
            for number in range(1, 4):
                shop.write(table, ("Chad", number, 1.0))
                events.append(await following(reader))
            for place, event in enumerate(events):
                for last_id in (event.id, str(snapshot_of(event))):
                    again = await hub.subscribe(SALES, last_id)
                    for expected in events[place + 1 :]:
                        assert await following(again) is expected
            for event in events:
                client.take(event)
            assert client.rows == [("Chad", 3, 1.0)]

    run(work())


def test_after_restart_keyed_tables_are_compared(shop: Any) -> None:
    table = shop.sales()
    shop.write(table, ("Chad", 0, 1.0), ("Mali", 0, 1.0), ("Peru", 0, 1.0))

    async def work() -> None:
        client = await begun(shop, SALES)
        for number in range(1, 4):
            shop.write(table, ("Chad", number, 1.0), ("Oman", number, 2.0))
        last = shop.write(table, ("Peru", 0, 1.0), kinds=["-D"])
        async with a_hub(shop) as hub:
            readers = [await hub.subscribe(SALES, client.last_id) for _ in range(3)]
            events = [await following(reader) for reader in readers]
            assert all(event is events[0] for event in events)
            kinds = [row["rowkind"] for row in rows_of(events[0])]
            assert (snapshot_of(events[0]), kinds) == (last, ["-U", "+U", "+I", "-D"])
            client.take(events[0])
            assert client.rows == [("Chad", 3, 1.0), ("Mali", 0, 1.0), ("Oman", 3, 2.0)]
            last = shop.write(table, ("Chad", 9, 1.0))
            await take_until(client, readers[0], at(last))
            assert client.rows[0] == ("Chad", 9, 1.0)
            assert stats(hub, table).state_rows == 0

    run(work())


def test_after_restart_append_tables_resume_by_commit(shop: Any) -> None:
    table = shop.orders()
    shop.write(table, (1, "nut", None))

    async def work() -> None:
        client = await begun(shop, ORDERS)
        shop.write(table, (2, "nut", None))
        shop.overwrite(table, (2, "nut", None), (3, "fig", None))
        shop.write(table, (4, "pea", None))
        async with a_hub(shop) as hub:
            reader = await hub.subscribe(ORDERS, client.last_id)
            events = await take_until(client, reader, lambda c: c.snapshot == 4)
            assert [snapshot_of(event) for event in events] == [2, 3, 4]
            assert client.rows == [(2, "nut", None), (3, "fig", None), (4, "pea", None)]
            again = await hub.subscribe(ORDERS, events[0].id)
            assert [snapshot_of(await following(again)) for _ in range(2)] == [3, 4]

    run(work())


@BOTH
def test_resume_from_the_newest_snapshot(shop: Any, view: ServedView) -> None:
    table, row = filled(shop, view)

    async def work() -> None:
        client = await begun(shop, view)
        async with a_hub(shop) as hub:
            reader = await hub.subscribe(view, client.last_id)
            last = shop.write(table, (*row[:-1], None) if view is SALES else row)
            event = await following(reader)
            assert (event.kind, snapshot_of(event)) == ("changes", last)

    run(work())


def test_commit_without_effect_has_a_new_id(shop: Any) -> None:
    table = shop.sales()
    shop.write(table, ("Chad", 1, 1.0))

    async def work() -> None:
        client = await begun(shop, SALES)
        last = shop.write(table, ("Chad", 1, 1.0))
        async with a_hub(shop) as hub:
            event = await following(await hub.subscribe(SALES, client.last_id))
            assert (event.kind, snapshot_of(event), rows_of(event)) == ("changes", last, [])

    run(work())


@BOTH
def test_expired_snapshot_error_names_the_oldest(shop: Any, view: ServedView) -> None:
    keyed = view is SALES
    table = shop.sales() if keyed else shop.orders()
    for number in range(1, 5):
        shop.write(table, ("Chad", number, 1.0) if keyed else (number, "nut", None))

    async def work() -> None:
        async with a_hub(shop) as hub:
            reader = await hub.subscribe(view, "2")
            ids = [(await following(reader)).id]
        expire(shop, table.split(".")[1], 4)
        async with a_hub(shop) as hub:
            with pytest.raises(ExpiredError, match="start again without last_id") as raised:
                await hub.subscribe(view, "3")
            assert raised.value.earliest == 4
            assert snapshot_of(await following(await hub.subscribe(view))) == 4
        assert ids[0] is not None

    run(work())


def test_ids_of_other_tables_and_future_snapshots(shop: Any) -> None:
    table = shop.sales()
    shop.write(table, ("Chad", 1, 1.0))

    async def work() -> None:
        client = await begun(shop, SALES)
        shop.warehouse.drop_table("shop", "sales")
        shop.sales()
        shop.write(table, ("Chad", 1, 1.0))
        async with a_hub(shop) as hub:
            for last_id in (client.last_id, "2", "1-zzz"):
                with pytest.raises(ExpiredError, match="not belong to this table"):
                    await hub.subscribe(SALES, last_id)
            # A bare number means the table that is there.
            reader = await hub.subscribe(SALES, "1")
            shop.write(table, ("Chad", 2, 1.0))
            assert snapshot_of(await following(reader)) == 2

    run(work())


@pytest.mark.parametrize("text", ["x", "-1", "1-", "1-A", "1 2", "9" * 19, "1-\x1b[2J", "１"])
def test_malformed_ids(shop: Any, text: str) -> None:
    async def work() -> None:
        async with a_hub(shop) as hub:
            with pytest.raises(BadIdError, match="is not an event id") as raised:
                await hub.subscribe(SALES, text)
            assert str(raised.value).isprintable()
            assert hub.stats() == []

    run(work())


@BOTH
def test_changed_columns_send_all_rows(shop: Any, view: ServedView) -> None:
    table, row = filled(shop, view)

    async def work() -> None:
        client = await begun(shop, view)
        shop.warehouse.alter_table(table, AddColumn(Column("zip", "STRING")))
        last = shop.write(table, (*row, "0001"))
        async with a_hub(shop) as hub:
            event = await following(await hub.subscribe(view, client.last_id))
            assert (event.kind, snapshot_of(event)) == ("snapshot", last)
            assert "0001" in [row["zip"] for row in rows_of(event)]

    run(work())


def test_selected_columns_resume_if_others_change(shop: Any) -> None:
    table = shop.sales()
    shop.write(table, ("Chad", 1, 1.0))
    some = ServedView("shop.sales", table, ("revenue",))

    async def work() -> None:
        async with a_hub(shop) as hub:
            first = await following(await hub.subscribe(some))
        shop.warehouse.alter_table(table, AddColumn(Column("zip", "STRING")))
        shop.write(table, ("Chad", 1, 5.0, "0001"))
        async with a_hub(shop) as hub:
            event = await following(await hub.subscribe(some, first.id))
            assert event.kind == "changes"
            assert [row["revenue"] for row in rows_of(event)] == [1.0, 5.0]

    run(work())


def test_too_many_missed_rows(shop: Any) -> None:
    table = shop.orders()
    shop.write(table, (0, "nut", None))

    async def work() -> None:
        client = await begun(shop, ORDERS)
        for number in range(3):
            shop.write(table, *((number, "nut", None) for _ in range(5)))
        async with a_hub(shop, max_rows=12) as hub:
            with pytest.raises(TooLargeError, match="since snapshot 1 has more than 12 rows"):
                await hub.subscribe(ORDERS, client.last_id)
            event = await following(await hub.subscribe(ORDERS, "2"))
            assert (snapshot_of(event), len(rows_of(event))) == (3, 5)

    run(work())


def test_views_resume_only_from_memory(shop: Any) -> None:
    view = big_sales(shop)

    async def work() -> None:
        async with a_hub(shop) as hub:
            reader = await hub.subscribe(view)
            first = await following(reader)
            shop.write("shop.sales", ("Chad", 2, 1.0))
            second = await following(reader)
            assert await following(await hub.subscribe(view, first.id)) is second
        async with a_hub(shop) as hub:
            with pytest.raises(ExpiredError, match="past changes of a view are kept only"):
                await hub.subscribe(view, first.id)
            # Nothing has changed since this one.
            reader = await hub.subscribe(view, second.id)
            shop.write("shop.sales", ("Mali", 3, 1.0))
            assert rows_of(await following(reader)) == [
                {"rowkind": "+I", "country": "Mali", "twice": 6}
            ]

    run(work())


def test_history_memory_is_bounded(shop: Any) -> None:
    table = shop.sales()
    shop.write(table, ("Chad", 0, 1.0))

    async def work() -> None:
        async with a_hub(shop, history_bytes=4_000) as hub:
            client, reader = await joined(hub, SALES, ("country",))
            first, late = client.last_id, Client(("country",))
            late.bag, late.snapshot = client.bag.copy(), client.snapshot
            for number in range(1, 21):
                shop.write(table, ("Chad", number, 1.0))
                client.take(await following(reader))
            # No longer in memory, so the states are compared; later events are in memory.
            again = await hub.subscribe(SALES, first)
            event = await following(again)
            late.take(event)
            assert snapshot_of(event) == 21 and late.rows == client.rows
            recent = await hub.subscribe(SALES, str(client.snapshot - 1))
            assert [row["orders"] for row in rows_of(await following(recent))] == [19, 20]

    run(work())


def test_many_subscribers_resume_during_changes(shop: Any) -> None:
    table = shop.sales()
    shop.write(table, ("Chad", 0, 1.0), ("Mali", 0, 1.0))

    async def work() -> None:
        before = await begun(shop, SALES)
        async with a_hub(shop) as hub:
            clients = []

            async def come_back() -> None:
                client = Client(("country",))
                client.bag, client.snapshot = before.bag.copy(), before.snapshot
                clients.append((client, await hub.subscribe(SALES, before.last_id)))

            tasks = [asyncio.create_task(come_back()) for _ in range(20)]
            for number in range(1, 11):
                last = await asyncio.to_thread(shop.write, table, ("Chad", number, 1.0))
                tasks.append(asyncio.create_task(come_back()))
            await asyncio.gather(*tasks)
            for client, reader in clients:
                await take_until(client, reader, at(last))
                assert client.rows == [("Chad", 10, 1.0), ("Mali", 0, 1.0)]
            await until(lambda: stats(hub, table).snapshot == last)

    run(work())
