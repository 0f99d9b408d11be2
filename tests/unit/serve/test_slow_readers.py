"""Subscribers that read too slowly: disconnected, without affecting others or growing memory."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any

import pytest
from tests.unit.serve.streams import (
    SALES,
    Client,
    a_hub,
    at,
    following,
    run,
    stats,
    take_until,
    until,
)

from streamhouse.errors import SlowReaderError
from streamhouse.serve.streams.subscriber import FirstEvents
from streamhouse.serve.views.served_view import ServedView


def test_slow_subscriber_is_disconnected_and_resumes(shop: Any) -> None:
    table = shop.sales()
    shop.write(table, ("Chad", 0, 1.0))

    async def work() -> None:
        async with a_hub(shop, queue_events=3) as hub:
            fast, slow = Client(("country",)), Client(("country",))
            reader, other = await hub.subscribe(SALES), await hub.subscribe(SALES)
            slow.take(await following(other))
            fast.take(await following(reader))
            for number in range(1, 5):
                assert not other.too_slow.is_set()
                shop.write(table, ("Chad", number, 1.0))
                fast.take(await following(reader))
            # Four unread events exceed the limit of three when another event arrives.
            last = shop.write(table, ("Chad", 5, 1.0))
            fast.take(await following(reader))
            assert other.too_slow.is_set() and stats(hub, table).overflows == 1
            with pytest.raises(SlowReaderError, match="too slowly.*resume with last_id=") as raised:
                await following(other)
            assert raised.value.last_id == slow.last_id
            with pytest.raises(StopAsyncIteration):
                await following(other)
            assert stats(hub, table).subscribers == 1
            again = await hub.subscribe(SALES, raised.value.last_id)
            await take_until(slow, again, at(last))
            assert slow.rows == fast.rows == [("Chad", 5, 1.0)]

    run(work())


def test_byte_limit_ignores_a_single_large_change(shop: Any) -> None:
    table = shop.orders()
    shop.write(table, (0, "nut", None))
    view = ServedView("shop.orders", table)

    async def work() -> None:
        async with a_hub(shop, queue_bytes=20_000) as hub:
            reader, other = await hub.subscribe(view), await hub.subscribe(view)
            await following(reader)
            await following(other)
            client = Client()
            last = shop.write(table, *((number, "x" * 100, None) for number in range(500)))
            await take_until(client, reader, at(last))
            assert not other.too_slow.is_set()
            last = shop.write(table, (1, "fig", None))
            await take_until(client, reader, at(last))
            assert other.too_slow.is_set() and not reader.too_slow.is_set()

    run(work())


def test_slow_subscriber_without_id_must_start_again(shop: Any) -> None:
    table = shop.sales()
    shop.write(table, *((f"c{number}", number, 1.0) for number in range(10)))

    async def work() -> None:
        async with a_hub(shop, queue_events=0, part_rows=3) as hub:
            reader, other = await hub.subscribe(SALES), await hub.subscribe(SALES)
            await following(other)
            client = Client(("country",))
            for number in range(2):
                last = shop.write(table, ("c0", 100 + number, 1.0))
                await take_until(client, reader, at(last))
            with pytest.raises(SlowReaderError, match="start again") as raised:
                await following(other)
            assert raised.value.last_id is None

    run(work())


def test_memory_of_slow_subscribers_is_freed(shop: Any) -> None:
    table = shop.sales()
    shop.write(table, ("Chad", 0, 1.0))

    async def work() -> None:
        async with a_hub(shop, queue_events=2, history_bytes=0) as hub:
            reader, slow = await hub.subscribe(SALES), await hub.subscribe(SALES)
            await following(reader)
            events = []
            for number in range(1, 8):
                shop.write(table, ("Chad", number, 1.0))
                events.append(weakref.ref(await following(reader)))
            assert slow.too_slow.is_set()
            # The newest is where the stream stands.
            expected = [True] * 6 + [False]
            # A thread that has polled the table may hold an event a point in time longer.
            await until(lambda: gc.collect() >= 0 and [e() is None for e in events] == expected)

    run(work())


def test_unread_initial_states_are_bounded(shop: Any) -> None:
    table = shop.sales()
    rows = [(f"country {number:04d} {'x' * 100}", 0, 1.0) for number in range(100)]
    shop.write(table, *rows)

    async def work() -> None:
        # Two states have room, a third has not.
        async with a_hub(shop, state_bytes=100_000) as hub:
            stuck = []
            for number in range(6):
                shop.write(table, ("a", number, 1.0))
                stuck.append(await hub.subscribe(SALES))
            cut = [reader.too_slow.is_set() for reader in stuck]
            assert cut == [True, True, True, True, False, False]
            # Those of other tests go.
            gc.collect()
            firsts = [
                one for one in gc.get_objects() if isinstance(one, FirstEvents) and one.events
            ]
            assert sum(one.size for one in firsts) <= 100_000
            client = Client(("country",))
            await take_until(client, stuck[-1], lambda c: c.begun == 1)
            assert len(client.rows) == 101

    run(work())


def test_disconnect_while_waiting(shop: Any) -> None:
    table = shop.sales()
    shop.write(table, ("Chad", 0, 1.0))

    async def work() -> None:
        async with a_hub(shop) as hub:
            client, reader = Client(("country",)), await hub.subscribe(SALES)
            client.take(await following(reader))
            for number in range(1, 4):
                # A wait that is given up takes nothing with it.
                waiting = asyncio.ensure_future(anext(reader))
                await asyncio.sleep(0)
                waiting.cancel()
                await asyncio.gather(waiting, return_exceptions=True)
                shop.write(table, ("Chad", number, 1.0))
                client.take(await following(reader))
            assert client.seen == [2, 3, 4]
            await reader.close()
            await reader.close()
            assert stats(hub, table).subscribers == 0

    run(work())
