"""How the page writes values, and how it draws tables of many columns."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect
from tests.integration.serve.browser import visit
from tests.serving import Serving
from tests.unit.conftest import Shop

from streamhouse.sql.plan import Column

MANY = 200
ROWS = 300
MOST_CELLS = 2_000
NUMBERS = (
    Column("number", "BIGINT"),
    Column("customer_id", "BIGINT"),
    Column("phone", "BIGINT"),
    Column("year", "INT"),
    Column("orders", "INT"),
    Column("ratio", "FLOAT"),
    Column("share", "DOUBLE"),
    Column("exact", "DECIMAL(38, 10)"),
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    shop = Shop(tmp_path_factory.mktemp("values") / "warehouse")
    digits = Decimal("1234567890123456789012345678.1234567891")
    shop.write(
        shop.create("numbers", NUMBERS, ["number"]),
        (1000, 12345, 491701234567, 2026, 12345, 0.1, float("nan"), digits),
        (1001, 12346, 491701234568, 1999, -1234, 16777216.0, float("inf"), Decimal(-5)),
        (1002, None, None, None, None, 1e-10, float("-inf"), None),
    )
    columns = [Column("id", "INT"), *(Column(f"c{n}", "STRING") for n in range(1, MANY))]
    name = shop.create("wide", columns, ["id"])
    shop.write(name, *((row, *(f"{row}/{n}" for n in range(1, MANY))) for row in range(ROWS)))
    started = Serving(shop.path)
    yield started
    started.close()


def test_numbers(server: Serving, browser: Browser) -> None:
    """Ids, keys, years and phones without separators, and no digit of a DECIMAL lost."""
    with visit(browser, f"{server.url}/#/views/shop.numbers") as page:
        null = ["null"] * 4
        exact = "1,234,567,890,123,456,789,012,345,678.1234567891"
        rows = (
            ["1000", "12345", "491701234567", "2026", "12,345", "0.1", "NaN", exact],
            ["1001", "12346", "491701234568", "1999", "-1,234", "16,777,216", "Infinity"],
            ["1002", *null, "1e-10", "-Infinity", "null"],
        )
        rows[1].append("-5.0000000000")
        for at, cells in enumerate(rows):
            row = page.locator(".grid-body .grid-row").nth(at)
            expect(row.locator(".cell")).to_have_text(cells)


def test_only_visible_columns_are_in_the_document(server: Serving, browser: Browser) -> None:
    with visit(browser, f"{server.url}/#/views/shop.wide") as page:
        cells = page.locator(".grid-body .cell")
        first = page.locator(".grid-body .grid-row").first.locator(".cell")
        expect(first.first).to_have_text("0")
        assert cells.count() < MOST_CELLS
        scroll = page.locator(".grid-scroll")
        scroll.evaluate("e => { e.scrollLeft = e.scrollWidth; }")
        expect(first.last).to_have_text(f"0/{MANY - 1}")
        expect(first.last).to_have_attribute("aria-colindex", str(MANY))
        assert cells.count() < MOST_CELLS
        # Each cell lies under its header, also of rows that come into sight later.
        scroll.evaluate("e => { e.scrollTop = 3000; e.scrollLeft = e.scrollWidth / 2; }")
        page.wait_for_timeout(300)
        wrong = page.evaluate(
            """() => [...document.querySelectorAll(".grid-body .cell")].filter((cell) => {
              const at = cell.getAttribute("aria-colindex");
              const head = document.querySelector(`.grid-head [aria-colindex="${at}"]`);
              const [one, other] = [cell, head].map((each) => each.getBoundingClientRect());
              const name = head.textContent.slice(1);
              return Math.abs(one.left - other.left) > 1 || !cell.textContent.endsWith(`/${name}`);
            }).map((cell) => cell.textContent)"""
        )
        assert wrong == []
        assert 100 < cells.count() < MOST_CELLS
        scroll.evaluate("e => { e.scrollTop = 0; e.scrollLeft = 0; }")
        expect(first.first).to_have_text("0")


def test_whole_values_of_a_row(tmp_path: Path, browser: Browser) -> None:
    shop = Shop(tmp_path / "warehouse")
    columns = (
        Column("id", "BIGINT"),
        Column("name", "STRING"),
        Column("payload", "STRING"),
        Column("raw", "BYTES"),
        Column("tags", "ARRAY<BIGINT>"),
    )
    name = shop.create("odd", columns, ["id"])
    payload = '{"a": [1, 9007199254740993123]}'
    shop.write(
        name,
        (1, "\u202eevil  two ", '{"a": [1, null]}', b"\x00\xffabc", [9007199254740993]),
        (2, "", payload, b"", None),
    )
    server = Serving(shop.path)
    try:
        with visit(browser, f"{server.url}/#/views/shop.odd") as page:
            row = page.get_by_role("dialog", name="Row")
            value = row.locator("pre")
            page.get_by_role("cell", name="evil").click()
            expect(value.nth(1)).to_have_text("U+202Eevil··two·")
            expect(value.nth(1).locator("mark")).to_have_text(["U+202E", "··", "·"])
            expect(value.nth(2)).to_have_text('{\n  "a": [\n    1,\n    null\n  ]\n}')
            expect(value.nth(3)).to_contain_text("000000  00 ff 61 62 63")
            expect(value.nth(4)).to_contain_text("9007199254740993")
            row.get_by_role("button", name="Copy id").click()
            expect(row.get_by_role("button", name="Copy id")).to_have_text("Copied")
            page.keyboard.press("Escape")
            expect(row).to_have_count(0)
            # By keyboard; numbers that JSON would round stay as they are.
            page.locator(".grid-scroll").focus()
            page.keyboard.press("Enter")
            expect(value.first).to_have_text("1")
            row.get_by_role("button", name="Close").click()
            page.get_by_role("columnheader", name="id").get_by_role("button").click()
            expect(page.locator(".grid-body .cell").first).to_have_text("2")
            page.locator(".grid-scroll").focus()
            page.keyboard.press("Enter")
            expect(value.nth(1)).to_have_text("(empty text)")
            expect(value.nth(2)).to_have_text(payload)
            expect(value.nth(3)).to_have_text("(no bytes)")
            expect(value.nth(4)).to_have_text("null")
    finally:
        server.close()
