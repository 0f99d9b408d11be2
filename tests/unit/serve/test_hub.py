"""Streams of real tables: the initial rows, then each change, for all subscribers."""

from __future__ import annotations

import asyncio
import json
import random
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
    open_view,
    rows_of,
    run,
    snapshot_of,
    stats,
    take_until,
    until,
)
from tests.unit.serve.test_view_feed import TOP, keep

from streamhouse.errors import BusyError, TableError, TooLargeError
from streamhouse.serve.feeds.feed import Feed
from streamhouse.serve.views.served_view import ServedView
from streamhouse.sql.plan import Column


def test_initial_rows_then_each_change(shop: Any) -> None:
    table = shop.sales()
    shop.write(table, ("Peru", 2, 2.5), ("Chad", 1, 1.5))

    async def work() -> None:
        async with a_hub(shop) as hub:
            reader = await hub.subscribe(SALES)
            first = await following(reader)
            assert (first.kind, snapshot_of(first)) == ("snapshot", 1)
            assert rows_of(first) == [
                {"rowkind": "+I", "country": "Chad", "orders": 1, "revenue": 1.5},
                {"rowkind": "+I", "country": "Peru", "orders": 2, "revenue": 2.5},
            ]
            last = shop.write(table, ("Chad", 3, 1.5))
            second = await following(reader)
            assert (second.kind, snapshot_of(second)) == ("changes", last)
            assert [row["rowkind"] for row in rows_of(second)] == ["-U", "+U"]
            assert second.id is not None and second.id.startswith(f"{last}-")
            assert reader.last_id == second.id

    run(work())


def test_events_are_encoded_once_for_all_subscribers(shop: Any) -> None:
    table = shop.sales()
    shop.write(table, ("Peru", 2, 2.5), ("Chad", 1, 1.5))

    async def work() -> None:
        async with a_hub(shop) as hub:
            readers = await asyncio.gather(*(hub.subscribe(SALES) for _ in range(50)))
            firsts = [await following(reader) for reader in readers]
            assert all(event is firsts[0] for event in firsts)
            shop.write(table, ("Chad", 3, 1.5), ("Oman", 1, 1.0))
            seconds = [await following(reader) for reader in readers]
            assert all(event is seconds[0] for event in seconds)
            counted = stats(hub, "shop.sales")
            assert counted.subscribers == 50 and len(hub._channels) == 1
            assert (counted.rows, counted.state_rows) == (2, 2)
            assert counted.events == 1 and counted.bytes == len(seconds[0].data)
            assert counted.freshness_ms is not None and counted.snapshot == 2

    run(work())


def test_new_subscriber_gets_all_earlier_commits(shop: Any) -> None:
    table = shop.sales()
    shop.write(table, ("Chad", 0, 1.0))

    async def work() -> None:
        # Polls are an hour apart, except those that a new subscriber causes.
        async with a_hub(shop, every_ms=3_600_000) as hub:
            for number in range(1, 5):
                last = shop.write(table, ("Chad", number, 1.0))
                event = await following(await hub.subscribe(SALES))
                assert (event.kind, snapshot_of(event)) == ("snapshot", last)
                assert rows_of(event)[0]["orders"] == number

    run(work())


def test_empty_table(shop: Any) -> None:
    for table, view in ((shop.sales(), SALES), (shop.orders(), ORDERS)):
        row = ("Chad", 1, 1.0) if view is SALES else (1, "nut", None)

        async def work(table: str, view: ServedView, row: tuple[Any, ...]) -> None:
            async with a_hub(shop) as hub:
                client, reader = await joined(hub, view)
                assert (client.begun, client.rows, client.snapshot) == (1, [], 0)
                shop.write(table, row)
                event = await following(reader)
                client.take(event)
                assert event.kind == "changes" and len(client.rows) == 1
                # From the empty table on, again.
                again = await hub.subscribe(view, "0")
                assert rows_of(await following(again)) == rows_of(event)

        run(work(table, view, row))


def test_append_table_sends_each_commit(shop: Any) -> None:
    table = shop.orders()
    shop.write(table, (1, "nut", None), (1, "nut", None))

    async def work() -> None:
        async with a_hub(shop) as hub:
            client, reader = await joined(hub, ORDERS)
            assert client.rows == [(1, "nut", None), (1, "nut", None)]
            for number in range(5):
                shop.write(table, (number, "fig", None))
            last = shop.warehouse.table(table).latest_snapshot_id()
            taken = await take_until(client, reader, at(last))
            assert [snapshot_of(event) for event in taken] == [2, 3, 4, 5, 6]
            shop.overwrite(table, (9, "pea", None))
            await take_until(client, reader, at(last + 1))
            assert client.rows == [(9, "pea", None)]

    run(work())


def test_state_of_an_append_table_is_the_newest(shop: Any) -> None:
    table = shop.orders()
    shop.write(table, *((number, "nut", None) for number in range(20)))

    async def work() -> None:
        opened: list[str] = []

        def open_feed(view: ServedView) -> Feed:
            opened.append(view.name)
            return open_view(shop, view)

        async with a_hub(shop, open_feed) as hub:
            first = await hub.subscribe(ORDERS)
            await following(first)
            for number in range(3):
                last = shop.write(table, (100 + number, "fig", None))
                client, reader = Client(), await hub.subscribe(ORDERS)
                taken = await take_until(client, reader, at(last))
                assert [event.kind for event in taken] == ["snapshot"]
                assert len(client.rows) == 21 + number
            # One for the stream, one for each state.
            assert len(opened) == 5
            assert stats(hub, "shop.orders").state_rows == 20 + 21 + 22 + 23

    run(work())


def test_column_selections_have_separate_streams(shop: Any) -> None:
    table = shop.sales()
    shop.write(table, ("Chad", 1, 1.5))
    some = ServedView("shop.sales", table, ("revenue",))

    async def work() -> None:
        async with a_hub(shop) as hub:
            one, other = await hub.subscribe(some), await hub.subscribe(SALES)
            assert rows_of(await following(one)) == [{"rowkind": "+I", "revenue": 1.5}]
            await following(other)
            shop.write(table, ("Chad", 2, 1.5))
            shop.write(table, ("Chad", 2, 2.5))
            event = await following(one)
            assert [row["revenue"] for row in rows_of(event)] == [1.5, 2.5]
            assert len(hub._channels) == 2

    run(work())


def test_view_and_branch(shop: Any) -> None:
    table = shop.sales()
    shop.write(table, ("Peru", 2, 1.0), ("Chad", 1, 1.0))
    keep(shop.warehouse, "big", TOP, "country", "twice")
    shop.tag(table, "t1", 1)
    shop.branch(table, "b", "t1")

    async def work() -> None:
        async with a_hub(shop) as hub:
            client, branched = Client(), Client(("country",))
            reader = await hub.subscribe(ServedView("shop.big", "shop.big"))
            other = await hub.subscribe(ServedView("shop.branched", f"{table}$branch_b"))
            client.take(await following(reader))
            branched.take(await following(other))
            assert client.rows == [("Peru", 4)] and len(branched.rows) == 2
            shop.write(table, ("Peru", 3, 1.0), ("Chad", 5, 1.0))
            client.take(await following(reader))
            assert client.rows == [("Chad", 10), ("Peru", 6)]
            last = shop.write(f"{table}$branch_b", ("Mali", 7, 1.0))
            branched.take(await following(other))
            assert branched.snapshot == last and len(branched.rows) == 3

    run(work())


def test_commit_without_changes_sends_no_event_but_advances_the_id(shop: Any) -> None:
    table = shop.sales()
    shop.write(table, ("Chad", 1, 1.0))

    async def work() -> None:
        async with a_hub(shop, heartbeat_s=0.05) as hub:
            reader = await hub.subscribe(SALES)
            first = await following(reader)
            last = shop.write(table, ("Chad", 1, 1.0))
            beats = [await following(reader)]
            while snapshot_of(beats[-1]) != last:
                beats.append(await following(reader))
            assert {event.kind for event in beats} == {"heartbeat"}
            assert beats[-1].id != first.id and reader.last_id == beats[-1].id
            again = await hub.subscribe(SALES, beats[-1].id)
            shop.write(table, ("Chad", 2, 1.0))
            event = await following(again)
            while event.kind == "heartbeat":
                event = await following(again)
            assert [row["orders"] for row in rows_of(event)] == [1, 2]

    run(work())


def test_heartbeats_only_while_idle(shop: Any) -> None:
    table = shop.sales()
    shop.write(table, ("Chad", 0, 1.0))

    async def work() -> None:
        async with a_hub(shop, heartbeat_s=3600.0) as hub:
            reader = await hub.subscribe(SALES)
            for number in range(1, 4):
                await following(reader)
                shop.write(table, ("Chad", number, 1.0))
            assert (await following(reader)).kind == "changes"

    run(work())


def test_no_polling_without_subscribers(shop: Any) -> None:
    table = shop.sales()
    shop.write(table, ("Chad", 1, 1.0))

    async def work() -> None:
        async with a_hub(shop, linger_s=0.05) as hub:
            assert hub.stats() == []
            reader = await hub.subscribe(SALES)
            before = stats(hub, table).polls
            await until(lambda: stats(hub, table).polls > before + 3)
            await reader.close()
            with pytest.raises(StopAsyncIteration):
                await following(reader)
            await until(lambda: not hub._channels)
            ended = stats(hub, table)
            assert ended.subscribers == 0 and ended.polls > 3
            # Counts go on where they were, in a stream of its own.
            await hub.subscribe(SALES)
            assert stats(hub, table).polls >= ended.polls and len(hub._channels) == 1

    run(work())


def test_stream_lingers_after_its_last_subscriber(shop: Any) -> None:
    table = shop.sales()
    shop.write(table, ("Chad", 1, 1.0))

    async def work() -> None:
        async with a_hub(shop, linger_s=3600.0) as hub:
            reader = await hub.subscribe(SALES)
            await following(reader)
            await reader.close()
            shop.write(table, ("Chad", 2, 1.0))
            await until(lambda: stats(hub, table).events == 1)
            again = await hub.subscribe(SALES, reader.last_id)
            assert [row["orders"] for row in rows_of(await following(again))] == [1, 2]
            assert stats(hub, table).state_rows == 1

    run(work())


def test_missing_view_is_an_error(shop: Any) -> None:
    async def work() -> None:
        async with a_hub(shop) as hub:
            for _ in range(2):
                with pytest.raises(TableError, match="no table 'sales'"):
                    await hub.subscribe(SALES)
                assert not hub._channels
            shop.write(shop.sales(), ("Chad", 1, 1.0))
            assert len(rows_of(await following(await hub.subscribe(SALES)))) == 1

    run(work())


@BOTH
def test_large_tables_stream_only_from_latest(shop: Any, view: ServedView) -> None:
    keyed = view is SALES
    table = shop.sales() if keyed else shop.orders()

    def row(number: int) -> tuple[Any, ...]:
        return (f"country {number}", number, 1.0) if keyed else (number, "nut", None)

    shop.write(table, *(row(number) for number in range(11)))

    async def work() -> None:
        async with a_hub(shop, max_rows=10) as hub:
            with pytest.raises(TooLargeError, match=f"{table} has more than 10 rows"):
                await hub.subscribe(view)
            reader = await hub.subscribe(view, "latest")
            first = await following(reader)
            assert (first.kind, rows_of(first)) == ("changes", [])
            assert first.id is not None
            shop.write(table, row(11))
            second = await following(reader)
            assert [one["rowkind"] for one in rows_of(second)] == ["+I"]
            again = await hub.subscribe(view, first.id)
            assert await following(again) is second

    run(work())


def test_number_of_streams_is_limited(shop: Any) -> None:
    shop.write(shop.sales(), ("Chad", 1, 1.0))

    async def work() -> None:
        async with a_hub(shop, max_streams=1) as hub:
            await hub.subscribe(SALES)
            await hub.subscribe(SALES)
            with pytest.raises(BusyError, match="try again later"):
                await hub.subscribe(ServedView("shop.sales", "shop.sales", ("orders",)))

    run(work())


def test_close_ends_all_subscriptions(shop: Any) -> None:
    shop.write(shop.sales(), ("Chad", 1, 1.0))

    async def work() -> None:
        async with a_hub(shop) as hub:
            readers = [await hub.subscribe(SALES) for _ in range(3)]
            waiting = [asyncio.ensure_future(_all(reader)) for reader in readers]
            await until(lambda: all(reader.last_id is not None for reader in readers))
            await hub.close()
            assert [len(events) for events in await asyncio.gather(*waiting)] == [1, 1, 1]
            with pytest.raises(BusyError, match="shutting down"):
                await hub.subscribe(SALES)

    run(work())


async def _all(reader: Any) -> list[Any]:
    return [json.loads(event.data) async for event in reader]


@pytest.mark.parametrize("seed", range(2))
def test_clients_share_the_streams(shop: Any, seed: int) -> None:
    """No client is refused or loses a stream while it has fewer than its share of them."""
    generated, most = random.Random(seed), 5
    names = [f"c{number}" for number in range(12)]
    table = shop.create("wide", [Column(name, "INT") for name in names])
    shop.write(table, [1] * len(names))

    async def work() -> None:
        async with a_hub(shop, max_streams=most, linger_s=0.0) as hub:
            held: dict[str, dict[str, Any]] = {client: {} for client in ("greedy", "two", "one")}

            async def subscribe(client: str) -> None:
                column = generated.choice(
                    [n for n in names if not any(n in h for h in held.values())]
                )
                counts = {name: len(own) for name, own in held.items()}
                full = sum(counts.values()) == most
                may = not full or max(counts.values()) >= counts[client] + 2
                try:
                    reader = await hub.subscribe(ServedView(table, table, (column,)), None, client)
                except BusyError as error:
                    assert not may and f"{counts[client]} of them for you" in str(error)
                    return
                assert may and len(hub._channels) <= most
                assert len(rows_of(await following(reader))) == 1
                held[client][column] = reader
                if not full:
                    return
                (busiest,) = [name for name in held if await lost_one(name)]
                assert counts[busiest] == max(counts.values()) and busiest != client

            async def lost_one(client: str) -> bool:
                for column, reader in held[client].items():
                    if reader._link.next is not None:
                        with pytest.raises(BusyError, match="other clients have fewer"):
                            await following(reader)
                        del held[client][column]
                        return True
                return False

            for _ in range(most):
                await subscribe("greedy")
            assert len(held["greedy"]) == most
            for _ in range(15):
                client = generated.choice(["greedy", "greedy", "two", "one"])
                if held[client] and generated.random() < 0.3:
                    _, reader = held[client].popitem()
                    await reader.close()
                else:
                    await subscribe(client)
            assert len(hub._channels) == sum(map(len, held.values()))

    run(work())
