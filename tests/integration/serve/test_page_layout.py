"""The page at each size: no text or control lies under another, and the past is shown as such."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect
from tests.integration.serve.browser import visit
from tests.serving import Serving
from tests.unit.conftest import Shop

from streamhouse.serve.settings import StreamSettings
from streamhouse.sql.plan import Column

SIZES = (((1440, 900), False), ((1024, 768), True), ((390, 780), False))
ROWS = 600
LONG = "of_a_view_whose_name_is_as_long_as_names_of_tables_are"
TOO_LARGE = "413"
"""What the page meets at first: a stream of the first view would have too many rows."""
SCREENS = ("#/sql", "#/pipelines", "#/editor")
OVERLAPS = """() => {
  const found = [];
  const clipped = (rect, element) => {
    let { left, top, right, bottom } = rect;
    for (let at = element; at; at = at.parentElement) {
      const style = getComputedStyle(at);
      if (style.overflow === "visible") continue;
      const box = at.getBoundingClientRect();
      left = Math.max(left, box.left); right = Math.min(right, box.right);
      top = Math.max(top, box.top); bottom = Math.min(bottom, box.bottom);
    }
    right = Math.min(right, innerWidth); bottom = Math.min(bottom, innerHeight);
    left = Math.max(left, 0); top = Math.max(top, 0);
    return right - left > 1 && bottom - top > 1 ? { left, top, right, bottom } : null;
  };
  const things = [];
  const add = (element, rect, text) => {
    const box = clipped(rect, element);
    if (box) things.push({ element, box, text });
  };
  const controls = "button, a, input, select, textarea";
  for (const each of document.querySelectorAll(controls)) {
    if (each.closest(".unseen, .skip, .grid-body") || each.matches(".code-text")) continue;
    const text = each.outerHTML.slice(0, 60);
    if (each.checkVisibility()) add(each, each.getBoundingClientRect(), text);
  }
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const { parentElement, textContent } = texts.currentNode;
    if (!textContent.trim() || !parentElement.checkVisibility()) continue;
    if (parentElement.closest(`.unseen, .skip, .grid-scroll, .code, dialog, ${controls}`)) continue;
    const range = document.createRange();
    range.selectNodeContents(texts.currentNode);
    for (const rect of range.getClientRects()) add(parentElement, rect, textContent.trim());
  }
  things.forEach((one, index) => {
    for (const other of things.slice(index + 1)) {
      if (one.element.contains(other.element) || other.element.contains(one.element)) continue;
      if (one.element.closest(".search") && other.element.closest(".search")) continue;
      const [a, b] = [one.box, other.box];
      const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (wide > 1.5 && high > 3) found.push(`${one.text} | ${other.text}`);
    }
  });
  if (document.documentElement.scrollWidth > innerWidth) found.push("the page is too wide");
  return found;
}"""


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    made: Shop = Shop(tmp_path_factory.mktemp("layout") / "warehouse")
    columns = (Column("country_of_the_customer", "STRING"), Column("orders", "BIGINT"),
               Column("revenue", "DOUBLE"), Column("at", "TIMESTAMP(3)"))  # fmt: skip
    table = made.create(LONG, columns, ["country_of_the_customer"])
    for number in range(1, 6):
        rows = [(f"Country {n}", n * number, n * 1e6, 1_700_000_000_000) for n in range(1, 9)]
        made.write(table, *rows, ("Nowhere", number, float("inf"), None))
    log = made.create("log", (Column("n", "BIGINT"),))
    made.write(log, *((n,) for n in range(ROWS)))
    made.write(made.sales(), ("Chad", 1, 1.5), ("Mali", 7, float("nan")))
    return made


@pytest.fixture(scope="module")
def server(shop: Shop) -> Iterator[Serving]:
    started = Serving(shop.path, streams=StreamSettings(every_ms=20, max_rows=100))
    yield started
    started.close()


def checked(page: Page, name: str) -> None:
    page.wait_for_timeout(300)
    folder = os.environ.get("STREAMHOUSE_SCREENSHOTS")
    if folder:
        page.screenshot(path=Path(folder) / f"{name}.png")
    assert page.evaluate(OVERLAPS) == [], name


def shown(page: Page, server: Serving, view: str) -> None:
    page.goto(f"{server.url}/#/views/{view}")
    expect(page.locator(".grid-body .cell").first).to_be_visible()


@pytest.mark.parametrize(("size", "dark"), SIZES, ids=["wide", "narrow", "phone"])
def test_nothing_lies_under_anything_else(
    server: Serving, browser: Browser, size: tuple[int, int], dark: bool
) -> None:
    label = f"{size[0]}-{'dark' if dark else 'light'}"
    with visit(browser, server.url, size, dark, expected=TOO_LARGE) as page:
        shown(page, server, f"shop.{LONG}")
        checked(page, f"live-{label}")
        page.get_by_role("button", name="Live lines").click()
        page.get_by_role("button", name="One snapshot back").click()
        expect(page.locator(".past-banner")).to_contain_text("This is snapshot 4")
        checked(page, f"past-{label}")
        page.get_by_role("tab", name="Schema").click()
        expect(page.locator(".details table").first).to_be_visible()
        expect(page.locator(".past-banner")).to_be_hidden()
        checked(page, f"schema-{label}")
        page.get_by_role("tab", name="Live", exact=True).click()
        expect(page.locator(".past-banner")).to_be_visible()
        shown(page, server, "shop.log")
        expect(page.locator(".notice")).to_contain_text("newest 500 rows")
        checked(page, f"large-{label}")
        for screen in SCREENS:
            page.goto(f"{server.url}/{screen}")
            checked(page, f"{screen.strip('#/')}-{label}")


def test_a_large_table_without_a_key_shows_its_newest_rows(
    server: Serving, browser: Browser, shop: Shop
) -> None:
    with visit(browser, server.url, expected=TOO_LARGE) as page:
        shown(page, server, "shop.log")
        first = page.locator(".grid-body .grid-row").first
        expect(first).to_have_text(f"{ROWS - 1:,}")
        shop.write("shop.log", (ROWS,))
        expect(first).to_have_text(f"{ROWS:,}")


def test_infinity_and_nan_are_numbers(server: Serving, browser: Browser) -> None:
    with visit(browser, server.url, expected=TOO_LARGE) as page:
        shown(page, server, f"shop.{LONG}")
        expect(page.get_by_role("cell", name="Infinity")).to_be_visible()
        shown(page, server, "shop.sales")
        expect(page.get_by_role("cell", name="NaN")).to_be_visible()
        page.get_by_role("button", name="revenue").click()
        expect(page.locator(".grid-body .grid-row").first).to_contain_text("Mali")
        page.get_by_role("button", name="revenue").click()
        expect(page.locator(".grid-body .grid-row").first).to_contain_text("Chad")


def test_live_lines_never_run_backwards(server: Serving, browser: Browser, shop: Shop) -> None:
    """Also while the clocks of the browser and the server differ, and differ otherwise later."""
    with visit(browser, server.url, expected=TOO_LARGE) as page:
        page.evaluate(
            "const now = Date.now; let calls = 0;Date.now = () => now() + ((calls++ % 3) - 1) * 9e6"
        )
        shown(page, server, f"shop.{LONG}")
        page.get_by_role("button", name="Live lines").click()
        for number in range(6):
            shop.write(f"shop.{LONG}", ("Country 1", number, 9e9 + number, None))
            expect(page.get_by_role("cell", name=f"{9e9 + number:,.2f}")).to_be_visible()
        path: Any = page.locator("svg.lines path.of-0")
        expect(path).to_be_visible()
        page.wait_for_timeout(300)
        xs = [float(x) for x in re.findall(r"[ML]([-\d.]+) ", path.get_attribute("d"))]
        assert len(xs) >= 6 and xs == sorted(xs)
