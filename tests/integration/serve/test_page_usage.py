"""The tab *Use* of a view: its commands and programs run as they are shown."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from playwright.sync_api import Browser, expect
from tests.integration.serve.browser import visit
from tests.serving import Serving
from tests.unit.conftest import Shop
from tests.waiting import DEADLINE_S

from streamhouse.serve.tokens import BearerToken, Scope, digest
from streamhouse.sql.plan import Column

TOKEN = "a-token-for-the-tests-of-the-tab-use"
COLUMNS = (Column("the country's", "STRING"), Column("a`b", "BIGINT"), Column('say "x"', "DOUBLE"))


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    """Names with each kind of quote."""
    made = Shop(tmp_path_factory.mktemp("usage") / "warehouse")
    made.write(made.create("odd names", COLUMNS, ["the country's"]), ("Chad", 7, 1.5))
    return made


@pytest.fixture(scope="module", params=[False, True], ids=["open", "token"])
def server(shop: Shop, request: pytest.FixtureRequest) -> Iterator[Serving]:
    tokens = (BearerToken(digest(TOKEN), Scope("all")),) if request.param else ()
    started = Serving(shop.path, tokens=tokens)
    yield started
    started.close()


def test_examples_run(server: Serving, browser: Browser, tmp_path: Path) -> None:
    with visit(browser, f"{server.url}/#/views/shop.odd%20names", expected="401") as page:
        if server.settings.tokens:
            page.get_by_label("Token", exact=True).fill(TOKEN)
            page.keyboard.press("Enter")
        page.get_by_role("tab", name="Use").click()
        titles = ["curl", "Python", "pandas", "DuckDB", "Power BI", "JDBC"]
        expect(page.locator(".usage h2")).to_have_text(titles)
        code = dict(zip(titles, page.locator(".usage code").all_text_contents(), strict=True))
        page.evaluate(
            "() => { navigator.clipboard.writeText = (text) => { window.copied = text; }; }"
        )
        page.get_by_role("button", name="Copy: curl").click()
        expect(page.get_by_role("button", name="Copy: curl")).to_have_text("Copied")
        assert page.evaluate("() => window.copied") == code["curl"]
    code = {title: text.replace("TOKEN", TOKEN) for title, text in code.items()}
    rows, csv, changes, query = code["curl"].replace("\\\n", "").splitlines()
    assert '"a`b":7' in shell(rows, tmp_path)
    assert shell(csv, tmp_path).splitlines()[1] == "Chad,7,1.5"
    assert '"a`b":7' in shell(f"{changes} --max-time 3 || true", tmp_path)
    assert '"a`b":7' in shell(query, tmp_path)
    for title in ("Python", "pandas"):
        done = subprocess.run(
            [sys.executable, "-c", code[title]], capture_output=True, timeout=DEADLINE_S
        )
        assert b"Chad" in done.stdout, done.stderr
    download, read = code["DuckDB"].splitlines()
    shell(download, tmp_path)
    select = shlex.split(read)[-1].replace("view.parquet", str(tmp_path / "view.parquet"))
    assert duckdb.execute(select).fetchall() == [("Chad", 7, 1.5)]


def shell(command: str, folder: Path) -> str:
    done = subprocess.run(
        ["bash", "-c", command], cwd=folder, capture_output=True, text=True, timeout=DEADLINE_S
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
