"""SQL over HTTP: one SELECT over the served views, isolated and limited."""

from __future__ import annotations

import io
import os
import signal
import threading
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.serving import Serving, problem, servers
from tests.unit.conftest import Shop
from tests.waiting import DEADLINE_S, looks, until

from streamhouse.paimon.catalog.views import Views
from streamhouse.serve.tokens import BearerToken, Scope, digest
from streamhouse.serve.views.served_view import ServedView
from streamhouse.sql.plan import Column, ViewInfo


def filled(shop: Shop, name: str = "sales") -> str:
    table = shop.sales(name)
    shop.write(table, ("Peru", 2, 2.5), ("Chad", 1, 1.5))
    return table


@pytest.fixture
def sales(shop: Shop) -> str:
    return filled(shop)


@pytest.fixture(scope="module")
def common(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    """A warehouse whose tables no test changes."""
    shop = Shop(tmp_path_factory.mktemp("common") / "warehouse")
    filled(shop)
    shop.write(shop.orders(), (1, "Chad", Decimal("1.00")), (2, "Chad", None))
    shop.write(filled(shop, "travel"), ("Oman", 1, 1.0))
    return shop


@pytest.fixture(scope="module")
def server(common: Shop) -> Iterator[Serving]:
    """A server that tests without own settings share, since each server starts processes."""
    with servers(common.path) as start:
        made = start()
        assert made.sql("SELECT 1 AS n").status_code == 200
        yield made


def test_result_formats(server: Serving) -> None:
    text = (
        "SELECT s.country, COUNT(*) AS n, SUM(o.price) AS paid FROM shop.sales s "
        "JOIN orders o ON o.item = s.country GROUP BY s.country"
    )
    assert server.sql(text).json() == {
        "columns": [
            {"name": "country", "type": "STRING"},
            {"name": "n", "type": "BIGINT"},
            {"name": "paid", "type": "DECIMAL(38, 2)"},
        ],
        "rows": [{"country": "Chad", "n": 2, "paid": "1.00"}],
        "truncated": False,
    }
    plain = server.http.post(
        "/sql", content=text, headers={"Content-Type": "application/sql", "Accept": "text/csv"}
    )
    assert plain.text == "country,n,paid\r\nChad,2,1.00\r\n"
    arrow = server.http.post("/sql", json={"sql": text, "format": "arrow"})
    assert pa.ipc.open_stream(io.BytesIO(arrow.content)).read_all().num_rows == 1
    assert server.sql("SELECT 1 AS one").json()["rows"] == [{"one": 1}]
    assert server.sql("VALUES (1, 'a')").json()["rows"] == [{"EXPR$0": 1, "EXPR$1": "a"}]


def test_long_in_lists(server: Serving) -> None:
    numbers = ", ".join(map(str, range(10_000)))
    texts = ", ".join(f"'country number {number}'" for number in range(10_000))
    for condition in (f"orders IN ({numbers})", f"country NOT IN ({texts})"):
        answer = server.sql(f"SELECT COUNT(*) AS n FROM shop.sales WHERE {condition}")
        assert answer.json()["rows"] == [{"n": 2}], answer.text


def test_nan_is_not_greater_than_a_number(serve: Any, shop: Any) -> None:
    table = shop.sales()
    shop.write(table, ("Chad", 1, 1.5), ("Mali", 2, float("nan")), ("Oman", 3, None))
    views = (ServedView("hall.more", table, None, "revenue > 0"), ServedView(table, table))
    server = serve(views=views)
    assert [row["country"] for row in server.rows("hall.more")] == ["Chad"]
    assert [row["country"] for row in server.rows(table, filter="revenue > 0")] == ["Chad"]
    found = server.sql("SELECT country FROM shop.sales WHERE revenue > 0").json()["rows"]
    assert found == [{"country": "Chad"}]


def test_too_many_rows_are_truncated(serve: Any, sales: str) -> None:
    server = serve(query_rows=1)
    answer = server.sql("SELECT country FROM shop.sales ORDER BY country")
    assert answer.json()["rows"] == [{"country": "Chad"}] and answer.json()["truncated"] is True
    assert answer.headers["x-streamhouse-truncated"] == "true"
    whole = server.sql("SELECT COUNT(*) AS n FROM shop.sales")
    assert whole.json()["truncated"] is False


def test_time_travel(server: Serving) -> None:
    for instant, count in (
        ("", 3),
        (" FOR SYSTEM_VERSION AS OF 1", 2),
        (" /*+ OPTIONS('scan.snapshot-id'='1') */", 2),
    ):
        answer = server.sql(f"SELECT COUNT(*) AS n FROM shop.travel{instant}")
        assert answer.json()["rows"] == [{"n": count}]


REFUSED = {
    "DROP TABLE shop.sales": "takes one SELECT and nothing else",
    "SELECT 1; SELECT 2": "takes one SELECT and nothing else",
    "INSERT INTO shop.sales VALUES ('x', 1, 1)": "takes one SELECT and nothing else",
    "": "there is no statement",
    "SELECT * FROM read_csv('/etc/passwd')": "not supported",
    "SELECT * FROM '/etc/passwd'": "",
    "SELECT * FROM `/etc/passwd`": "there is no view",
    "SELECT * FROM shop.`../../x`": "there is no view",
    "SELECT * FROM information_schema.tables": "there is no view",
    "SELECT * FROM duckdb_settings()": "not supported",
    "SELECT getenv('HOME')": "not supported",
    "SELECT * FROM other.shop.sales": "names a catalog",
    "SELECT * FROM streamhouse_source.shop.sales": "names a catalog",
    "SELECT * FROM shop.sales$options": "system table",
    "SELECT * FROM shop.sales /*+ OPTIONS('path'='/tmp/x') */": "is not supported here",
    "SELECT * FROM shop.sales /*+ OPTIONS('branch'='b') */": "is not supported here",
    "SELECT * FROM scan_0, shop.sales": "there is no view",
    "WITH scan_0 AS (SELECT 1 AS a) SELECT * FROM scan_0": "reserved name",
    "WITH RECURSIVE a AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM a) SELECT * FROM a": (
        "RECURSIVE is not supported"
    ),
    "SELECT * FROM generate_series(1, 1000000000)": "not supported",
    "SELECT * FROM UNNEST(GENERATE_SERIES(1, 1000000000)) AS t(n)": "not supported",
    "SELECT * FROM shop.sales TABLESAMPLE (1 PERCENT)": "",
    "WITH x AS (INSERT INTO shop.sales VALUES ('x', 1, 1)) SELECT 1": "a query must be SELECT",
    "WITH x AS (DELETE FROM shop.sales) SELECT 1": "a query must be SELECT",
    "WITH `/etc/hosts.csv` AS (SELECT 1 AS a) SELECT * FROM shop.sales "
    "FOR SYSTEM_TIME AS OF (SELECT COUNT(*) FROM `/etc/hosts.csv`)": "a constant time, not a query",
    "WITH a AS (WITH b AS (SELECT 1 AS n FROM `/etc/hosts.csv`) SELECT n FROM b), "
    "`/etc/hosts.csv` AS (SELECT 1 AS n) SELECT n FROM a": "there is no view",
    "SELECT nothing FROM shop.sales": "there is no column",
    "SELECT CAST(country AS INT) FROM shop.sales": "the query failed",
    "SELECT * FROM shop.sales WHERE country = ?": "",
    "SELECT * FROM shop.sales FOR SYSTEM_VERSION AS OF 'no\tsuch'": "",
    f"SELECT * FROM shop.sales FOR SYSTEM_VERSION AS OF '{'x' * 5_000}'": "has no tag",
    "SELECT * FROM shop.sales /*+ OPTIONS('scan.timestamp-millis'='-99999999999999999') */": (
        "no snapshot as old as"
    ),
    f"SELECT {'(' * 400}1{')' * 400}": "nested too deeply",
    f"SELECT {'-' * 0}{' + '.join(['1'] * 3000)}": "",
    "SELECT 'a\x00b'": "control character",
    "SELECT '\ud800'": "control character",
}


def test_only_selects_over_served_views(server: Serving, common: Shop) -> None:
    for text, said in REFUSED.items():
        answer = server.sql(text)
        assert answer.status_code == 422, (text[:80], answer.text)
        assert said in answer.json()["error"]["message"], (text[:80], answer.text)
        assert str(common.path) not in answer.text
    assert server.sql("SELECT country FROM shop.sales").status_code == 200


def test_errors_have_line_and_column(server: Serving) -> None:
    error = server.sql("SELECT country\nFROM shop.sale").json()["error"]
    assert (error["code"], error["line"], error["column"]) == ("invalid", 2, 6)
    assert "did you mean 'shop.sales'?" in error["message"]


def test_only_served_views_can_be_queried(serve: Any, shop: Any, sales: str) -> None:
    columns = (Column("country", "STRING"), Column("orders", "BIGINT"))
    text = "SELECT country, orders FROM shop.sales"
    Views(shop.warehouse).create(ViewInfo(("shop", "seen"), columns, text))
    views = (
        ServedView("shop.sales", "shop.sales", ("country",), "country < 'D'"),
        ServedView("shop.seen", "shop.seen"),
        ServedView("shop.alias", "shop.seen", ("orders",)),
    )
    server = serve(views=views)
    assert server.sql("SELECT * FROM shop.sales").json()["rows"] == [{"country": "Chad"}]
    # A view's own query is over the tables themselves.
    assert len(server.sql("SELECT * FROM seen").json()["rows"]) == 2
    assert server.sql("SELECT SUM(orders) AS n FROM shop.alias").json()["rows"] == [{"n": 3}]
    for wrong in (
        "SELECT revenue FROM shop.sales",
        "SELECT country FROM shop.sales WHERE revenue > 1",
        "SELECT scan_0.revenue FROM shop.sales",
        "WITH RECURSIVE a AS (SELECT revenue FROM scan_0), scan_0 AS (SELECT 1 AS revenue) "
        "SELECT a.revenue FROM a, shop.sales",
        "WITH SCAN_0 AS (SELECT 1 AS revenue) SELECT revenue FROM SCAN_0, shop.sales",
    ):
        assert server.sql(wrong).status_code == 422, wrong


def test_token_permissions_apply_to_sql(serve: Any, shop: Any, sales: str) -> None:
    shop.orders()
    tokens = (
        BearerToken(digest("seller"), Scope("seller", ("*.sales",), frozenset({"read", "sql"}))),
        BearerToken(digest("reader"), Scope("reader", ("*",), frozenset({"read"}))),
    )
    server = serve(tokens=tokens)

    def asked(token: str, text: str) -> Any:
        headers = {"Authorization": f"Bearer {token}"}
        return server.http.post("/sql", json={"sql": text}, headers=headers)

    assert asked("seller", "SELECT 1 AS n FROM sales").status_code == 200
    hidden = asked("seller", "SELECT 1 AS n FROM shop.orders")
    assert hidden.status_code == 422 and "'shop.orders'; did you mean" in hidden.text
    assert "does not allow 'sql'" in problem(asked("reader", "SELECT 1"), 403, "forbidden")
    assert problem(asked("nobody", "SELECT 1"), 401, "unauthorized")


def test_request_bodies(server: Serving) -> None:
    post = server.http.post
    assert "not JSON" in problem(
        post("/sql", content="{", headers={"Content-Type": "application/json"}), 400, "bad_request"
    )
    assert problem(post("/sql", json=[1]), 400, "bad_request")
    assert "did you mean 'format'?" in problem(
        post("/sql", json={"sql": "SELECT 1", "formt": "csv"}), 400, "bad_request"
    )
    assert problem(post("/sql", json={"sql": "SELECT 1", "format": "xml"}), 400, "bad_request")
    assert problem(post("/sql", data={"sql": "SELECT 1"}), 415, "unsupported")
    latin = {"Content-Type": "application/sql"}
    assert problem(post("/sql", content=b"SELECT '\xe9'", headers=latin), 400, "bad_request")
    assert problem(post("/sql", json={"sql": "x" * 1_000_001}), 413, "too_large")
    assert problem(post("/sql", json={"sql": "x" * 2_000_000}), 413, "too_large")

    def chunks() -> Any:
        yield from (b"x" * 65_536 for _ in range(40))

    assert problem(post("/sql", content=chunks(), headers=latin), 413, "too_large")


def test_query_time_limit(serve: Any, shop: Any) -> None:
    table = shop.create("big", (Column("n", "INT"),))
    shop.write(table, *[(n,) for n in range(2_000)])
    server = serve(query_s=1.0)
    text = "SELECT COUNT(*) AS n FROM big a, big b, big c, big d"
    assert "took longer than 1 s" in problem(server.sql(text), 413, "too_large")
    for _ in looks(lambda: answer.text):
        # On a busy machine this may take longer than a second, too.
        if (answer := server.sql("SELECT COUNT(*) AS n FROM big")).status_code == 200:
            break
    assert answer.json()["rows"] == [{"n": 2_000}]


def test_query_memory_limit(serve: Any, sales: str) -> None:
    server = serve(query_memory=64 << 20, query_s=DEADLINE_S)
    bomb = "SELECT CHAR_LENGTH(REPEAT('x', 2000000000)) AS n"
    assert "memory" in problem(server.sql(bomb), 413, "too_large")
    filtered = server.get(f"/views/{sales}", filter="CHAR_LENGTH(REPEAT(country, 500000000)) > 1")
    assert "memory" in problem(filtered, 413, "too_large")
    assert server.sql("SELECT 1 AS n").status_code == 200


def test_queries_wait_for_a_slot(serve: Any, sales: str) -> None:
    server = serve(queries=1, query_s=DEADLINE_S)
    answers = []

    def send_query() -> None:
        answers.append(server.sql("SELECT country FROM shop.sales").status_code)

    threads = [threading.Thread(target=send_query) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
    assert answers == [200] * 4


def idle(server: Serving) -> list[Any]:
    """The process that has answered a query; on a busy machine the first is too long for it."""
    for _ in looks():
        if server.app.state.queries._idle:
            break
        server.sql("SELECT 1 AS n")
    return list(server.app.state.queries._idle)


def test_killed_query_leaves_no_file_or_process(
    serve: Any, sales: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve(query_s=1.0)
    queries = server.app.state.queries
    (worker,) = idle(server)
    spilled, written = Path(worker.folder) / "spilled", tmp_path / "answer"
    spilled.write_text("rows")
    written.write_text("half an answer")
    monkeypatch.setattr(queries, "path", lambda: str(written))
    # As one that neither ends nor hears of its time being over.
    os.kill(worker._process.pid, signal.SIGSTOP)
    assert "took longer than 1 s" in problem(server.sql("SELECT 2 AS n"), 413, "too_large")
    assert not written.exists()
    until(lambda: not spilled.exists())


def test_worker_that_died_while_idle_is_replaced(serve: Any, sales: str) -> None:
    server = serve(query_s=DEADLINE_S)
    (worker,) = idle(server)
    os.kill(worker._process.pid, signal.SIGKILL)
    until(lambda: not worker.alive)
    assert server.sql("SELECT 2 AS n").json()["rows"] == [{"n": 2}]
