"""Charts that a views file configures."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect
from tests.integration.serve.browser import visit
from tests.integration.serve.server import Server
from tests.unit.conftest import Shop

from streamhouse.sql.plan import Column

VIEWS = """
views:
  - {name: shop.visits, chart: {type: lines, x: at}}
  - {name: shop.bars, table: shop.visits, chart: {type: bars, x: country, y: [paid],
     title: What visitors pay}}
  - {name: shop.seen, table: shop.sales, chart: {type: lines, x: country}}
  - {name: shop.bare, table: shop.sales, chart: {type: none}}
"""
VISITS = (Column("id", "INT"), Column("at", "TIMESTAMP(3)"), Column("country", "STRING"),
          Column("paid", "DOUBLE"))  # fmt: skip


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder: Path = tmp_path_factory.mktemp("charts")
    shop = Shop(folder / "warehouse")
    shop.write(shop.sales(), ("Chad", 1, 1.5), ("Mali", 7, 2.0))
    shop.write(
        shop.create("visits", VISITS, ["id"]),
        *((n, datetime.datetime(2026, 1, 5, 12, n), "Peru", n / 2) for n in range(1, 9)),
    )
    views = folder / "views.yaml"
    views.write_text(VIEWS)
    with Server(shop.path, folder, "--views", str(views)) as started:
        yield started


def first_chart(page: Page, server: Server, name: str) -> None:
    page.goto(f"{server.url}/#/views/{name}")
    expect(page.locator("h1")).to_have_text(name)
    expect(page.locator(".grid-body .cell").first).to_be_visible()


def pressed(page: Page, kind: str) -> None:
    button = page.get_by_role("button", name=kind, exact=True)
    expect(button).to_have_attribute("aria-pressed", "true")


def test_configured_chart_is_shown_first(server: Server, browser: Browser) -> None:
    with visit(browser, server.url) as page:
        first_chart(page, server, "shop.visits")
        pressed(page, "Over time")
        expect(page.get_by_role("heading", name="paid over at")).to_be_visible()
        first_chart(page, server, "shop.bars")
        pressed(page, "Bars")
        expect(page.locator(".bars .label")).to_have_text(["Peru"])
        expect(page.locator(".chart h2")).to_have_text("What visitors pay")
        page.get_by_role("button", name="Over time", exact=True).click()
        expect(page.locator(".chart h2")).to_have_text("paid over at")
        page.get_by_role("button", name="Bars", exact=True).click()
        expect(page.locator(".chart h2")).to_have_text("What visitors pay")
        expect(page.locator("input[spellcheck=false]").first).to_be_attached()
        first_chart(page, server, "shop.seen")
        pressed(page, "Live lines")


def test_view_without_chart(server: Server, browser: Browser) -> None:
    with visit(browser, server.url) as page:
        first_chart(page, server, "shop.bare")
        expect(page.locator(".chart")).to_have_count(0)
