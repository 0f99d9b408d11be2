"""Rows over HTTP: formats, parameters and errors."""

from __future__ import annotations

import csv
import io
import json
import random
import socket
import threading
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.serving import problem
from tests.unit.serve.test_view_feed import keep
from tests.waiting import DEADLINE_S, until

from streamhouse.paimon.catalog.views import Views
from streamhouse.serve.queries import executor, view_rows
from streamhouse.serve.queries.output import OutputTarget
from streamhouse.serve.views.served_view import ServedView
from streamhouse.sql.plan import Column, ViewInfo
from streamhouse.sql.schema_changes import AddColumn


@pytest.fixture
def sales(shop: Any) -> str:
    table: str = shop.sales()
    shop.write(table, ("Peru", 2, 2.5), ("Chad", 1, 1.5))
    shop.write(table, ("Mali", None, 7.0), ("Chad", 4, 1.5))
    return table


def test_json_is_sorted_by_key(serve: Any, sales: str) -> None:
    answer = serve().get(f"/views/{sales}")
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-streamhouse-snapshot"] == "2"
    body = answer.json()
    assert body["snapshot"] == 2 and body["time"].endswith("Z")
    assert body["rows"] == [
        {"country": "Chad", "orders": 4, "revenue": 1.5},
        {"country": "Mali", "orders": None, "revenue": 7.0},
        {"country": "Peru", "orders": 2, "revenue": 2.5},
    ]


def test_a_table_without_commits_has_no_rows(serve: Any, shop: Any) -> None:
    body = serve().get(f"/views/{shop.sales()}").json()
    assert body == {"snapshot": None, "time": None, "rows": []}


def test_other_formats(serve: Any, sales: str) -> None:
    server = serve()
    text = server.get(f"/views/{sales}", format="csv")
    assert text.headers["content-type"].startswith("text/csv")
    assert list(csv.reader(io.StringIO(text.text, newline="")))[:2] == [
        ["country", "orders", "revenue"],
        ["Chad", "4", "1.5"],
    ]
    arrow = server.get(f"/views/{sales}", format="arrow")
    table = pa.ipc.open_stream(arrow.content).read_all()
    assert table.column("country").to_pylist() == ["Chad", "Mali", "Peru"]
    assert table.schema.metadata[b"streamhouse.snapshot"] == b"2"
    parquet = server.http.get(
        f"/views/{sales}", headers={"Accept": "application/vnd.apache.parquet"}
    )
    assert parquet.headers["content-type"] == "application/vnd.apache.parquet"
    assert pq.read_table(io.BytesIO(parquet.content)).equals(table)


def test_columns_filter_order_and_limit(serve: Any, sales: str) -> None:
    server = serve()
    assert server.rows(sales, columns="orders,country", order="-orders", limit=2) == [
        {"orders": 4, "country": "Chad"},
        {"orders": 2, "country": "Peru"},
    ]
    assert server.rows(sales, order="orders", columns="country")[-1] == {"country": "Mali"}
    wanted = {"filter": "orders > 1 AND country <> 'Peru'", "columns": "country"}
    assert server.rows(sales, **wanted) == [{"country": "Chad"}]
    assert server.rows(sales, limit=0) == []
    assert server.rows(sales, filter="UPPER(country) LIKE 'M%'", columns="revenue") == [
        {"revenue": 7.0}
    ]


def test_column_types_are_exact(serve: Any, shop: Any) -> None:
    columns = (
        Column("id", "INT"),
        Column("at", "TIMESTAMP(3)"),
        Column("zoned", "TIMESTAMP_LTZ(3)"),
        Column("price", "DECIMAL(10, 2)"),
    )
    table = shop.create("typed", columns, ["id"])
    instant = 1_700_000_000_123
    shop.write(table, (1, instant, instant, Decimal("1.10")))
    server = serve()
    assert server.rows(table) == [
        {
            "id": 1,
            "at": "2023-11-14T22:13:20.123",
            "zoned": "2023-11-14T22:13:20.123Z",
            "price": "1.10",
        }
    ]
    arrow = pa.ipc.open_stream(server.get(f"/views/{table}", format="arrow").content).schema
    assert arrow.field("at").type == pa.timestamp("ms")
    assert arrow.field("zoned").type == pa.timestamp("ms", "UTC")


def test_as_of(serve: Any, shop: Any, sales: str) -> None:
    server = serve()
    first = server.get(f"/views/{sales}", as_of="1").json()
    assert first["snapshot"] == 1
    assert [row["country"] for row in first["rows"]] == ["Chad", "Peru"]
    shop.tag(sales, "opening", 1)
    assert server.get(f"/views/{sales}", as_of="opening").json() == first
    assert server.get(f"/views/{sales}", as_of=first["time"]).json() == first
    shop.warehouse.alter_table(sales, AddColumn(Column("note", "STRING")))
    assert "note" not in server.rows(sales, as_of="opening")[0]
    assert server.rows(sales)[0]["note"] is None
    wrong = server.get(f"/views/{sales}", as_of="closing")
    assert "has no tag 'closing'; did you mean 'opening'?" in problem(wrong, 404, "not_found")
    late = server.get(f"/views/{sales}", as_of="99")
    assert "its newest is 2" in problem(late, 404, "not_found")
    never = server.get(f"/views/{sales}", as_of="0")
    assert "has no snapshot 0" in problem(never, 404, "not_found")
    for odd in ("²", "9" * 199, "0001-01-01", "1e400"):
        assert server.get(f"/views/{sales}", as_of=odd).status_code in (400, 404, 410)


def test_rows_match_the_snapshot_header(serve: Any, shop: Any) -> None:
    table = shop.create("counter", (Column("id", "INT"), Column("n", "BIGINT")), ["id"])
    server = serve()
    for number in range(1, 6):
        snapshot = shop.write(table, (1, number))
        body = server.get(f"/views/{table}").json()
        assert (body["snapshot"], body["rows"]) == (snapshot, [{"id": 1, "n": number}])


def test_etags(serve: Any, shop: Any, sales: str) -> None:
    server = serve()
    answer = server.get(f"/views/{sales}")
    tag = answer.headers["etag"]

    def again(**parameters: str) -> Any:
        return server.http.get(
            f"/views/{sales}", params=parameters, headers={"If-None-Match": f'"x", {tag}'}
        )

    assert again().status_code == 304 and again().content == b""
    assert again(order="orders").status_code == 200
    assert again(format="csv").status_code == 200
    shop.write(sales, ("Chad", 5, 1.5))
    assert again().status_code == 200
    shop.warehouse.drop_table("shop", "sales")
    shop.sales()
    shop.write(sales, ("Oman", 1, 1.0))
    shop.write(sales, ("Oman", 2, 1.0))
    assert again().status_code == 200


def test_a_view_of_several_tables(serve: Any, shop: Any, sales: str) -> None:
    orders = shop.orders()
    shop.write(orders, (1, "Chad", Decimal("1.00")), (2, "Chad", Decimal("2.50")))
    text = (
        "SELECT s.country, SUM(o.price) AS paid FROM shop.sales s JOIN shop.orders o "
        "ON o.item = s.country GROUP BY s.country"
    )
    columns = (Column("country", "STRING"), Column("paid", "DECIMAL(38, 2)"))
    Views(shop.warehouse).create(ViewInfo(("shop", "paid"), columns, text, "What was paid"))
    server = serve()
    body = server.get("/views/shop.paid").json()
    assert body["snapshot"] == 3 and body["rows"] == [{"country": "Chad", "paid": "3.50"}]
    assert server.rows("shop.paid", filter="paid > 3", columns="country") == [{"country": "Chad"}]
    reported = {view["name"]: view for view in server.get("/views").json()["views"]}
    assert reported["shop.paid"]["kind"] == "view" and reported["shop.paid"]["snapshot"] == 3
    assert reported["shop.paid"]["description"] == "What was paid"
    wrong = server.get("/views/shop.paid", as_of="1")
    assert "is a view of several tables" in problem(wrong, 404, "not_found")


def test_branches(serve: Any, shop: Any, sales: str) -> None:
    shop.tag(sales, "opening", 1)
    shop.branch(sales, "test", "opening")
    server = serve()
    assert [r["country"] for r in server.rows("shop.sales$branch_test")] == ["Chad", "Peru"]
    missing = server.get("/views/shop.sales$branch_tset")
    assert "did you mean 'test'?" in problem(missing, 404, "not_found")


def test_invalid_parameters(serve: Any, sales: str) -> None:
    server = serve()

    def said(status: int, code: str, **parameters: Any) -> str:
        return problem(server.get(f"/views/{sales}", **parameters), status, code)

    assert "did you mean 'country'?" in said(400, "bad_request", columns="contry")
    assert "did you mean 'orders'?" in said(400, "bad_request", order="-order")
    assert "did you mean 'columns'?" in said(400, "bad_request", colums="country")
    assert "not one of json, csv" in said(400, "bad_request", format="xml")
    assert "parameter 'limit'" in said(422, "invalid", limit="many")
    assert "parameter 'limit'" in said(422, "invalid", limit=-1)
    assert "between two commas" in said(400, "bad_request", columns="country,,orders")
    assert "given twice" in said(400, "bad_request", limit=["1", "2"])
    assert "control character" in said(400, "bad_request", as_of="a\x00b")
    message = said(422, "invalid", filter="order > 1")
    assert message.startswith("line 1, column ") and "there is no column" in message
    assert "cannot contain a query" in said(422, "invalid", filter="orders IN (SELECT 1)")
    for text in ("1; DROP TABLE x", "orders >", ")", "a AS b", "orders > 1 UNION SELECT 1", " "):
        said(422, "invalid", filter=text)
    assert "must be BOOLEAN" in said(422, "invalid", filter="orders")
    assert "the query failed" in said(422, "invalid", filter="CAST(country AS INT) > 1")
    missing = server.get("/views/shop.sale")
    assert "did you mean 'shop.sales'?" in problem(missing, 404, "not_found")
    for name in ("sales", "shop.", ".sales", "shop.sales$files", "..%2f..%2fetc.passwd", "a.b%00"):
        assert server.get(f"/views/{name}").status_code == 404
    assert "system table" in server.get("/views/shop.sales$options").json()["error"]["message"]


def test_too_many_rows(serve: Any, sales: str) -> None:
    server = serve(max_rows=2)
    message = problem(server.get(f"/views/{sales}"), 413, "too_large")
    assert "more than 2 rows" in message and "--max-rows" in message
    # The message suggests only what reduces the number of rows.
    assert problem(server.get(f"/views/{sales}", columns="country"), 413, "too_large") == message
    assert "limit= or filter=" in message and "columns" not in message
    assert problem(server.get(f"/views/{sales}", limit=3), 413, "too_large")
    assert len(server.rows(sales, limit=2)) == 2
    assert len(server.rows(sales, filter="orders > 1")) == 2


def test_view_of_a_views_file(serve: Any, shop: Any, sales: str) -> None:
    displayed = ServedView(
        "hall.board", sales, ("country", "revenue"), "revenue > 2 -- big\n", "Big ones", None,
        {"type": "bars", "x": "country", "y": ["revenue"]},
    )  # fmt: skip
    server = serve(views=(displayed,))
    assert [view["name"] for view in server.get("/views").json()["views"]] == ["hall.board"]
    reported = server.get("/views").json()["views"][0]
    assert reported["title"] == "Big ones" and reported["chart"]["x"] == "country"
    assert [column["name"] for column in reported["columns"]] == ["country", "revenue"]
    assert reported["primary_key"] == ["country"]
    assert server.rows("hall.board") == [
        {"country": "Mali", "revenue": 7.0},
        {"country": "Peru", "revenue": 2.5},
    ]
    assert server.rows("hall.board", filter="country < 'N' OR 1 = 0") == [
        {"country": "Mali", "revenue": 7.0}
    ]
    # What is not shown cannot be guessed by conditions either.
    hidden = server.get("/views/hall.board", filter="orders > 1")
    assert "there is no column 'orders'" in problem(hidden, 422, "invalid")
    assert problem(server.get("/views/hall.board", order="orders"), 400, "bad_request")
    assert problem(server.get(f"/views/{sales}"), 404, "not_found")


def test_history(serve: Any, shop: Any, sales: str) -> None:
    shop.tag(sales, "opening", 1)
    server = serve()
    base = f"/views/{sales}"
    found = server.get(f"{base}/snapshots", limit=1).json()["snapshots"]
    assert [(item["snapshot"], item["kind"]) for item in found] == [(2, "APPEND")]
    assert found[0]["delta_rows"] == 2 and found[0]["time"].endswith("Z")
    assert server.get(f"{base}/tags").json()["tags"][0]["tag"] == "opening"
    files = server.get(f"{base}/files").json()
    assert files["total"] == len(files["files"]) == 2
    assert all("/" not in file["file"] and file["rows"] == 2 for file in files["files"])
    shape = server.get(f"{base}/schema").json()
    assert shape["primary_key"] == ["country"] and shape["schema_versions"][0]["version"] == 0
    assert problem(server.get(f"{base}/snapshots", limit=0), 422, "invalid")
    assert problem(server.get("/views/shop.other/tags"), 404, "not_found")


def test_secret_options_are_masked(serve: Any, shop: Any) -> None:
    table = shop.create("kept", (Column("id", "INT"),), ["id"])
    # As another engine may write it, which does not check options.
    file = shop.path / "shop.db" / "kept" / "schema" / "schema-0"
    schema = json.loads(file.read_text())
    schema["options"]["fs.s3a.secret.key"] = "hidden"
    file.write_text(json.dumps(schema))
    reported = serve().get(f"/views/{table}/options")
    assert reported.json()["options"]["fs.s3a.secret.key"] == "****"
    assert "hidden" not in reported.text and reported.json()["options"]["bucket"] == "1"


def test_list_of_views(serve: Any, shop: Any, sales: str) -> None:
    server = serve()
    shop.orders()
    reported = {view["name"]: view for view in server.get("/views").json()["views"]}
    assert set(reported) == {"shop.sales", "shop.orders"}
    one = reported["shop.sales"]
    assert one["kind"] == "table" and one["rows"] == 3 and one["snapshot"] == 2
    assert one["columns"][0] == {"name": "country", "type": "STRING", "nullable": False}
    assert reported["shop.orders"]["rows"] == 0 and reported["shop.orders"]["snapshot"] is None
    assert server.get(f"/views/{sales}/about").json() == one


def test_hidden_columns_if_table_is_named_like_a_column(serve: Any, shop: Any) -> None:
    columns = (Column("total", "BIGINT"), Column("pay", "BIGINT"))
    table = shop.create("total", columns, ["total"])
    shop.write(table, (1, 1_000), (2, 5_000))
    server = serve(views=(ServedView("hall.total", table, ("total",)),))
    for text in ("total.pay > 2000", "shop.total.pay > 2000", "total.total.pay > 2000"):
        hidden = server.get("/views/hall.total", filter=text)
        assert "there is no column 'pay'" in problem(hidden, 422, "invalid"), text
    assert server.rows("hall.total", filter="total.total > 1") == [{"total": 2}]
    assert server.rows("hall.total", filter="total > 1") == [{"total": 2}]


def test_files_and_snapshots_do_not_reveal_hidden_rows(serve: Any, shop: Any) -> None:
    columns = (Column("country", "STRING"), Column("orders", "BIGINT"))
    options = {"bucket": "-1"}
    shop.warehouse.create_table("shop", "parts", columns, (), ("country",), options)
    shop.write("shop.parts", ("Chad", 1), ("Peru", 2))
    views = (
        ServedView("hall.all", "shop.parts"),
        ServedView("hall.some", "shop.parts", None, "country = 'Chad'"),
        ServedView("hall.orders", "shop.parts", ("orders",)),
    )
    server = serve(views=views)
    assert "Peru" in server.get("/views/hall.all/files").text
    for name in ("hall.some", "hall.orders"):
        reported = server.get(f"/views/{name}/files")
        assert {file["partition"] for file in reported.json()["files"]} == {None}
        assert "Peru" not in reported.text and reported.json()["total"] == 2
        counts = {file[key] for file in reported.json()["files"] for key in ("rows", "bytes")}
        assert (counts == {None}) is (name == "hall.some")
    counted = [server.get(f"/views/{view.name}/snapshots").json()["snapshots"] for view in views]
    assert [[one["rows"], one["delta_rows"]] for (one,) in counted] == [
        [2, 2],
        [None, None],
        [2, 2],
    ]


def test_credentials_in_option_values_are_masked(serve: Any, shop: Any) -> None:
    table = shop.create("kept", (Column("id", "INT"),), ["id"])
    file = shop.path / "shop.db" / "kept" / "schema" / "schema-0"
    schema = json.loads(file.read_text())
    schema["options"]["x.url"] = "jdbc:mysql://me:hidden@db/shop?password=hidden"
    file.write_text(json.dumps(schema))
    assert "hidden" not in serve().get(f"/views/{table}/options").text


@pytest.mark.parametrize("text", ["{}", "[]", "null", "{", '{"id": 1}', "\udcff"])
def test_damaged_table_does_not_break_the_list(
    serve: Any, shop: Any, sales: str, text: str
) -> None:
    orders = shop.orders()
    shop.write(orders, (1, "nut", None))
    file = shop.path / "shop.db" / "orders" / "snapshot" / "snapshot-1"
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    server = serve()
    reported = {view["name"]: view for view in server.get("/views").json()["views"]}
    assert reported[sales]["rows"] == 3 and set(reported) == {sales, orders}
    for path in ("", "/about", "/snapshots", "/changes"):
        answer = server.get(f"/views/{orders}{path}")
        assert answer.status_code < 500, answer.text
        assert str(shop.path) not in answer.text


def test_view_without_table_reveals_no_other_tables(serve: Any, shop: Any, sales: str) -> None:
    names = {"hall.a": "shop.sale", "hall.b": "shops.sales", "hall.c": "shop.sales$branch_b"}
    server = serve(views=tuple(ServedView(name, source) for name, source in names.items()))
    reported = server.get("/views")
    assert [("error" in view, view["columns"]) for view in reported.json()["views"]] == [
        (True, [])
    ] * 3
    answers = [reported.text, server.sql("SELECT * FROM hall.a").text]
    for name in names:
        for path in ("", "/schema", "/files", "/changes"):
            answer = server.get(f"/views/{name}{path}")
            assert "cannot be read" in problem(answer, 404, "not_found")
            answers.append(answer.text)
    assert not any("'sales'" in text or str(shop.path) in text for text in answers)


def test_unreadable_table_does_not_break_the_list(serve: Any, shop: Any, sales: str) -> None:
    # A name that the format's core keeps for itself, as another engine may write it.
    shop.create("odd", (Column("rowkind", "STRING"),), unchecked=True)
    table = shop.create("cut", (Column("id", "INT"),), ["id"])
    shop.write(table, (1,))
    (data,) = (shop.path / "shop.db" / "cut" / "bucket-0").iterdir()
    data.write_bytes(b"PAR1")
    keep(shop.warehouse, "none", "1 + 1", "n")
    keep(shop.warehouse, "gone", "SELECT a FROM shop.sale", "a")
    server = serve()
    reported = {view["name"]: view for view in server.get("/views").json()["views"]}
    assert reported[sales]["rows"] == 3 and len(reported) == 5
    for name in ("shop.odd", "shop.none", "shop.gone"):
        assert reported[name]["error"]
    place = str(shop.path).strip("/")
    for name in reported:
        for path in ("", "/schema", "/about", "/files"):
            answer = server.get(f"/views/{name}{path}")
            assert place not in answer.text, answer.text
            assert "Traceback" not in answer.text and "internal server error" not in answer.text
    # Who sees a view need not see what else there is.
    gone = problem(server.get("/views/shop.gone"), 422, "invalid")
    assert "'shop.sale', which does not exist" in gone and "shop.sales" not in gone


def test_columns_that_differ_only_by_case(serve: Any, shop: Any) -> None:
    table = shop.create("caps", (Column("a", "INT"), Column("A", "INT")), unchecked=True)
    shop.write(table, (1, 2))
    server = serve()
    for answer in (server.get(f"/views/{table}"), server.sql(f"SELECT * FROM {table}")):
        assert "'a' and 'A' differ only in case" in problem(answer, 422, "invalid")
    assert server.get(f"/views/{table}/about").json()["rows"] == 1


def test_disconnect_leaves_no_file(serve: Any, sales: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reading thread continues after the disconnect; its file is deleted."""
    begun, go, ended = threading.Event(), threading.Event(), threading.Event()
    small = view_rows.read_if_small

    def slow(warehouse: Any, asked: Any) -> Any:
        begun.set()
        assert go.wait(DEADLINE_S)
        try:
            return small(warehouse, asked)
        finally:
            ended.set()

    monkeypatch.setattr(executor, "read_if_small", slow)
    server = serve()
    folder = Path(server.app.state.queries.folder)
    cancelled = threading.Event()
    deleted = OutputTarget.delete

    def delete(target: OutputTarget) -> None:
        deleted(target)
        cancelled.set()

    monkeypatch.setattr(OutputTarget, "delete", delete)
    with socket.create_connection(("127.0.0.1", server.port), timeout=DEADLINE_S) as client:
        client.sendall(f"GET /views/{sales} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        assert begun.wait(DEADLINE_S)
    # The server has noticed the disconnect before the thread goes on.
    assert cancelled.wait(DEADLINE_S)
    go.set()
    assert ended.wait(DEADLINE_S)

    def left() -> list[str]:
        return [path.name for path in folder.iterdir() if path.name != ".lock"]

    until(lambda: not left(), left)


@pytest.mark.parametrize("seed", range(2))
def test_a_part_of_a_table_without_a_key_has_its_newest_rows(
    serve: Any, shop: Any, seed: int
) -> None:
    generated = random.Random(seed)
    table, written = shop.create("log", (Column("n", "INT"),)), list[list[int]]()
    server = serve()
    for _ in range(5):
        size = generated.choice([1, 3, 40])
        before = sum(written, [])
        written.append(list(range(len(before), len(before) + size)))
        shop.write(table, *((n,) for n in written[-1]))
        every = sum(written, [])
        for limit in (0, 1, generated.randrange(1, 60), len(every), len(every) + 1):
            found = [row["n"] for row in server.rows(table, limit=limit)]
            assert found == every[max(0, len(every) - limit) :]
    assert [row["n"] for row in server.rows(table, limit=2, order="n")] == [0, 1]
    past = written[0] + written[1]
    assert [row["n"] for row in server.rows(table, limit=2, as_of=2)] == past[-2:]
    assert sorted(row["n"] for row in server.rows(table)) == every
