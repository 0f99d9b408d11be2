"""Helpers for tests of streams: clients that rebuild a table from its events."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import pytest
from tests.waiting import DEADLINE_S

from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.serve.feeds.feed import Feed, FeedChange
from streamhouse.serve.feeds.table_feed import TableFeed
from streamhouse.serve.feeds.view_feed import open_sql_view
from streamhouse.serve.settings import StreamSettings
from streamhouse.serve.streams.event import StreamEvent
from streamhouse.serve.streams.hub import Hub
from streamhouse.serve.streams.subscriber import Subscription
from streamhouse.serve.streams.view_poller import StreamStats
from streamhouse.serve.views.served_view import ServedView

SALES = ServedView("shop.sales", "shop.sales")
ORDERS = ServedView("shop.orders", "shop.orders")
BOTH = pytest.mark.parametrize("view", [SALES, ORDERS], ids=["keyed", "append"])
T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    """The coroutine's result; it may not take longer than a test should."""

    async def limited() -> T:
        async with asyncio.timeout(2 * DEADLINE_S):
            return await work

    return asyncio.run(limited())


def open_view(shop: Any, view: ServedView) -> Feed:
    """A feed with a warehouse object of its own, of a table, a branch or a view."""
    warehouse = Warehouse(str(shop.path))
    found = open_sql_view(warehouse, view.source)
    return found or TableFeed(warehouse, view.source, view.columns)


@asynccontextmanager
async def a_hub(
    shop: Any, open_feed: Callable[[ServedView], Feed] | None = None, **settings: Any
) -> AsyncIterator[Hub]:
    """A hub over the shop's warehouse that polls often."""
    chosen = StreamSettings(**{"every_ms": 5, **settings})
    hub = Hub(open_feed or (lambda view: open_view(shop, view)), chosen)
    try:
        yield hub
    finally:
        await hub.close()


async def until(what: Callable[[], bool]) -> None:
    """Wait for something that another thread or task does."""
    async with asyncio.timeout(DEADLINE_S):
        while not what():
            await asyncio.sleep(0.002)


async def following(reader: Subscription) -> StreamEvent:
    """The next event, heartbeats included."""
    async with asyncio.timeout(DEADLINE_S):
        return await anext(reader)


async def joined(
    hub: Hub, view: ServedView, key: Sequence[str] = ()
) -> tuple[Client, Subscription]:
    """A client that has received its first event, and its subscription."""
    client, reader = Client(key), await hub.subscribe(view)
    client.take(await following(reader))
    return client, reader


def stats(hub: Hub, name: str) -> StreamStats:
    return next(one for one in hub.stats() if one.name == name)


def rows_of(event: StreamEvent) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(event.data)["rows"]
    return rows


def snapshot_of(event: StreamEvent) -> int | None:
    snapshot: int | None = json.loads(event.data)["snapshot"]
    return snapshot


class Client:
    """Replays events; fails if one contradicts the events before it.

    With a `key`, rows are unique by it; otherwise they are a multiset.
    """

    def __init__(self, key: Sequence[str] = ()) -> None:
        self.key = tuple(key)
        self.last_id: str | None = None
        self.snapshot = 0
        self.begun = 0
        self.seen: list[int] = []
        self.bag: Counter[tuple[Any, ...]] = Counter()
        self._parts: list[dict[str, Any]] = []
        self._open: str | None = None

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        """The rows of the table, rebuilt from the events."""
        return sorted(self.bag.elements(), key=repr)

    def take(self, event: StreamEvent) -> None:
        self._check_forms(event)
        body = json.loads(event.data)
        if event.kind == "heartbeat":
            assert self._open is None
            self.last_id = event.id
            return
        assert event.kind in ("snapshot", "changes")
        # The parts of an event are consecutive, and only the last one has the id.
        assert self._open in (None, event.kind)
        assert (event.id is None) == body["more"]
        self._open = event.kind if body["more"] else None
        self._parts += body["rows"]
        if body["more"]:
            return
        rows, self._parts = self._parts, []
        snapshot = body["snapshot"] or 0
        if event.kind == "snapshot":
            self.begun += 1
            self.bag.clear()
            assert all(row["rowkind"] == "+I" for row in rows)
        else:
            assert snapshot > self.snapshot or not rows, "a change came twice, or too late"
            self.seen.append(snapshot)
        self.snapshot, self.last_id = snapshot, event.id
        self._apply(rows)

    def lost(self) -> None:
        """The connection broke: what came of an unfinished event is forgotten."""
        self._parts, self._open = [], None

    def _apply(self, rows: list[dict[str, Any]]) -> None:
        for row in rows:
            kind, values = row["rowkind"], tuple(v for n, v in row.items() if n != "rowkind")
            if kind in ("-U", "-D"):
                assert self.bag[values] > 0, f"{kind} of a row that is not there: {values}"
                self.bag[values] -= 1
            else:
                assert kind in ("+I", "+U")
                self.bag[values] += 1
        self.bag = +self.bag
        if self.key:
            names = [name for name in (rows[0] if rows else {}) if name != "rowkind"]
            places = [names.index(name) for name in self.key if name in names]
            keys = Counter(tuple(row[i] for i in places) for row in self.bag.elements())
            assert not rows or max(keys.values(), default=1) == 1, "two rows of one key"

    @staticmethod
    def _check_forms(event: StreamEvent) -> None:
        body, message = json.loads(event.data), json.loads(event.text)
        assert message.pop("type") == event.kind
        assert message.pop("id", None) == event.id
        assert message == body
        lines = event.sse.decode().split("\n")
        assert lines[-2:] == ["", ""]
        head = [] if event.id is None else [f"id: {event.id}"]
        assert lines[:-2] == [*head, f"event: {event.kind}", f"data: {event.data}"]


def at(snapshot: int) -> Callable[[Client], bool]:
    """A predicate: the client has reached that snapshot."""
    return lambda client: client.snapshot == snapshot


async def take_until(
    client: Client, reader: Subscription, what: Callable[[Client], bool]
) -> list[StreamEvent]:
    """Replay events until the predicate holds; returns those events."""
    taken = []
    async with asyncio.timeout(DEADLINE_S):
        while not what(client):
            event = await anext(reader)
            client.take(event)
            taken.append(event)
    return taken


class Gate:
    """Feeds that poll only while the gate is open, and raise the queued `errors`."""

    def __init__(self, shop: Any) -> None:
        self._shop = shop
        self._open = threading.Event()
        self._open.set()
        self._waiting = threading.Event()
        self.errors: list[BaseException] = []

    def shut(self) -> None:
        """Block polls; returns when none is in progress."""
        self._waiting.clear()
        self._open.clear()
        assert self._waiting.wait(DEADLINE_S)

    def open(self) -> None:
        self._open.set()

    def look(self) -> None:
        if not self._open.is_set():
            self._waiting.set()
            assert self._open.wait(DEADLINE_S)
        if self.errors:
            raise self.errors.pop(0)

    def open_feed(self, view: ServedView) -> Feed:
        gate = self

        class Gated(TableFeed):
            def poll(self) -> FeedChange | None:
                gate.look()
                return super().poll()

        return Gated(Warehouse(str(self._shop.path)), view.source, view.columns)
