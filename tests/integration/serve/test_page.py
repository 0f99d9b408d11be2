"""The web page in a browser."""

from __future__ import annotations

import datetime
import itertools
import time
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, Route, expect
from tests.integration.serve.browser import PHONE, flashed, visit
from tests.integration.serve.server import Server
from tests.serving import servers
from tests.unit.conftest import Shop
from tests.waiting import DEADLINE_S

from streamhouse.runtime.monitoring.process import own
from streamhouse.runtime.monitoring.status import Status, Statuses
from streamhouse.serve.tokens import BearerToken, Scope, digest
from streamhouse.sql.plan import Column

MANY = 100_000
MOST_IN_SIGHT = 80
TOKEN = "a-token-for-the-tests-of-the-page"
NEEDS_A_NAME = "a, button, input, select, textarea, [role=region], [role=table], svg[role=img]"
UNNAMED = """
  (what) => [...document.querySelectorAll(what)]
    .filter((element) => element.checkVisibility())
    .filter((element) => {
      const labels = [...(element.labels ?? [])].map((label) => label.textContent).join("");
      const text = element.matches("a, button") ? element.textContent : "";
      return !(element.getAttribute("aria-label") || labels || text.trim());
    })
    .map((element) => element.outerHTML.slice(0, 120))
"""


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    """Tables of each kind; a test that changes one makes its own."""
    made = Shop(tmp_path_factory.mktemp("page") / "warehouse")
    made.write(made.sales(), ("Chad", 1, 1.5), ("Mali", 7, 1234567.25), ("Peru", None, -3.0))
    made.write(
        made.create("many", (Column("id", "INT"), Column("name", "STRING")), ["id"]),
        *((number, f"name {number}") for number in range(MANY)),
    )
    made.write(
        made.create(
            "payments",
            (
                Column("paid_at", "TIMESTAMP(3)"),
                Column("shop", "STRING"),
                Column("amount", "DECIMAL(12, 2)"),
            ),
        ),
        *(
            (datetime.datetime(2026, 1, 5, 12, minute), "ab"[minute % 2], Decimal(minute - 7))
            for minute in range(20)
        ),
    )
    return made


@pytest.fixture(scope="module")
def server(shop: Shop, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    options = ("--query-timeout", f"{DEADLINE_S}s")
    with Server(shop.path, tmp_path_factory.mktemp("server"), *options) as started:
        yield started


_NUMBERS = itertools.count()


@pytest.fixture
def sales(shop: Shop) -> str:
    """A table of this test's own, `shop.sales_<n>`, with two rows."""
    name = shop.sales(f"sales_{next(_NUMBERS)}")
    shop.write(name, ("Chad", 1, 1.5), ("Peru", 5, 3.0))
    return name


def at(server: Server, name: str) -> str:
    return f"{server.url}/#/views/{name}"


def shows(page: Page, *cells: str) -> None:
    """Wait until these are the cells of the table, row by row."""
    expect(page.locator(".grid-body .cell")).to_have_text(list(cells))


def test_search_open_and_sort_a_view(server: Server, browser: Browser) -> None:
    with visit(browser, server.url) as page:
        page.get_by_role("searchbox", name="Search the views").fill("sales")
        page.get_by_role("link", name="sales, 3 rows").click()
        shows(page, "Chad", "1", "1.50", "Mali", "7", "1,234,567.25", "Peru", "null", "-3.00")
        header = page.get_by_role("columnheader", name="revenue")
        for order, first in (("descending", "Mali"), ("ascending", "Peru"), ("none", "Chad")):
            header.get_by_role("button").click()
            expect(header).to_have_attribute("aria-sort", order)
            expect(page.locator(".grid-body .cell").first).to_have_text(first)
        # Nulls are last in both directions.
        for _ in range(2):
            page.get_by_role("columnheader", name="orders").get_by_role("button").click()
            expect(page.locator(".grid-body .grid-row").last).to_contain_text("Peru")
        number = page.locator(".grid-body .cell.number").first
        assert number.evaluate("e => getComputedStyle(e).textAlign") == "right"
        assert "tabular-nums" in number.evaluate("e => getComputedStyle(e).fontVariantNumeric")


def test_changes_are_animated(server: Server, browser: Browser, shop: Shop, sales: str) -> None:
    with visit(browser, at(server, sales)) as page:
        shows(page, "Chad", "1", "1.50", "Peru", "5", "3.00")
        expect(page.locator(".fresh .pill")).to_have_text("live")
        shop.write(sales, ("Chad", 2, 0.5), ("Mali", 9, 9.0))
        flashed(page, "up 2")
        flashed(page, "down 0.50")
        flashed(page, "new Mali99.00")
        shows(page, "Chad", "2", "0.50", "Mali", "9", "9.00", "Peru", "5", "3.00")
        expect(page.locator(".fresh-delay")).to_contain_text("ms to screen")
        shop.write(sales, ("Peru", 5, 3.0), kinds=["-D"])
        shows(page, "Chad", "2", "0.50", "Mali", "9", "9.00")
        expect(page.locator("#summary")).to_contain_text("1 removed")
        chart = page.get_by_role("img", name="revenue by country: Mali 9.00, Chad 0.50")
        expect(chart).to_be_visible()


def test_append_table_shows_newest_rows_first(server: Server, browser: Browser, shop: Shop) -> None:
    name = shop.orders(f"orders_{next(_NUMBERS)}")
    shop.write(name, (1, "nut", Decimal("1.10")), (1, "nut", Decimal("1.10")))
    with visit(browser, at(server, name)) as page:
        expect(page.locator(".grid-body .grid-row")).to_have_count(2)
        shop.write(name, (9_007_199_254_740_993, "fig", Decimal("1234.50")))
        row = page.locator(".grid-body .grid-row").first
        expect(row.locator(".cell")).to_have_text(["9007199254740993", "fig", "1,234.50"])
        shop.overwrite(name, (1, "nut", Decimal("1.10")))
        shows(page, "1", "nut", "1.10")


def test_snapshot_slider(server: Server, browser: Browser, shop: Shop, sales: str) -> None:
    shop.write(sales, ("Chad", 2, 2.5))
    with visit(browser, at(server, sales)) as page:
        shows(page, "Chad", "2", "2.50", "Peru", "5", "3.00")
        expect(page.locator(".history-text")).to_have_text("snapshot 2")
        page.keyboard.press("[")
        shows(page, "Chad", "1", "1.50", "Peru", "5", "3.00")
        expect(page.locator(".past-banner")).to_contain_text("snapshot 1")
        expect(page.locator(".fresh .pill")).to_have_text("past")
        # New changes are not shown while the past is.
        shop.write(sales, ("Mali", 1, 1.0))
        slider = page.get_by_role("slider", name="Snapshot")
        expect(slider).to_have_attribute("max", "2")
        shows(page, "Chad", "1", "1.50", "Peru", "5", "3.00")
        slider.press("ArrowRight")
        shows(page, "Chad", "2", "2.50", "Peru", "5", "3.00")
        page.get_by_role("button", name="Live", exact=True).click()
        shows(page, "Chad", "2", "2.50", "Mali", "1", "1.00", "Peru", "5", "3.00")
        expect(page.locator(".past-banner")).to_be_hidden()


def test_only_visible_rows_are_in_the_document(server: Server, browser: Browser) -> None:
    with visit(browser, at(server, "shop.many")) as page:
        expect(page.locator(".shown")).to_have_text("100,000 rows")
        rows = page.locator(".grid-body .grid-row")
        expect(rows.first).to_contain_text("name 0")
        assert rows.count() < MOST_IN_SIGHT
        page.locator(".grid-scroll").evaluate("e => { e.scrollTop = e.scrollHeight; }")
        expect(rows.last).to_contain_text(f"name {MANY - 1}")
        expect(rows.last).to_have_attribute("aria-rowindex", str(MANY + 1))
        assert rows.count() < MOST_IN_SIGHT
        page.keyboard.press("f")
        page.keyboard.type("NAME 4711")
        # 4711 itself, 47110 to 47119, and 14711, 24711 …
        expect(page.locator(".shown")).to_have_text("20 of 100,000 rows")
        page.keyboard.press("Escape")
        expect(page.locator(".shown")).to_have_text("100,000 rows")


def test_charts_show_bars_below_zero_and_lines_over_time(server: Server, browser: Browser) -> None:
    with visit(browser, at(server, "shop.payments")) as page:
        expect(page.get_by_role("heading", name="amount over paid_at")).to_be_visible()
        expect(page.locator(".line")).to_have_count(1)
        page.get_by_role("button", name="Bars").click()
        expect(page.locator(".bars .label")).to_have_text(["b", "a"])
        expect(page.locator(".bars .value")).to_have_text(["30.00", "20.00"])
    with visit(browser, at(server, "shop.sales")) as page:
        expect(page.locator(".bars .label")).to_have_text(["Mali", "Chad", "Peru"])
        expect(page.locator("rect.negative")).to_have_count(1)
        page.get_by_label("Measure").select_option("orders")
        expect(page.locator(".bars .value")).to_have_text(["7", "1"])


def test_detail_tabs(server: Server, browser: Browser, sales: str) -> None:
    with visit(browser, at(server, sales)) as page:
        page.get_by_role("tab", name="Live").press("ArrowRight")
        panel = page.get_by_role("tabpanel", name="Schema")
        expect(panel).to_contain_text("BIGINT")
        page.get_by_role("tab", name="Options").click()
        expect(page.get_by_role("tabpanel", name="Options")).to_contain_text("bucket")
        page.get_by_role("tab", name="Snapshots").click()
        expect(page.get_by_role("tabpanel", name="Snapshots")).to_contain_text("APPEND")
        page.get_by_role("tab", name="Files").click()
        expect(page.get_by_role("tabpanel", name="Files")).to_contain_text("parquet")


def test_keyboard_shortcuts(server: Server, browser: Browser) -> None:
    with visit(browser, server.url) as page:
        expect(page.get_by_role("link", name="many, 100,000 rows")).to_be_visible()
        page.keyboard.press("/")
        page.keyboard.type("payme")
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", level=1)).to_have_text("shop.payments")
        page.get_by_label("Search the views").fill("m")
        page.keyboard.press("ArrowDown")
        page.keyboard.press("k")
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", level=1)).to_have_text("shop.many")
        page.keyboard.press("j")
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", level=1)).to_have_text("shop.payments")
        page.keyboard.press("?")
        expect(page.get_by_role("dialog", name="Keyboard")).to_be_visible()
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog", name="Keyboard")).to_be_hidden()
        page.keyboard.press("p")
        expect(page.get_by_role("heading", level=1)).to_have_text("Pipelines")
        page.keyboard.press("v")
        expect(page.get_by_role("searchbox", name="Search the views")).to_be_visible()


@pytest.mark.parametrize("screen", ["views/shop.sales", "sql", "pipelines", "editor"])
def test_accessibility(server: Server, browser: Browser, screen: str) -> None:
    with visit(browser, f"{server.url}/#/{screen}") as page:
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        for landmark in ("banner", "main"):
            expect(page.get_by_role(landmark)).to_have_count(1)
        expect(page.get_by_role("navigation", name="Screens")).to_be_visible()
        expect(page.locator("#summary")).to_have_attribute("aria-live", "polite")
        assert page.evaluate(UNNAMED, NEEDS_A_NAME) == []
        if screen.startswith("views"):
            expect(page.get_by_role("complementary", name="Views")).to_be_visible()
            table = page.get_by_role("table", name="shop.sales")
            expect(table).to_have_attribute("aria-rowcount", "4")
            expect(table.get_by_role("columnheader")).to_have_count(3)
            expect(table.get_by_role("cell")).to_have_count(9)
            chart = page.get_by_role("img", name="revenue by country: Mali 1,234,567.25")
            expect(chart).to_be_visible()


def test_dark_and_light_theme(server: Server, browser: Browser) -> None:
    paper = "() => getComputedStyle(document.body).backgroundColor"
    with visit(browser, server.url, dark=True) as page:
        expect(page.get_by_role("complementary", name="Views")).to_be_visible()
        dark = page.evaluate(paper)
        page.get_by_role("button", name="Dark or light colours").click()
        light = page.evaluate(paper)
        assert sum(rgb(light)) - sum(rgb(dark)) > 400
        page.reload()
        expect(page.get_by_role("complementary", name="Views")).to_be_visible()
        page.wait_for_function("() => document.documentElement.dataset.theme === 'light'")
    with visit(browser, server.url) as page:
        assert page.evaluate(paper) == light


def rgb(colour: str) -> list[int]:
    return [int(part) for part in colour.strip("rgb()").split(",")]


def test_phone_layout(server: Server, browser: Browser) -> None:
    with visit(browser, server.url, PHONE) as page:
        page.get_by_role("link", name="sales, 3 rows").click()
        expect(page.locator(".bars .bar")).to_have_count(3)
        expect(page.get_by_role("complementary", name="Views")).to_be_hidden()
        for screen in ("", "#/sql", "#/pipelines", "#/editor"):
            if screen:
                page.goto(f"{server.url}/{screen}")
                expect(page.get_by_role("heading", level=1)).to_be_visible()
            wide = page.evaluate("() => document.documentElement.scrollWidth")
            assert wide <= PHONE[0], screen
        page.goto(at(server, "shop.sales"))
        page.get_by_role("link", name="All views").click()
        expect(page.get_by_role("complementary", name="Views")).to_be_visible()


def test_reduced_motion(server: Server, browser: Browser, shop: Shop, sales: str) -> None:
    with visit(browser, at(server, sales)) as page:
        page.emulate_media(reduced_motion="reduce")
        shows(page, "Chad", "1", "1.50", "Peru", "5", "3.00")
        shop.write(sales, ("Chad", 2, 1.5))
        flashed(page, "up 2")
        bar = page.locator(".bars rect").first
        assert bar.evaluate("e => getComputedStyle(e).transitionDuration") in ("0s", "")


def test_token_is_stored_and_reconnect_does_not_flicker(
    browser: Browser, shop: Shop, sales: str, tmp_path: Path
) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text(f"{TOKEN}\n")
    refused = "401|ERR_CONNECTION_REFUSED|WebSocket connection|Failed to load resource"
    with (
        Server(shop.path, tmp_path, "--token-file", str(tokens)) as server,
        visit(browser, at(server, sales), expected=refused) as page,
    ):
        dialog = page.get_by_role("dialog", name="This server requires a token")
        for text in ("not this one", TOKEN):
            expect(dialog).to_be_visible()
            page.locator("#token-text").fill(text)
            page.get_by_role("button", name="Open").click()
        shows(page, "Chad", "1", "1.50", "Peru", "5", "3.00")
        page.reload()
        shows(page, "Chad", "1", "1.50", "Peru", "5", "3.00")
        expect(page.locator(".fresh .pill")).to_have_text("live")
        row = page.locator(".grid-body .grid-row").first.element_handle()
        server.stop()
        expect(page.locator("#lost")).to_contain_text("Connection lost")
        expect(page.locator(".fresh .pill")).to_have_text("reconnecting")
        shows(page, "Chad", "1", "1.50", "Peru", "5", "3.00")
        shop.write(sales, ("Chad", 4, 1.5))
        server.start()
        shows(page, "Chad", "4", "1.50", "Peru", "5", "3.00")
        expect(page.locator("#lost")).to_be_hidden()
        assert row.evaluate("e => e.isConnected"), "the row was there all the time"
        shop.write(sales, ("Peru", 6, 3.0))
        shows(page, "Chad", "4", "1.50", "Peru", "6", "3.00")
        assert TOKEN not in server.log.read_text()


def test_recreated_table(server: Server, browser: Browser, shop: Shop, sales: str) -> None:
    with visit(browser, at(server, sales), expected="404") as page:
        shows(page, "Chad", "1", "1.50", "Peru", "5", "3.00")
        name = sales.partition(".")[2]
        shop.warehouse.drop_table("shop", name)
        shop.create(name, (Column("city", "STRING"), Column("people", "INT")), ["city"])
        shop.write(sales, ("Lima", 10))
        shows(page, "Lima", "10")
        expect(page.get_by_role("columnheader", name="people")).to_be_visible()


def test_editor_marks_errors(server: Server, browser: Browser) -> None:
    with visit(browser, f"{server.url}/#/editor") as page:
        text = page.get_by_label("Script", exact=True)
        text.fill("CREATE DATABASE IF NOT EXISTS shop;\nSELEKT 1;\n")
        page.get_by_role("button", name="Check").click()
        expect(page.locator(".code-lines .wrong")).to_have_text("2")
        expect(page.locator(".error-line")).to_contain_text("Line 2, column 1")
        expect(text).to_have_attribute("aria-invalid", "true")
        text.fill(
            "CREATE TABLE shop.spending (id INT PRIMARY KEY NOT ENFORCED, total DOUBLE);\n"
            "INSERT INTO shop.spending VALUES (1, 2.0);"
        )
        page.get_by_role("button", name="Check").click()
        expect(page.locator(".good")).to_contain_text("The script is valid: 2 statements")
        expect(page.locator(".graph .node")).not_to_have_count(0)
        # This server was started without it.
        expect(page.get_by_text("started with --allow-run")).to_be_visible()
        expect(page.get_by_role("button", name="Run", exact=True)).to_be_disabled()


def test_sql_screen_by_keyboard(server: Server, browser: Browser) -> None:
    with visit(browser, at(server, "shop.sales"), PHONE, expected="422") as page:
        expect(page.locator(".grid-body .grid-row")).to_have_count(3)
        page.keyboard.press("s")
        expect(page.get_by_role("heading", level=1)).to_have_text("SQL")
        text = page.get_by_label("Query", exact=True)
        expect(text).to_have_value("SELECT *\nFROM `shop`.`sales`\nLIMIT 100")
        limits = page.get_by_text(f"It may take up to {DEADLINE_S} s and return up to 100,000 rows")
        expect(limits).to_be_visible()
        text.fill("SELECT country, orders, revenue\nFROM shop.sales\nORDER BY country DESC")
        text.press("Control+Enter")
        # In the query's own order, until a column is chosen.
        shows(page, "Peru", "null", "-3.00", "Mali", "7", "1,234,567.25", "Chad", "1", "1.50")
        expect(page.locator(".result")).to_contain_text("3 rows in")
        table = page.get_by_role("table", name="Result")
        expect(table).to_have_attribute("aria-rowcount", "4")
        header = table.get_by_role("columnheader", name="orders")
        header.get_by_role("button").press("Enter")
        expect(header).to_have_attribute("aria-sort", "descending")
        expect(page.locator(".grid-body .cell").first).to_have_text("Mali")
        assert page.evaluate(UNNAMED, NEEDS_A_NAME) == []
        assert page.evaluate("() => document.documentElement.scrollWidth") <= PHONE[0]
        text.fill("SELECT country\nFROM shop.sale")
        text.press("Control+Enter")
        expect(page.locator(".error-line")).to_contain_text("did you mean 'shop.sales'?")
        expect(text).to_have_attribute("aria-invalid", "true")
        expect(table).to_be_hidden()
        place = "e => e.value.slice(e.selectionStart, e.selectionEnd)"
        assert text.evaluate(place) == "shop"
        page.keyboard.press("Escape")
        page.get_by_role("button", name="Line 2, column 6").press("Enter")
        expect(text).to_be_focused()
        text.fill("SELECT country FROM shop.sales WHERE orders > 99")
        expect(text).not_to_have_attribute("aria-invalid", "true")
        page.get_by_role("button", name="Run").click()
        expect(page.get_by_text("The query returns no rows.")).to_be_visible()
        text.fill("SELECT a.id FROM shop.many a, shop.sales b")
        page.get_by_role("button", name="Run").click()
        expect(page.get_by_text("The first 100,000 rows in")).to_be_visible()
        expect(page.get_by_text("the query has more rows than the server returns")).to_be_visible()


def test_editor_explains_masked_secrets(server: Server, browser: Browser) -> None:
    with visit(browser, f"{server.url}/#/editor") as page:
        text = page.get_by_label("Script", exact=True)
        stars = page.get_by_text("**** masks a password or key")
        expect(stars).to_be_hidden()
        text.fill("CREATE TEMPORARY TABLE t (i INT) WITH ('password' = '****');")
        expect(stars).to_be_visible()
        text.fill("/******** a title ********/")
        expect(stars).to_be_hidden()


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """A warehouse with the pipeline `live`, which this process seems to be, and `old`."""
    statuses, now = Statuses({"warehouse": str(tmp_path)}), time.time_ns() // 1_000_000
    status = Status("live", "running", own(), now, now)
    statuses.write(status)
    statuses.write(replace(status, name="old", state="failed", error="the table is gone"))
    statuses.store_masked_script("old", "SELECT 1")
    return tmp_path


def test_forget_an_ended_pipeline(runs: Path, browser: Browser) -> None:
    with (
        servers(runs) as serve,
        visit(browser, f"{serve(allow_run=True).url}/#/pipelines") as page,
    ):
        late: list[Route] = []
        page.clock.install()
        forget = page.get_by_role("button", name="Forget")
        page.get_by_role("link", name="live").click()
        expect(page.locator(".state-line .pill")).to_have_text("running")
        expect(forget).to_have_count(0)
        page.keyboard.press("Escape")
        page.get_by_role("link", name="old").click()
        # The focus moves to the new screen.
        expect(page.get_by_role("main")).to_be_focused()
        expect(page.locator(".error-line")).to_have_text("the table is gone")
        asked = page.get_by_role("dialog", name="Forget old?")
        forget.press("Enter")
        expect(asked).to_contain_text("Its tables and checkpoints stay")
        page.keyboard.press("Escape")
        expect(asked).to_have_count(0)
        expect(forget).to_be_focused()
        forget.press("Enter")
        expect(asked.get_by_role("button", name="Cancel")).to_be_focused()
        page.route("**/pipelines/old", lambda route: late.append(route))
        with page.expect_request("**/pipelines/old"):
            page.clock.fast_forward(5_000)
        asked.get_by_role("button", name="Forget").click()
        expect(page.locator("#said")).to_have_text("old was forgotten.")
        late[0].continue_()  # The page has cancelled it: a 404 would be an error.
        expect(page.get_by_role("heading", level=1)).to_have_text("Pipelines")
        expect(page.locator(".card")).to_have_count(1)
        assert Statuses({"warehouse": str(runs)}).names() == ["live"]


def test_run_buttons_require_allow_run(runs: Path, browser: Browser) -> None:
    token = BearerToken(digest(TOKEN), Scope("all", acts=frozenset({"read", "sql"})))
    with (
        servers(runs) as serve,
        visit(
            browser,
            f"{serve(allow_run=True, tokens=(token,)).url}/#/pipelines/old",
            expected="401",
        ) as page,
    ):
        page.locator("#token-text").fill(TOKEN)
        page.get_by_role("button", name="Open").click()
        expect(page.get_by_role("button", name="Edit")).to_be_visible()
        # Only clients with a token learn whether the server runs pipelines; the editor shows it.
        page.keyboard.press("e")
        expect(page.get_by_text("started with --allow-run")).to_be_visible()
        page.go_back()
        expect(page.get_by_role("button", name="Edit")).to_be_visible()
        expect(page.get_by_role("button", name="Forget")).to_have_count(0)


def test_chart_above_a_wide_table_does_not_overlap(
    server: Server, browser: Browser, shop: Shop
) -> None:
    columns = (Column("id", "INT"), *(Column(f"amount_{i}", "INT") for i in range(8)))
    name = shop.create(f"wide_{next(_NUMBERS)}", columns, ["id"])
    shop.write(name, *((number, *[number] * 8) for number in range(1, 31)))
    with visit(browser, at(server, name)) as page:
        expect(page.get_by_text("The 20 largest of 30 rows.")).to_be_visible()
        expect(page.locator(".bars .bar")).to_have_count(20)
        plot, hint = (
            page.locator(".plot").bounding_box(),
            page.locator(".chart .hint").bounding_box(),
        )
        assert plot is not None and hint is not None
        assert plot["y"] + plot["height"] <= hint["y"] + 1
        assert page.locator(".plot").evaluate("e => getComputedStyle(e).overflowY") == "auto"
