"""The overview of the page: pipelines and views by trouble, and the server's queues."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect
from tests.integration.serve.browser import PHONE, WIDE, visit
from tests.serving import servers
from tests.unit.conftest import Shop

from streamhouse.runtime.monitoring.process import own
from streamhouse.runtime.monitoring.status import Status, Statuses
from streamhouse.serve.tokens import BearerToken, Scope, digest

TOKEN = "a-token-for-the-tests-of-the-overview"


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    """Tables of different ages, and three pipelines, one of which has failed."""
    shop = Shop(tmp_path / "warehouse")
    shop.write(shop.sales("older"), ("Chad", 1, 1.5))
    shop.write(shop.sales("newer"), ("Chad", 1, 1.5), ("Mali", 1, 1.5))
    shop.sales("never")
    statuses, now = Statuses({"warehouse": str(shop.path)}), time.time_ns() // 1_000_000
    status = Status("a_running_one", "running", own(), now, now)
    statuses.write(status)
    statuses.write(replace(status, name="b_stopped_one", state="stopped"))
    statuses.write(replace(status, name="c_failed_one", state="failed", error="the disk is full"))
    return shop.path


@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["wide", "phone"])
def test_overview_by_trouble(warehouse: Path, browser: Browser, size: tuple[int, int]) -> None:
    with servers(warehouse) as serve, visit(browser, serve().url, size) as page:
        expect(page.get_by_role("heading", level=1)).to_have_text("Overview")
        tiles = page.locator(".tile strong")
        expect(tiles).to_have_text(["1 failed", "–", "no errors", "3", "0 waiting"])
        pipelines = page.get_by_role("region", name="Pipelines by trouble").locator("tbody tr")
        names = pipelines.locator("td:first-child")
        expect(names).to_have_text(["c_failed_one", "a_running_one", "b_stopped_one"])
        expect(pipelines.first).to_contain_text("the disk is full")
        views = page.get_by_role("region", name="Views by age").locator("tbody tr")
        names = views.locator("td:first-child")
        expect(names).to_have_text(["shop.older", "shop.newer", "shop.never"])
        expect(views.nth(1)).to_contain_text("2 rows")
        expect(views.last).to_contain_text("empty")
        Statuses({"warehouse": str(warehouse)}).forget("c_failed_one")
        expect(tiles.first).to_have_text("1 running")
        pipelines.first.get_by_role("link").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("a_running_one")
        page.keyboard.press("o")
        expect(page.get_by_role("heading", level=1)).to_have_text("Overview")


def test_overview_of_a_token_for_one_view(warehouse: Path, browser: Browser) -> None:
    """What the token may not see is not there, and the reason is shown."""
    token = BearerToken(digest(TOKEN), Scope("one", views=("shop.older",)))
    with (
        servers(warehouse) as serve,
        visit(browser, serve(tokens=(token,)).url, expected="401|403|404") as page,
    ):
        page.get_by_label("Token", exact=True).fill(TOKEN)
        page.keyboard.press("Enter")
        views = page.get_by_role("region", name="Views by age").locator("tbody tr")
        expect(views).to_have_count(1)
        expect(page.get_by_role("region", name="Pipelines by trouble")).to_have_count(0)
        expect(page.locator(".overview .hint").first).not_to_be_empty()
