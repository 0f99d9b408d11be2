"""Streams of views whose computation takes long: limits, and its end with the last subscriber."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from tests.serving import DEADLINE_S, Serving, problem
from tests.unit.serve.streams import a_hub, following, run

from streamhouse.duckdb_engine import Limits
from streamhouse.errors import ExpiredError
from streamhouse.paimon.catalog.views import Views
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.serve.feeds.factory import open_served_view
from streamhouse.serve.feeds.feed import Feed
from streamhouse.serve.feeds.view_feed import ViewFeed
from streamhouse.serve.streams.stream_settings import StreamSettings
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


def wait_for(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S / 2
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.01)


class Computations:
    """How many queries of views run now."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        query_rows = ViewFeed._query_rows

        def counted(feed: ViewFeed) -> pa.Table:
            self.count += 1
            try:
                return query_rows(feed)
            finally:
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
            wait_for(computations.running)
        time.sleep(0.3)
        assert computations.running()
    wait_for(lambda: not computations.running())
    wait_for(lambda: not polling())
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
    wait_for(lambda: not polling())


def test_subscribers_of_a_view_that_became_costly_start_again(shop: Any) -> None:
    table = pairs(shop, 2)

    def open_feed(view: ServedView) -> Feed:
        return open_served_view(Warehouse(str(shop.path)), view, None, Limits(1.0))

    async def work() -> None:
        async with a_hub(shop, open_feed) as hub:
            reader = await hub.subscribe(ServedView(VIEW, VIEW))
            assert (await following(reader)).kind == "snapshot"
            shop.write(table, *((n,) for n in range(2_000)))
            with pytest.raises(ExpiredError, match="limits on memory or time"):
                await following(reader)

    run(work())
