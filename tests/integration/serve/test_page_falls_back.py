"""The page with a broken connection: reconnects, and fallbacks for WebSockets."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from typing import TypeAlias

import pytest
from playwright.sync_api import Browser, Page, expect
from tests.integration.serve.browser import visit
from tests.integration.serve.proxy import without_sockets
from tests.serving import Serving, servers
from tests.unit.conftest import Shop

from streamhouse.serve.settings import StreamSettings

Serve: TypeAlias = Callable[..., Serving]

BROKEN = "ERR_|WebSocket connection|Failed to load resource"
SMALL = StreamSettings(max_rows=2)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    return Shop(tmp_path_factory.mktemp("fallbacks") / "warehouse")


@pytest.fixture
def serve(shop: Shop) -> Iterator[Serve]:
    """Starts servers over the shop's warehouse."""
    with servers(shop.path) as start:
        yield start


@pytest.fixture
def sales(shop: Shop, request: pytest.FixtureRequest) -> str:
    """A table of the test's own, with three rows."""
    name = shop.sales(re.sub(r"\W", "_", request.node.name))
    shop.write(name, ("Chad", 1, 1.5), ("Mali", 7, 2.0), ("Peru", 5, 3.0))
    return name


class Visitor:
    """A browser page with the orders of three countries."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._state = page.locator(".fresh .pill")
        self._lost = page.locator("#lost")
        page.evaluate("() => { window.loaded = 'once'; }")

    def sees(self, state: str, *orders: str) -> None:
        """Wait until the page shows this state and these orders."""
        cells = self._page.locator(".grid-body .cell:nth-child(2)")
        expect(cells).to_have_text(list(orders))
        expect(self._state).to_have_text(state)
        if state == "reconnecting":
            expect(self._lost).to_contain_text("Connection lost, reconnecting")
        else:
            expect(self._lost).to_be_hidden()
        assert self._page.evaluate("() => window.loaded") == "once"


def goes_on(
    visitor: Visitor, shop: Shop, table: str, state: str, server: Serving, serve: Serve
) -> None:
    """A change is shown; after a server restart the page has the missed changes."""
    visitor.sees(state, "1", "7", "5")
    shop.write(table, ("Chad", 2, 1.5))
    visitor.sees(state, "2", "7", "5")
    server.close()
    visitor.sees("reconnecting", "2", "7", "5")
    shop.write(table, ("Mali", 8, 2.0))
    serve(port=server.port, streams=server.settings.streams)
    visitor.sees(state, "2", "8", "5")
    shop.write(table, ("Peru", 6, 3.0))
    visitor.sees(state, "2", "8", "6")


def test_server_restart(browser: Browser, shop: Shop, serve: Serve, sales: str) -> None:
    server = serve()
    with visit(browser, f"{server.url}/#/views/{sales}", expected=BROKEN) as page:
        goes_on(Visitor(page), shop, sales, "live", server, serve)


def test_server_sent_events_without_websockets(
    browser: Browser, shop: Shop, serve: Serve, sales: str
) -> None:
    server = serve()
    with (
        without_sockets(server.port) as proxy,
        visit(browser, f"{proxy.url}/#/views/{sales}", expected=BROKEN) as page,
    ):
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        goes_on(Visitor(page), shop, sales, "live", server, serve)
        assert proxy.refused > 0
        assert any(url.startswith(f"{proxy.url}/views/{sales}/changes") for url in asked)


def test_polling_for_views_too_large_for_a_stream(
    browser: Browser, shop: Shop, serve: Serve, sales: str
) -> None:
    server = serve(streams=SMALL)
    with visit(browser, f"{server.url}/#/views/{sales}", expected=BROKEN) as page:
        notice = page.get_by_text("This view has too many rows for a stream")
        expect(notice).to_be_visible()
        goes_on(Visitor(page), shop, sales, "polled", server, serve)
        expect(notice).to_be_visible()


@pytest.mark.parametrize("sockets", [True, False], ids=["sockets", "events"])
def test_dropped_table_is_missing_until_recreated(
    browser: Browser, shop: Shop, serve: Serve, sales: str, sockets: bool
) -> None:
    server, name = serve(streams=StreamSettings(missing_s=0.0)), sales.partition(".")[2]
    with contextlib.ExitStack() as stack:
        url = server.url if sockets else stack.enter_context(without_sockets(server.port)).url
        page = stack.enter_context(visit(browser, f"{url}/#/views/{sales}", expected=BROKEN))
        visitor, notice = Visitor(page), page.get_by_text("no longer exists")
        visitor.sees("live", "1", "7", "5")
        shop.write(sales, ("Chad", 2, 1.5))
        visitor.sees("live", "2", "7", "5")
        shop.warehouse.drop_table("shop", name)
        expect(notice).to_be_visible()
        visitor.sees("missing", "2", "7", "5")
        shop.sales(name)
        shop.write(sales, ("Oman", 3, 2.0))
        visitor.sees("live", "3")
        expect(notice).to_be_hidden()
        # Of the past of the other table nothing is left.
        expect(page.locator(".history-text")).to_have_text("snapshot 1")
        expect(page.get_by_role("slider", name="Snapshot")).to_be_disabled()
