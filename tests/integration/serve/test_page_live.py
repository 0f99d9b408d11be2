"""The page with a real pipeline that it starts and stops: MySQL, the view, the browser."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from playwright.sync_api import Page, expect
from tests.integration.conftest import Installed
from tests.integration.serve.browser import WAIT_MS, chromium, visit
from tests.integration.serve.server import Server
from tests.waiting import until

from streamhouse.demo.revenue.scenario import VIEW, Scenario
from streamhouse.demo.scenario import NO_END

MOVES = (
    (7, "China"), (1, "Chile"), (2, "Ghana"), (3, "Kenya"), (4, "Laos"), (5, "Malta"), (6, "Nepal"),
    *((customer, f"Land {customer}") for customer in range(8, 40)),
)  # fmt: skip
TRIES_S = 120.0


# Beside other tests a wall-clock limit would measure the load that they make.
@pytest.mark.parametrize(
    ("spark", "limit_s"),
    [(False, WAIT_MS / 1000), pytest.param(True, 2.0, marks=pytest.mark.soak)],
)
def test_mysql_update_reaches_the_page(
    installed_demo: Installed, tmp_path: Path, spark: bool, limit_s: float
) -> None:
    folder = tmp_path / "demo"
    installed_demo(folder / "mariadb")
    with (
        Scenario(folder, 200) as scenario,
        ended(Path(scenario.warehouse.path)),
        Server(Path(scenario.warehouse.path), tmp_path, "--allow-run", spark=spark) as server,
        chromium() as browser,
        visit(browser, f"{server.url}/#/editor") as page,
    ):
        scenario.fill_customers()
        scenario._write_script(NO_END)
        start(page, (scenario.folder / "revenue.sql").read_text())
        page.goto(f"{server.url}/#/views/{VIEW}")
        page.get_by_role("cell", name="France", exact=True).wait_for(timeout=WAIT_MS)
        took: list[float] = []
        deadline = time.monotonic() + TRIES_S
        for customer, country in MOVES:
            took.append(move(page, scenario, 1 + (customer - 1) % 10, country))
            if took[-1] < limit_s or time.monotonic() > deadline:
                break
        assert took[-1] < limit_s, took
        expect(page.locator(".fresh-delay")).to_have_text(re.compile(r"^[\d,]+ ms to screen$"))
        expect(page.locator(".bars .label", has_text="China")).to_be_visible()
        page.keyboard.press("p")
        page.get_by_role("link", name="revenue").click()
        expect(page.locator(".graph .node", has_text="country_sales").first).to_be_visible()
        expect(page.locator(".pipelines tbody tr")).to_have_count(3)
        page.get_by_role("button", name="Stop", exact=True).click()
        expect(page.locator(".state-line .pill")).to_have_text("stopped")
        expect(page.get_by_role("button", name="Start again")).to_be_visible()
        page.get_by_role("button", name="Start from scratch").click()
        page.get_by_role("button", name="Delete and start").click()
        expect(page.locator(".state-line .pill")).to_have_text("running")
        log = Path(scenario.warehouse.path) / ".pipelines/revenue/log"
        until(lambda: "shop.country_sales: starts from scratch" in log.read_text(), log.read_text)


def start(page: Page, script: str) -> None:
    """Run a script from the editor."""
    page.locator("#script-name").fill("revenue")
    page.get_by_label("Script", exact=True).fill(script)
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text("revenue")
    expect(page.locator(".state-line .pill")).to_have_text("running")


def move(page: Page, scenario: Scenario, customer: int, country: str) -> float:
    """Have a customer move; seconds until the page has the country."""
    started = time.monotonic()
    scenario.execute(f"UPDATE customers SET country = '{country}' WHERE id = {customer}")
    page.get_by_role("cell", name=country, exact=True).wait_for(timeout=WAIT_MS)
    return time.monotonic() - started


@contextlib.contextmanager
def ended(warehouse: Path) -> Iterator[None]:
    """Pipelines outlive their server: whatever still runs on the warehouse is killed."""
    try:
        yield
    finally:
        for process in psutil.process_iter(["cmdline"]):
            if str(warehouse) in (process.info["cmdline"] or []):
                with contextlib.suppress(psutil.Error):
                    for each in (*process.children(recursive=True), process):
                        each.kill()
