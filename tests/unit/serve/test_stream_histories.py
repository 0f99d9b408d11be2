"""Random histories of a table, read by clients that connect and reconnect at any time.

The events of each client must always rebuild the table.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any, TypeAlias

import pytest
from tests.unit.serve.streams import Client, a_hub, run, take_until
from tests.unit.serve.test_view_feed import keep
from tests.waiting import DEADLINE_S

from streamhouse.errors import ExpiredError, SlowReaderError
from streamhouse.serve.streams.hub import Hub
from streamhouse.serve.streams.subscriber import Subscription
from streamhouse.serve.views.served_view import ServedView

KEYS = [f"c{number}" for number in range(12)]
STEPS = 16


class Keyed:
    """Upserts and deletes by key, and sometimes an overwrite of all rows."""

    view = ServedView("shop.sales", "shop.sales")
    key: tuple[str, ...] = ("country",)

    def __init__(self, shop: Any, draw: random.Random) -> None:
        self._shop, self._draw = shop, draw
        self._table = shop.sales()
        self._rows: dict[str, tuple[Any, ...]] = {}

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        return sorted(self._rows.values(), key=repr)

    def step(self) -> None:
        draw = self._draw
        keys = draw.sample(KEYS, draw.randint(1, 5))
        new = [(key, draw.randint(0, 2), float(draw.randint(0, 2))) for key in keys]
        if draw.random() < 0.1:
            self._shop.overwrite(self._table, *new)
            self._rows = {row[0]: row for row in new}
            return
        kinds = [draw.choice(["+I", "+U", "-D"]) for _ in new]
        self._shop.write(self._table, *new, kinds=kinds)
        for row, kind in zip(new, kinds, strict=True):
            if kind == "-D":
                self._rows.pop(row[0], None)
            else:
                self._rows[row[0]] = row


class Chosen(Keyed):
    """The same, of which one column is read, without the key."""

    view = ServedView("shop.sales", "shop.sales", ("revenue",))
    key = ()

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        return sorted(((row[2],) for row in self._rows.values()), key=repr)


class Viewed(Keyed):
    """The same through a view."""

    view = ServedView("shop.some", "shop.some")
    key = ()

    def __init__(self, shop: Any, draw: random.Random) -> None:
        super().__init__(shop, draw)
        query = "SELECT orders, country FROM shop.sales WHERE orders > 0"
        keep(shop.warehouse, "some", query, "orders", "country")

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        return sorted(((row[1], row[0]) for row in self._rows.values() if row[1] > 0), key=repr)


class Appended:
    """Rows are added, the same ones too, and now and then all are replaced."""

    view = ServedView("shop.orders", "shop.orders")
    key: tuple[str, ...] = ()

    def __init__(self, shop: Any, draw: random.Random) -> None:
        self._shop, self._draw = shop, draw
        self._table = shop.orders()
        self._rows: list[tuple[Any, ...]] = []

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        return sorted(self._rows, key=repr)

    def step(self) -> None:
        draw = self._draw
        new = [(draw.randint(0, 3), draw.choice(["nut", "fig"]), None) for _ in range(4)]
        if draw.random() < 0.1:
            self._shop.overwrite(self._table, *new)
            self._rows = new
        else:
            self._shop.write(self._table, *new)
            self._rows += new


History: TypeAlias = Keyed | Appended


async def read_some(client: Client, reader: Subscription, most: int, seconds: float) -> bool:
    """Read up to so many events, for so long at most; whether it was not cut off."""
    try:
        async with asyncio.timeout(seconds):
            for _ in range(most):
                client.take(await anext(reader))
    except TimeoutError:
        return True
    except SlowReaderError as error:
        assert error.last_id in (None, client.last_id)
        return False
    return True


async def subscribed(hub: Hub, client: Client, history: History) -> Subscription:
    client.lost()
    try:
        return await hub.subscribe(history.view, client.last_id)
    except ExpiredError:
        # What a view gave can be had from memory only.
        assert isinstance(history, Viewed)
        return await hub.subscribe(history.view)


async def guest(hub: Hub, history: History, draw: random.Random, done: asyncio.Event) -> Client:
    """A client that reads a few events at a time until it has all that there will be."""
    client = Client(history.key)
    async with asyncio.timeout(2 * DEADLINE_S):
        while not (done.is_set() and client.rows == history.rows):
            reader = await subscribed(hub, client, history)
            seconds = draw.choice([0.02, 0.1, 0.5])
            # At times enough for all parts of a large event, lest it begins again for ever.
            await read_some(client, reader, draw.choice([1, 2, 5, 200]), seconds)
            await reader.close()
    return client


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.soak)])
@pytest.mark.parametrize("kind", [Keyed, Chosen, Appended, Viewed])
def test_events_rebuild_the_table(
    shop: Any, kind: Callable[[Any, random.Random], History], seed: int
) -> None:
    draw = random.Random(seed)
    history = kind(shop, draw)

    async def work() -> None:
        done = asyncio.Event()
        settings: dict[str, Any] = {"part_rows": 3, "queue_events": 8, "history_bytes": 20_000}
        async with a_hub(shop, **settings) as hub:
            steady = Client(history.key)
            reader = await hub.subscribe(history.view)
            guests = [
                asyncio.create_task(guest(hub, history, random.Random(number), done))
                for number in range(3)
            ]
            for _ in range(STEPS):
                await asyncio.to_thread(history.step)
                if not await read_some(steady, reader, 4, draw.choice([0.0, 0.02])):
                    reader = await subscribed(hub, steady, history)
            done.set()
            while steady.rows != history.rows:
                if not await read_some(steady, reader, 1, DEADLINE_S):
                    reader = await subscribed(hub, steady, history)
            for client in await asyncio.gather(*guests):
                assert client.rows == history.rows

    run(work())


@pytest.mark.parametrize("kind", [Keyed, Appended])
def test_clients_resume_across_server_restarts(
    shop: Any, kind: Callable[[Any, random.Random], History]
) -> None:
    draw = random.Random(7)
    history = kind(shop, draw)

    async def work() -> None:
        clients = [Client(history.key) for _ in range(3)]
        for _ in range(6):
            async with a_hub(shop, part_rows=3) as hub:
                readers = [await subscribed(hub, client, history) for client in clients]
                for _ in range(draw.randint(1, 4)):
                    await asyncio.to_thread(history.step)
                # Two break off anywhere, one reads all.
                await read_some(clients[0], readers[0], 1, 0.2)
                await read_some(clients[1], readers[1], 3, 0.05)
                await take_until(clients[2], readers[2], lambda c: c.rows == history.rows)
        async with a_hub(shop) as hub:
            for client in clients:
                reader = await subscribed(hub, client, history)
                await take_until(client, reader, lambda c: c.rows == history.rows)

    run(work())
