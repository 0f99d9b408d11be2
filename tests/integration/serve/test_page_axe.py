"""axe-core finds nothing on any screen of the page, in both themes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect
from tests.integration.serve.browser import PHONE, WIDE, visit
from tests.serving import Serving
from tests.unit.conftest import Shop

from streamhouse.runtime.monitoring.process import own
from streamhouse.runtime.monitoring.status import Status, Statuses
from streamhouse.sql.plan import Column

SETTLED_MS = 800
"""Animations that change contrasts for a moment have ended."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    shop = Shop(tmp_path_factory.mktemp("axe") / "warehouse")
    for number in range(3):
        shop.write(shop.sales() if not number else "shop.sales", ("Chad", number, 1.5))
    wide = [Column("id", "INT"), *(Column(f"column_{n}", "DOUBLE") for n in range(60))]
    name = shop.create("wide", wide, ["id"])
    shop.write(name, *((n, *(n / (m + 1) for m in range(60))) for n in range(50)))
    shop.sales("empty")
    statuses, now = Statuses({"warehouse": str(shop.path)}), time.time_ns() // 1_000_000
    status = Status("live", "running", own(), now, now)
    statuses.write(status)
    statuses.write(replace(status, name="old", state="failed", error="the table is gone"))
    statuses.store_masked_script("old", "SELECT 1")
    started = Serving(shop.path, allow_run=True)
    yield started
    started.close()


def findings(page: Page) -> list[str]:
    page.wait_for_timeout(SETTLED_MS)
    found = Axe().run(page).response["violations"]
    return [f"{each['id']}: {node['html'][:200]}" for each in found for node in each["nodes"]]


@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["wide", "phone"])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_axe_finds_nothing(
    server: Serving, browser: Browser, size: tuple[int, int], dark: bool
) -> None:
    found: dict[str, list[str]] = {}
    with visit(browser, server.url, size, dark) as page:
        for screen in ("", "editor", "pipelines", "pipelines/old", "views/shop.empty"):
            page.goto(f"{server.url}/#/{screen}")
            expect(page.get_by_role("heading", level=1)).to_be_visible()
            found[screen] = findings(page)
        for view in ("shop.wide", "shop.sales"):
            page.goto(f"{server.url}/#/views/{view}")
            expect(page.locator(".grid-body .cell").first).to_be_visible()
            found[view] = findings(page)
        page.locator(".grid-body .cell").first.click()
        found["row"] = findings(page)
        page.keyboard.press("Escape")
        for tab in ("Schema", "Options", "Snapshots", "Files", "Use"):
            page.get_by_role("tab", name=tab).click()
            expect(page.locator(".details > *").first).to_be_visible()
            found[tab] = findings(page)
        page.get_by_role("tab", name="Live", exact=True).click()
        page.get_by_role("button", name="One snapshot back").click()
        found["past"] = findings(page)
        page.goto(f"{server.url}/#/sql")
        text = page.get_by_label("Query", exact=True)
        text.fill("SELECT country, revenue FROM shop.sales")
        text.press("Control+Enter")
        expect(page.get_by_role("table", name="Result")).to_be_visible()
        found["result"] = findings(page)
        page.get_by_role("tab", name="Chart").click()
        text.press_sequentially(" WHERE cou")
        found["chart"] = findings(page)
        page.get_by_role("button", name="Keyboard shortcuts").click()
        found["dialog"] = findings(page)
    assert {screen: each for screen, each in found.items() if each} == {}
