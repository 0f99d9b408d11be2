"""Health, metrics, API documentation and access log of a server."""

from __future__ import annotations

import json
import re
import shutil
from typing import Any
from urllib.parse import urljoin

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.serving import Serving, problem
from tests.waiting import DEADLINE_S

from streamhouse.serve.settings import StreamSettings
from streamhouse.serve.tokens import BearerToken, Scope, digest


@pytest.fixture
def sales(shop: Any) -> str:
    table: str = shop.sales()
    shop.write(table, ("Peru", 2, 2.5), ("Chad", 1, 1.5))
    return table


def test_health(serve: Any, shop: Any, sales: str) -> None:
    server = serve()
    reported = server.get("/health")
    assert reported.status_code == 200
    assert reported.json()["status"] == "ok" and reported.json()["warehouse"] == "ok"
    assert reported.json()["views"] == 1 and reported.json()["uptime_seconds"] >= 0
    assert reported.json()["limits"] == {"query_seconds": DEADLINE_S, "query_rows": 100_000}
    shutil.rmtree(shop.path)
    failing = server.get("/health")
    assert failing.status_code == 503 and failing.json()["status"] == "failing"
    assert str(shop.path) not in failing.text


def metrics(server: Serving, **headers: str) -> dict[tuple[str, ...], float]:
    answer = server.http.get("/metrics", headers=headers)
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    return {
        (sample.name, *(sample.labels[key] for key in sorted(sample.labels))): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


def test_metrics(serve: Any, shop: Any, sales: str) -> None:
    server = serve(streams=StreamSettings(every_ms=5))
    with server.stream(f"/views/{sales}/changes") as events:
        next(events)
        shop.write(sales, ("Chad", 9, 1.5))
        next(events)
        server.rows(sales)
        server.sql("SELECT 1 AS n")
        server.get("/views/shop.none")
        server.get("/nothing/at/all")
        found = metrics(server)
    assert found[("streamhouse_stream_subscribers", sales)] == 1
    assert found[("streamhouse_stream_rows_total", sales)] == 1
    assert found[("streamhouse_stream_snapshot", sales)] == 2
    assert found[("streamhouse_stream_freshness_seconds", sales)] >= 0
    assert found[("streamhouse_requests_total", "200", "GET", "/views/{name}")] == 1
    assert found[("streamhouse_requests_total", "404", "GET", "/views/{name}")] == 1
    assert found[("streamhouse_requests_total", "404", "GET", "other")] == 1
    assert found[("streamhouse_queries_total", "answered")] == 1
    assert found[("streamhouse_query_seconds_count",)] == 1


def test_metrics_cover_only_views_that_the_token_sees(serve: Any, shop: Any, sales: str) -> None:
    given = (
        BearerToken(digest("all"), Scope("all")),
        BearerToken(digest("few"), Scope("few", ("hr.*",))),
    )
    server = serve(tokens=given)
    everything = {"Authorization": "Bearer all"}
    with server.stream(f"/views/{sales}/changes", **everything) as events:
        next(events)
        name = ("streamhouse_stream_subscribers", sales)
        assert metrics(server, **everything)[name] == 1
        assert name not in metrics(server, Authorization="Bearer few")


def test_openapi_document(serve: Any, sales: str) -> None:
    server = serve()
    api = server.get("/openapi.json").json()
    assert api["info"]["title"] == "Streamhouse"
    for path in ("/views", "/views/{name}", "/views/{name}/changes", "/sql", "/health"):
        for one in api["paths"][path].values():
            assert one["summary"] and one["description"]
            assert set(one["responses"]) > {"200"}
    rows = api["paths"]["/views/{name}"]["get"]
    assert {parameter["name"] for parameter in rows["parameters"]} == {
        "name", "format", "columns", "filter", "order", "limit", "as_of",
    }  # fmt: skip
    assert all(parameter.get("description") for parameter in rows["parameters"])
    assert set(rows["responses"]["200"]["content"]) == {
        "application/json",
        "text/csv",
        "application/vnd.apache.arrow.stream",
        "application/vnd.apache.parquet",
    }
    assert rows["security"] == [{"token": []}]
    assert api["components"]["securitySchemes"]["token"]["scheme"] == "bearer"
    refused = rows["responses"]["404"]["content"]["application/json"]["schema"]
    assert refused == {"$ref": "#/components/schemas/ErrorResponse"}
    assert "HTTPValidationError" not in api["components"]["schemas"]
    tags = [tag["name"] for tag in api["tags"]]
    assert len(set(tags)) == len(tags)


def test_docs_page_loads_nothing_from_other_hosts(serve: Any) -> None:
    server = serve()
    page = server.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    assert "default-src 'self'" in page.headers["content-security-policy"]
    links = re.findall(r'(?:src|href)="([^"]+)"', page.text)
    parts = [urljoin("/docs", link) for link in links]
    assert parts and all(part.startswith("/") for part in parts)
    for part in ("/docs/api.js", "/docs/api.css"):
        assert part in parts and server.get(part).status_code == 200
        assert "://" not in server.get(part).text
    problem(server.get("/docs/../secret"), 404, "not_found")
    problem(server.get("/docs/other.js"), 404, "not_found")


def test_docs_page_works_below_a_path_of_a_proxy(serve: Any) -> None:
    server = serve()
    links = re.findall(r'(?:src|href)="([^"]+)"', server.get("/docs").text)
    assert links and not any(link.startswith("/") for link in links)
    for link in links:
        assert server.get(urljoin("/docs", link)).status_code == 200
    assert 'fetch("/' not in server.get("/docs/api.js").text


def test_unknown_paths_and_methods(serve: Any) -> None:
    server = serve()
    assert "GET /docs lists the paths" in problem(server.get("/view"), 404, "not_found")
    assert problem(server.http.delete("/views"), 405, "not_allowed")
    assert problem(server.get("/sql"), 405, "not_allowed")
    for headers in (server.get("/views").headers, server.get("/none").headers):
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"


def test_json_log_has_a_line_per_request(
    serve: Any, sales: str, capfd: pytest.CaptureFixture[str]
) -> None:
    given = (BearerToken(digest("hidden-token"), Scope("board")),)
    server = serve(log="json", tokens=given)
    auth = {"Authorization": "Bearer hidden-token"}
    server.http.get(f"/views/{sales}", params={"filter": "orders = 424242"}, headers=auth)
    server.http.get("/views/a%0Ab", headers=auth)
    server.close()
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    asked = next(line for line in lines if line.get("path") == f"/views/{sales}")
    assert asked["method"] == "GET" and asked["status"] == 200 and asked["token"] == "board"
    assert asked["route"] == "/views/{name}" and asked["bytes"] > 0 and asked["ms"] > 0
    assert asked["client"] == "127.0.0.1" and asked["level"] == "info"
    assert any(line.get("path") == "/views/a\\nb" for line in lines)
    text = json.dumps(lines)
    assert "hidden-token" not in text and "424242" not in text


def test_text_log(serve: Any, sales: str, capfd: pytest.CaptureFixture[str]) -> None:
    server = serve(log="text")
    server.rows(sales)
    server.close()
    assert re.search(
        r"^\d\d:\d\d:\d\d 127\.0\.0\.1 GET /views/shop\.sales 200 [\d.]+ ms \d+ B$",
        capfd.readouterr().err,
        re.MULTILINE,
    )


class Panic(BaseException):
    """As the table format's core raises it when it breaks down."""

    __module__ = "pyo3_runtime"


@pytest.mark.parametrize("kind", [RuntimeError, Panic])
def test_unexpected_exceptions_become_error_responses(
    serve: Any,
    sales: str,
    kind: type[BaseException],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    def broken(*_: object) -> None:
        raise kind("password=hidden")

    server = serve(log="text")
    monkeypatch.setattr("streamhouse.serve.queries.view_details.tags", broken)
    reported = problem(server.get(f"/views/{sales}/tags"), 500, "failed")
    assert "the server's log has the details" in reported
    assert server.get(f"/views/{sales}/schema").status_code == 200
    server.close()
    logged = capfd.readouterr().err
    assert "in broken" in logged and "hidden" not in logged
