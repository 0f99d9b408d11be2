"""HEAD on every GET path: the same status and headers, without a body."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from tests.serving import Serving, problem
from tests.waiting import until

from streamhouse.serve.settings import StreamSettings
from streamhouse.serve.tokens import BearerToken, Scope, digest

PATHS = [
    "/", "/page/app.js", "/docs", "/docs/api.js", "/openapi.json", "/views", "/views/shop.sales",
    "/views/shop.sales?format=csv", "/views/shop.sales?format=arrow&limit=1",
    "/views/shop.sales?format=parquet&filter=orders%20%3E%201", "/views/shop.sales?as_of=1",
    "/views/shop.sales/about", "/views/shop.sales/schema", "/views/shop.sales/snapshots",
    "/views/shop.sales/options", "/views/shop.sales/files", "/views/shop.sales/tags", "/pipelines",
    "/views/shop.none", "/views/shop.sales?limit=x", "/views/shop.sales?as_of=9", "/none", "/sql",
    "/page/none.js", "/pipelines/none",
]  # fmt: skip
OWN = {"date", "transfer-encoding"}


@pytest.fixture
def sales(shop: Any) -> str:
    table: str = shop.sales()
    shop.write(table, ("Peru", 2, 2.5), ("Chad", 1, 1.5))
    return table


def reported(answer: httpx.Response) -> dict[str, str]:
    return {name: value for name, value in answer.headers.items() if name not in OWN}


def test_head_equals_get_without_body(serve: Any, sales: str) -> None:
    server: Serving = serve()
    # The client would unpack a body, whose length is then another.
    server.http.headers["Accept-Encoding"] = "identity"
    for path in PATHS:
        got, head = server.http.get(path), server.http.head(path)
        assert (head.status_code, head.content) == (got.status_code, b""), path
        assert reported(head) == reported(got), path
        assert int(head.headers["content-length"]) == len(got.content) > 0, path
    # Figures differ from one answer to the next.
    for path in ("/health", "/metrics"):
        got, head = server.http.get(path), server.http.head(path)
        assert (head.status_code, head.content) == (200, b"")
        assert head.headers["content-type"] == got.headers["content-type"]


def test_if_none_match(serve: Any, sales: str) -> None:
    server: Serving = serve()
    for path in ("/views", f"/views/{sales}", "/page/app.js"):
        known = {"If-None-Match": server.http.head(path).headers["etag"]}
        assert server.http.head(path, headers=known).status_code == 304


def reading(server: Serving) -> bool:
    """Whether anybody reads a stream, as far as the server knows."""
    lines = server.get("/metrics").text.splitlines()
    readers = [line for line in lines if line.startswith("streamhouse_stream_subscribers{")]
    return server.app.state.streams > 0 or not all(line.endswith(" 0.0") for line in readers)


def test_head_of_a_stream_ends_after_the_headers(serve: Any, sales: str) -> None:
    server: Serving = serve(streams=StreamSettings(every_ms=5, linger_s=0.0))
    path = f"/views/{sales}/changes"
    head = server.http.head(path)
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-type"].startswith("text/event-stream")
    until(lambda: not reading(server))
    assert server.http.head(f"{path}?last_id=99").status_code == 410
    assert server.http.head("/views/shop.none/changes").status_code == 404
    with server.stream(path) as events:
        assert next(events)["event"] == "snapshot"


def test_head_only_on_get_paths(serve: Any, sales: str) -> None:
    server: Serving = serve()
    assert server.http.head("/sql").headers["allow"] == "POST"
    for path in ("/views", f"/views/{sales}"):
        refused = server.http.delete(path)
        assert "this path allows only GET, HEAD" in problem(refused, 405, "not_allowed")
        assert refused.headers["allow"] == "GET, HEAD"


def test_head_requires_the_same_permissions(
    serve: Any, sales: str, capfd: pytest.CaptureFixture[str]
) -> None:
    tokens = (
        BearerToken(digest("all"), Scope("all")),
        BearerToken(digest("few"), Scope("few", ("hr.*",))),
    )
    server: Serving = serve(tokens=tokens, log="json")
    path = f"/views/{sales}"
    assert server.http.head(path).status_code == 401
    for token, status in (("few", 404), ("all", 200)):
        answer = server.http.head(path, headers={"Authorization": f"Bearer {token}"})
        assert answer.status_code == status
    across = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}
    assert server.http.head(path, headers=across).status_code == 403
    server.close()
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    asked = [line for line in lines if line.get("path") == path]
    assert [line["status"] for line in asked] == [401, 404, 200, 403]
    assert {(line["method"], line["bytes"]) for line in asked} == {("HEAD", 0)}
    assert asked[2]["token"] == "all" and asked[2]["route"] == "/views/{name}"
