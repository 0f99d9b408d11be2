"""Random histories of a table, read by clients that come, go, and come back, at any moment.

Whatever happens, what a client makes of its events is the table.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.serve.streams import WAIT_S, Client, a_hub, run, take_until
from tests.unit.serve.test_view_feed import keep

from streamhouse.errors import SlowReaderError
from streamhouse.serve.hub import Hub
from streamhouse.serve.served import ServedView

KEYS = [f"c{number}" for number in range(12)]
STEPS = 25


class Keyed:
    """Upserts and deletes by key, and now and then all rows anew."""

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


async def visits(
    hub: Callable[[], Hub],
    history: Keyed | Appended,
    draw: random.Random,
    done: asyncio.Event,
    finished: Callable[[Client], bool],
) -> Client:
    """A client that reads a few events at a time until it has all that there will be."""
    client = Client(history.key)
    deadline = asyncio.get_running_loop().time() + WAIT_S
    while not (done.is_set() and finished(client)):
        assert asyncio.get_running_loop().time() < deadline, (client.rows, history.rows)
        reader = await hub().subscribe(history.view, client.last_id)
        try:
            for _ in range(draw.randint(1, 6)):
                async with asyncio.timeout(draw.choice([0.02, 0.2])):
                    client.take(await anext(reader))
        except (TimeoutError, StopAsyncIteration, SlowReaderError):
            pass
        finally:
            client.lost()
            await reader.close()
    return client


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("kind", [Keyed, Chosen, Appended, Viewed])
def test_what_clients_make_of_their_events_is_the_table(
    shop: Any, kind: Callable[[Any, random.Random], Keyed | Appended], seed: int
) -> None:
    draw = random.Random(seed)
    history = kind(shop, draw)

    async def work() -> None:
        done = asyncio.Event()
        settings = {"part_rows": 3, "queue_events": 8, "history_bytes": 20_000}
        async with a_hub(shop, **settings) as hub:
            steady = Client(history.key)
            reader = await hub.subscribe(history.view)

            def finished(client: Client) -> bool:
                return client.rows == history.rows

            guests = [
                asyncio.create_task(
                    visits(lambda: hub, history, random.Random(number), done, finished)
                )
                for number in range(5)
            ]
            for _ in range(STEPS):
                await asyncio.to_thread(history.step)
                await asyncio.sleep(draw.choice([0, 0, 0.01, 0.03]))
                while steady.snapshot == 0 or draw.random() < 0.6:
                    try:
                        async with asyncio.timeout(0.05 if steady.snapshot else WAIT_S):
                            steady.take(await anext(reader))
                    except (TimeoutError, SlowReaderError):
                        steady.lost()
                        await reader.close()
                        reader = await hub.subscribe(history.view, steady.last_id)
                        break
            done.set()
            await take_until(steady, reader, finished)
            for client in await asyncio.gather(*guests):
                assert client.rows == history.rows

    run(work())


@pytest.mark.parametrize("kind", [Keyed, Appended])
def test_clients_of_a_server_that_is_started_again_and_again(
    shop: Any, kind: Callable[[Any, random.Random], Keyed | Appended]
) -> None:
    draw = random.Random(7)
    history = kind(shop, draw)

    async def work() -> None:
        clients = [Client(history.key) for _ in range(3)]
        for _ in range(6):
            async with a_hub(shop, part_rows=3) as hub:
                readers = [await hub.subscribe(history.view, c.last_id) for c in clients]
                for _ in range(draw.randint(1, 4)):
                    await asyncio.to_thread(history.step)
                # Each breaks off somewhere else, the last one reads all.
                for number, (client, reader) in enumerate(zip(clients, readers, strict=True)):
                    if number < 2:
                        client.take(await anext(reader))
                        client.lost()
                    else:
                        await take_until(client, reader, lambda c: c.rows == history.rows)
        async with a_hub(shop) as hub:
            for client in clients:
                reader = await hub.subscribe(history.view, client.last_id)
                await take_until(client, reader, lambda c: c.rows == history.rows)

    run(work())
