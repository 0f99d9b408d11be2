"""Makes docs/page.png: the revenue view of the real demo in a browser, after the move to China.

    .venv/bin/python scripts/screenshot.py [FILE]

Takes about two minutes, and needs what `make setup` prepares.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

from playwright.sync_api import sync_playwright

from streamhouse.demo.measured_run import wait_for_first_result
from streamhouse.demo.driver import DemoPage
from streamhouse.demo.revenue.scenario import MOVE, VIEW, Scenario

WIDTH, HEIGHT = 1200, 750
BEFORE_S, AFTER_S = 20.0, 40.0
SETTLED_MS = 500
ORDERS_PER_SECOND = 1000


def go_on() -> None:
    """What the demo does at each step: nobody asks it to end."""


def picture(url: str, scenario: Scenario, target: Path) -> None:
    """Have the view open while orders stream in and a customer moves; then draw it."""
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=arguments
        )
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, locale="en-US")
        page.goto(f"{url}/#/views/{VIEW}")
        page.wait_for_timeout(BEFORE_S * 1000)
        scenario.execute(MOVE)
        page.get_by_role("cell", name="China", exact=True).wait_for()
        page.wait_for_timeout(AFTER_S * 1000)
        # With the cells of the last change still alight, and the bars in their places.
        page.locator("[data-flash]").first.wait_for()
        page.wait_for_timeout(SETTLED_MS)
        page.screenshot(path=target)
        browser.close()


def main() -> None:
    target = Path(sys.argv[1] if sys.argv[1:] else Path(__file__).parents[1] / "docs" / "page.png")
    with (
        tempfile.TemporaryDirectory() as folder,
        Scenario(Path(folder), ORDERS_PER_SECOND) as scenario,
        DemoPage(scenario.warehouse.path, scenario.folder, VIEW) as page,
    ):
        scenario.start()
        wait_for_first_result(scenario, go_on)
        started = time.monotonic()
        picture(page.wait(go_on), scenario, target)
        scenario.driver.stop()
    print(f"{target}: {target.stat().st_size:,} bytes, {time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main()
