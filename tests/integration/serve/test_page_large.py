"""A view with too many rows for a stream: the server filters, orders and groups all of them."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect
from tests.integration.serve.browser import visit
from tests.serving import Serving
from tests.unit.conftest import Shop

from streamhouse.serve.settings import StreamSettings
from streamhouse.sql.plan import Column

ROWS = 700
START = datetime.datetime(2026, 1, 5)
COLUMNS = (
    Column("visit_id", "BIGINT"),
    Column("country", "STRING"),
    Column("amount", "DECIMAL(12, 2)"),
    Column("max_speed", "DOUBLE"),
    Column("at", "TIMESTAMP(3)"),
)
TOO_LARGE = "413"
SUM_BARS = "amount by country: Mali 122,500.00, Chad 122,150.00"


def visits(count: int, first: int = 0) -> list[tuple[object, ...]]:
    """One a minute, in two countries; only number 3 has a name of its own."""
    return [
        (n, "Mali" if n % 2 else "Chad", Decimal(n), n / 4, START + datetime.timedelta(minutes=n))
        for n in range(first, first + count)
    ]


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    made = Shop(tmp_path_factory.mktemp("large") / "warehouse")
    made.write(made.create("visits", COLUMNS), *visits(ROWS))
    by_id = made.create("visits_by_id", COLUMNS, ["visit_id"])
    made.write(by_id, *visits(ROWS))
    return made


@pytest.fixture(scope="module", params=[100, 100_000], ids=["large", "streamed"])
def server(shop: Shop, request: pytest.FixtureRequest) -> Iterator[Serving]:
    """The same rows, too many for a stream, and not."""
    started = Serving(shop.path, streams=StreamSettings(every_ms=20, max_rows=request.param))
    yield started
    started.close()


@pytest.fixture(scope="module")
def small(shop: Shop) -> Iterator[Serving]:
    started = Serving(shop.path, streams=StreamSettings(every_ms=20, max_rows=100))
    yield started
    started.close()


def at(server: Serving, name: str) -> str:
    return f"{server.url}/#/views/{name}"


def chart(page: Page, name: str) -> None:
    expect(page.get_by_role("img", name=name)).to_be_visible()


def test_filter_and_order_are_over_all_rows(small: Serving, browser: Browser, shop: Shop) -> None:
    with visit(browser, at(small, "shop.visits_by_id"), expected=TOO_LARGE) as page:
        shown = page.locator(".shown")
        cells = page.locator(".grid-body .grid-row").first.locator(".cell")
        expect(shown).to_have_text("500 of 700 rows")
        # The newest rows first, by the time column.
        expect(cells.first).to_have_text(f"{ROWS - 1}")
        expect(page.locator(".notice")).to_contain_text("newest 500 rows")
        page.get_by_role("columnheader", name="amount").get_by_role("button").click(click_count=2)
        expect(cells.first).to_have_text("0")
        box = page.get_by_role("searchbox", name="Filter the rows")
        box.fill("mali 00:03")
        expect(shown).to_have_text("1 of 1 that match, 700 rows in all")
        expect(cells.first).to_have_text("3")
        box.fill("nothing has this")
        expect(shown).to_have_text("0 of 0 that match, 700 rows in all")
        expect(page.locator(".grid-note")).to_contain_text("No row matches")
        box.fill("MALI")
        expect(shown).to_have_text("350 of 350 that match, 700 rows in all")
        chart(page, "amount by visit_id: 699 699.00, 697 697.00")
        # A past snapshot is read by the same filter.
        shop.write("shop.visits_by_id", (9999, "Mali", Decimal(7), 0.0, START))
        expect(shown).to_have_text("351 of 351 that match, 701 rows in all")
        page.get_by_role("button", name="One snapshot back").click()
        expect(shown).to_have_text("350 of 350 that match, 700 rows in all")
        page.get_by_role("button", name="Live", exact=True).click()
        expect(shown).to_have_text("351 of 351 that match, 701 rows in all")


def test_newest_rows_of_a_filter(small: Serving, browser: Browser) -> None:
    with visit(browser, at(small, "shop.visits"), expected=TOO_LARGE) as page:
        expect(page.locator(".shown")).to_have_text("500 of 700 rows")
        page.get_by_role("searchbox", name="Filter the rows").fill("2026-01-05")
        expect(page.locator(".shown")).to_have_text("500 of 700 that match, 700 rows in all")
        expect(page.locator(".grid-body .grid-row").first).to_contain_text("699")


def test_charts_group_all_rows(server: Serving, browser: Browser) -> None:
    """By the server as by the page."""
    with visit(browser, at(server, "shop.visits"), expected=TOO_LARGE) as page:
        page.get_by_role("button", name="Bars").click()
        page.get_by_label("Measure", exact=True).select_option("amount")
        chart(page, SUM_BARS)
        for aggregate, name in (
            ("avg", "avg of amount by country: Mali 350.00, Chad 349.00"),
            ("max", "max of amount by country: Mali 699.00, Chad 698.00"),
            ("min", "min of amount by country: Mali 1.00, Chad 0.00"),
            ("count", "number of rows by country: Chad 350, Mali 350"),
        ):
            page.get_by_label("Aggregate").select_option(aggregate)
            chart(page, name)
        page.get_by_label("Aggregate").select_option("sum")
        # A maximum is never summed, unless the user says so.
        page.get_by_label("Measure", exact=True).select_option("max_speed")
        chart(page, "max of max_speed by country: Mali 174.75, Chad 174.50")
        page.get_by_role("button", name="Over time").click()
        page.get_by_label("Measure", exact=True).select_option("amount")
        page.get_by_label("Bucket").select_option("per hour")
        # Minutes 660 to 699.
        chart(page, "amount over at: amount 27,180.00")
        page.get_by_label("Split by").select_option("by country")
        chart(page, "amount over at: Mali 13,600.00, Chad 13,580.00")
        expect(page.locator("svg.lines path.line")).to_have_count(2)
        expect(page.locator("svg.lines path.open")).to_have_count(0)


def test_open_bucket_is_dashed(tmp_path: Path, browser: Browser) -> None:
    shop = Shop(tmp_path / "warehouse")
    name = shop.create("visits", COLUMNS)
    now = datetime.datetime.now(datetime.UTC).replace(tzinfo=None)
    times = (now - datetime.timedelta(days=3), now - datetime.timedelta(days=2), now)
    shop.write(name, *((n, "Chad", Decimal(n), 1.0, time) for n, time in enumerate(times)))
    server = Serving(shop.path)
    try:
        with visit(browser, at(server, name)) as page:
            page.get_by_label("Bucket").select_option("per day")
            expect(page.locator("svg.lines path.open")).to_have_count(1)
            expect(page.locator(".chart .hint")).to_contain_text("dashed: not over yet")
    finally:
        server.close()


def test_live_lines_end_at_the_past_snapshot(tmp_path: Path, browser: Browser) -> None:
    shop = Shop(tmp_path / "warehouse")
    name = shop.sales()
    shop.write(name, ("Chad", 1, 1.0))
    server = Serving(shop.path, streams=StreamSettings(every_ms=20))
    try:
        with visit(browser, at(server, name)) as page:
            page.get_by_role("button", name="Live lines").click()
            for revenue in (2.0, 3.0, 4.0):
                shop.write(name, ("Chad", 1, revenue))
                expect(page.get_by_role("cell", name=f"{revenue:.2f}")).to_be_visible()
            chart(page, "revenue, live: Chad 4.00")
            page.get_by_role("button", name="One snapshot back").click()
            chart(page, "revenue, live: Chad 3.00")
    finally:
        server.close()
