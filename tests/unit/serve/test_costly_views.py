"""Streams of views whose computation takes long: limits, and its end with the last subscriber."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from typing import Any

import pyarrow as pa
import pytest
from tests.serving import Serving, problem
from tests.unit.serve.streams import a_hub, following, run
from tests.waiting import DEADLINE_S, until

from streamhouse.duckdb_engine import Limits
from streamhouse.errors import BusyError, ExpiredError
from streamhouse.paimon.catalog.views import Views
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.serve.admission import fair_queue
from streamhouse.serve.admission.fair_queue import FairQueue, ViewComputations
from streamhouse.serve.feeds import view_feed
from streamhouse.serve.feeds.feed import Feed
from streamhouse.serve.feeds.view_feed import ViewFeed, open_served_view
from streamhouse.serve.settings import StreamSettings
from streamhouse.serve.views.served_view import ServedView
from streamhouse.sql.plan import Column, ViewInfo

VIEW = "shop.pairs"
UPGRADE = (
    b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
)


def pairs(shop: Any, numbers: int) -> str:
    """A view that takes the fourth power of that many steps."""
    table: str = shop.create("numbers", [Column("n", "BIGINT")])
    shop.write(table, *((n,) for n in range(numbers)))
    text = (
        "SELECT SUM(a.n * b.n + c.n * d.n) AS n FROM shop.numbers a CROSS JOIN shop.numbers b "
        "CROSS JOIN shop.numbers c CROSS JOIN shop.numbers d"
    )
    Views(shop.warehouse).create(ViewInfo(("shop", "pairs"), (Column("n", "BIGINT"),), text))
    return table


class Computations:
    """How many queries of views run now."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = self.most = 0
        query_rows, lock = ViewFeed._query_rows, threading.Lock()

        def counted(feed: ViewFeed, limits: Limits | None) -> pa.Table:
            with lock:
                self.count += 1
                self.most = max(self.most, self.count)
            try:
                return query_rows(feed, limits)
            finally:
                with lock:
                    self.count -= 1

        monkeypatch.setattr(ViewFeed, "_query_rows", counted)

    def running(self) -> bool:
        return self.count > 0


def polling() -> bool:
    return any(thread.name == f"follow {VIEW}" for thread in threading.enumerate())


@pytest.mark.parametrize("head", [b"", UPGRADE], ids=["events", "websocket"])
def test_the_computation_ends_with_its_last_subscriber(
    serve: Any,
    shop: Any,
    head: bytes,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pairs(shop, 2_000)
    computations = Computations(monkeypatch)
    server: Serving = serve(streams=StreamSettings(linger_s=0.0), log="text")
    request = b"GET /views/%s/changes HTTP/1.1\r\nHost: localhost\r\n" % VIEW.encode()
    with contextlib.ExitStack() as stack:
        for _ in range(2):
            reader = socket.create_connection(("127.0.0.1", server.port), timeout=DEADLINE_S)
            stack.enter_context(reader).sendall(request + head + b"\r\n")
            until(computations.running)
        time.sleep(0.3)
        assert computations.running()
    until(lambda: not computations.running())
    until(lambda: not polling())
    server.close()
    written = capfd.readouterr().err
    assert "Traceback" not in written and "ERROR" not in written


def test_a_first_computation_obeys_the_time_limit(
    serve: Any, shop: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamhouse.serve.settings._READ_S", 0.3)
    pairs(shop, 2_000)
    server: Serving = serve(query_s=0.3)
    message = problem(server.get(f"/views/{VIEW}/changes"), 413, "too_large")
    assert "took longer than 0.3 s" in message
    until(lambda: not polling())


def test_subscribers_of_a_view_that_became_costly_start_again(shop: Any) -> None:
    table = pairs(shop, 2)

    feeds: list[Any] = []

    def open_feed(view: ServedView) -> Feed:
        feeds.append(open_served_view(Warehouse(str(shop.path)), view, None, Limits(DEADLINE_S)))
        feed: Feed = feeds[-1]
        return feed

    async def work() -> None:
        async with a_hub(shop, open_feed) as hub:
            reader = await hub.subscribe(ServedView(VIEW, VIEW))
            assert (await following(reader)).kind == "snapshot"
            for feed in feeds:
                feed.limits = Limits(0.3)
            shop.write(table, *((n,) for n in range(2_000)))
            with pytest.raises(ExpiredError, match="limits on memory or time"):
                await following(reader)

    run(work())


def test_few_costly_views_are_computed_at_a_time(
    serve: Any, shop: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others wait, or are refused; a short one is computed beside them; what ends makes room."""
    monkeypatch.setattr(fair_queue, "SHORT_S", 0.2)
    monkeypatch.setattr(view_feed, "SHORT_S", 0.2)
    monkeypatch.setattr(fair_queue, "FIRST_WAIT_S", 0.1)
    pairs(shop, 2_000)
    shop.write(shop.sales(), ("Chad", 1, 1.5))
    served = tuple(
        ServedView(f"s.costly{number}", VIEW, None, f"n > {number}") for number in range(6)
    )
    small = ServedView("s.small", "shop.sales", None, "orders > 0")
    computations = Computations(monkeypatch)
    server: Serving = serve(views=(*served, small), queries=2, streams=StreamSettings(linger_s=0.0))
    queues = server.app.state.request_queues.views
    with contextlib.ExitStack() as stack:
        for view in served[:2]:
            request = b"GET /views/%s/changes HTTP/1.1\r\nHost: localhost\r\n\r\n"
            reader = socket.create_connection(("127.0.0.1", server.port), timeout=DEADLINE_S)
            stack.enter_context(reader).sendall(request % view.name.encode())
        until(lambda: queues.long.running == 2)
        for view in served[2:]:
            message = problem(server.get(f"/views/{view.name}/changes"), 503, "busy")
            assert "maximum of 2 computations of streamed views" in message
        # However slow the machine is, this one is short.
        for module in (fair_queue, view_feed):
            monkeypatch.setattr(module, "SHORT_S", DEADLINE_S / 2)
        with server.http.stream("GET", "/views/s.small/changes") as events:
            assert next(events.iter_lines()).startswith("id:")
        assert queues.long.running == 2 and computations.most <= 2 + 4
    until(lambda: not computations.running() and queues.long.running == 0)


def test_slots_for_computations_are_fair_and_cancelled_waits_leave_nothing() -> None:
    queue = FairQueue("computations", 1, 100)
    slots, order = ViewComputations(queue, queue), list[str]()

    def work(client: str, cancelled: threading.Event) -> None:
        with contextlib.suppress(BusyError), slots.slot(queue, client, cancelled, False):
            order.append(client)

    async def main() -> None:
        slots.loop = asyncio.get_running_loop()
        held = await queue.acquire("first", 1)
        given_up = threading.Event()
        jobs = [("a", threading.Event())] * 5 + [("b", threading.Event())] + [("c", given_up)]
        threads = []
        for count, (client, cancelled) in enumerate(jobs, 1):
            threads.append(threading.Thread(target=work, args=(client, cancelled)))
            threads[-1].start()
            while queue.waiting < count:
                await asyncio.sleep(0.01)
        given_up.set()
        while queue.waiting == len(jobs):
            await asyncio.sleep(0.01)
        held.close()
        while any(thread.is_alive() for thread in threads) or queue.running:
            await asyncio.sleep(0.01)

    asyncio.run(main())
    assert order.index("b") <= 1 and sorted(order) == ["a"] * 5 + ["b"]
