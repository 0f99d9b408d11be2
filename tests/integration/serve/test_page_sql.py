"""The SQL screen: schema, completion, charts, files, the last queries, and cancelling."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from playwright.sync_api import Browser, Page, Route, expect
from tests.integration.serve.browser import visit
from tests.serving import Serving
from tests.unit.conftest import Shop

QUERY = "SELECT country, SUM(revenue) AS total FROM shop.sales GROUP BY country ORDER BY country"


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    made = Shop(tmp_path_factory.mktemp("sql") / "warehouse")
    made.write(made.sales(), ("Chad", 1, 1.5), ("Mali", 7, 2.0))
    made.orders("order")
    return made


@pytest.fixture(scope="module")
def server(shop: Shop) -> Iterator[Serving]:
    started = Serving(shop.path)
    yield started
    started.close()


def run(page: Page, sql: str) -> None:
    page.get_by_label("Query", exact=True).fill(sql)
    page.get_by_role("button", name="Run").click()
    expect(page.locator(".result")).to_contain_text("rows in")


def test_schema_and_completion(server: Serving, browser: Browser) -> None:
    with visit(browser, f"{server.url}/#/sql") as page:
        text = page.get_by_label("Query", exact=True)
        text.fill("")
        schema = page.get_by_role("complementary", name="Schema")
        schema.get_by_text("shop.order", exact=True).click()
        schema.get_by_role("button", name="Insert name").first.click()
        # A name that is a keyword is quoted.
        expect(text).to_have_value("shop.`order`")
        schema.get_by_role("button", name="price DECIMAL(10, 2)").click()
        expect(text).to_have_value("shop.`order`price")
        text.fill("")
        text.press_sequentially("SEL")
        option = page.locator(".completions [aria-selected=true]")
        expect(option).to_contain_text("SELECT")
        text.press("Tab")
        text.press_sequentially(" * FROM sal")
        expect(option).to_contain_text("shop.sales")
        text.press("Enter")
        expect(text).to_have_value("SELECT * FROM shop.sales")
        text.press_sequentially(" s WHERE s.rev")
        expect(option).to_contain_text("revenue")
        text.press("Enter")
        expect(text).to_have_value("SELECT * FROM shop.sales s WHERE s.revenue")
        text.press_sequentially(" > 1 AND cou")
        expect(option).to_contain_text("country")
        text.press("Escape")
        expect(page.get_by_role("listbox", name="Completions")).to_be_hidden()
        expect(text).to_be_focused()
        expect(page.locator(".tok-word")).to_have_text(["SELECT", "FROM", "WHERE", "AND"])


def test_result_as_chart_and_as_files(server: Serving, browser: Browser, tmp_path: Path) -> None:
    with visit(browser, f"{server.url}/#/sql") as page:
        run(page, QUERY)
        page.get_by_role("tab", name="Chart").click()
        expect(
            page.get_by_role("img", name="total by country: Mali 2.00, Chad 1.50")
        ).to_be_visible()
        page.get_by_role("tab", name="Chart").press("ArrowLeft")
        expect(page.get_by_role("cell", name="Mali")).to_be_visible()
        for name in ("CSV", "Parquet"):
            with page.expect_download() as download:
                page.get_by_role("button", name=name).click()
            download.value.save_as(tmp_path / name)
        assert (tmp_path / "CSV").read_text().split() == ["country,total", "Chad,1.5", "Mali,2.0"]
        rows = pq.read_table(tmp_path / "Parquet").to_pylist()
        assert rows == [{"country": "Chad", "total": 1.5}, {"country": "Mali", "total": 2.0}]


def test_last_queries(server: Serving, browser: Browser) -> None:
    with visit(browser, f"{server.url}/#/sql") as page:
        history = page.get_by_label("Last queries")
        expect(history).to_be_disabled()
        for number in range(52):
            page.evaluate(
                "n => { const key = 'streamhouse.queries'; const old = JSON.parse("
                "localStorage.getItem(key) ?? '[]'); old.push(`SELECT ${n}`);"
                "localStorage.setItem(key, JSON.stringify(old)); }",
                number,
            )
        run(page, QUERY)
        run(page, "SELECT 1 AS one, 2 AS two UNION ALL SELECT 3, 4")
        expect(history.locator("option")).to_have_count(52)
        page.reload()
        history.select_option(QUERY[:80])
        expect(page.get_by_label("Query", exact=True)).to_have_value(QUERY)
        history.select_option("Forget them all")
        expect(history).to_be_disabled()


def test_cancel_a_query(server: Serving, browser: Browser) -> None:
    held: list[Route] = []
    with visit(browser, f"{server.url}/#/sql", expected="ERR_") as page:
        run(page, QUERY)
        page.route("**/sql", lambda route: held.append(route))
        page.get_by_role("button", name="Run").click()
        expect(page.get_by_text("Running …")).to_be_visible()
        expect(page.locator(".editor-bar")).to_contain_text(re.compile(r"\d\.\d s"))
        expect(page.get_by_role("button", name="Run")).to_be_disabled()
        page.get_by_role("button", name="Cancel").click()
        expect(page.locator(".result")).to_have_text("The query was cancelled.")
        expect(page.get_by_role("button", name="Cancel")).to_be_hidden()
        page.unroute("**/sql")
        run(page, QUERY)


def test_the_process_of_queries_is_warm(server: Serving, browser: Browser) -> None:
    with visit(browser, f"{server.url}/#/editor") as page:
        with page.expect_response("**/sql") as warmed:
            page.keyboard.press("s")
        assert warmed.value.ok
