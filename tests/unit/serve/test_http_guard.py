"""Access control and limits of requests: tokens, origins, sizes and rates."""

from __future__ import annotations

import base64
import contextlib
import json
import shutil
import socket
from pathlib import Path
from typing import Any

import pytest
from tests.serving import Serving, problem
from tests.waiting import DEADLINE_S, looks, until
from websockets.exceptions import InvalidStatus

from streamhouse.errors import OptionError
from streamhouse.serve import tokens
from streamhouse.serve.admission.fair_queue import RateLimiter
from streamhouse.serve.http.connections import client_network
from streamhouse.serve.settings import ConnectionLimits, ServerSettings
from streamhouse.serve.tokens import BearerToken, Scope, digest

SECRET = "correct-horse-battery-staple"


@pytest.fixture
def guarded(serve: Any, shop: Any) -> Serving:
    """A server with a token for everything, and one for sales only."""
    shop.write(shop.sales(), ("Chad", 1, 1.5))
    shop.orders()
    given = (
        BearerToken(digest(SECRET), Scope("all")),
        BearerToken(digest("few"), Scope("few", ("shop.sal*",), frozenset({"read"}))),
    )
    server: Serving = serve(tokens=given)
    return server


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def test_tokens(guarded: Serving) -> None:
    for path in ("/views", "/views/shop.sales", "/views/shop.sales/schema", "/metrics"):
        answer = guarded.get(path)
        assert "requires a token" in problem(answer, 401, "unauthorized")
        assert answer.headers["www-authenticate"] == "Bearer"
        wrong = guarded.http.get(path, headers=bearer("wrong"))
        assert "token is unknown" in problem(wrong, 401, "unauthorized")
        assert guarded.http.get(path, headers=bearer(SECRET)).status_code == 200
    assert guarded.get("/openapi.json").status_code == 200


def test_health_without_token_has_only_the_status(guarded: Serving, shop: Any) -> None:
    alive = {"status": "ok", "token_needed": True}
    assert guarded.get("/health").json() == alive
    assert guarded.http.get("/health", headers=bearer("wrong")).json() == alive
    for token, views in ((SECRET, 2), ("few", 1)):
        reported = guarded.http.get("/health", headers=bearer(token)).json()
        assert reported.items() > alive.items()
        assert (reported["views"], reported["allow_run"]) == (views, False)
    shutil.rmtree(shop.path)
    failing = guarded.get("/health")
    assert (failing.status_code, failing.json()) == (503, {**alive, "status": "failing"})


def test_health_reports_whether_the_token_may_run_pipelines(serve: Any) -> None:
    given = (
        BearerToken(digest("all"), Scope("all")),
        BearerToken(digest("few"), Scope("few", acts=frozenset({"read"}))),
    )
    server: Serving = serve(tokens=given, allow_run=True)
    reported = [server.http.get("/health", headers=bearer(name)).json() for name in ("all", "few")]
    assert [one["allow_run"] for one in reported] == [True, False]


def test_hidden_views_do_not_exist_for_a_token(guarded: Serving) -> None:
    few = bearer("few")
    reported = guarded.http.get("/views", headers=few).json()["views"]
    assert [view["name"] for view in reported] == ["shop.sales"]
    hidden = guarded.http.get("/views/shop.orders", headers=few)
    missing = guarded.http.get("/views/shop.ordres", headers=few)
    message = problem(hidden, 404, "not_found")
    assert message.replace("orders", "ordres") == problem(missing, 404, "not_found")
    assert guarded.http.get("/views/shop.orders/changes", headers=few).status_code == 404


def test_websocket_tokens(guarded: Serving) -> None:
    path = "/views/shop.sales/changes"
    with pytest.raises(InvalidStatus) as refused:
        guarded.socket(path)
    assert refused.value.response.status_code == 401
    assert json.loads(refused.value.response.body)["error"]["code"] == "unauthorized"
    encoded = base64.urlsafe_b64encode(SECRET.encode()).decode().rstrip("=")
    with guarded.socket(path, subprotocols=["streamhouse", f"bearer.{encoded}"]) as reader:
        assert reader.subprotocol == "streamhouse"
        assert json.loads(reader.recv(timeout=DEADLINE_S))["type"] == "snapshot"
    with guarded.socket(path, additional_headers=bearer(SECRET)) as reader:
        assert json.loads(reader.recv(timeout=DEADLINE_S))["type"] == "snapshot"


def test_other_host_names_are_rejected(serve: Any) -> None:
    server = serve()
    for name in ("localhost", "LOCALHOST:99", "127.0.0.1:1", "[::1]:8080"):
        assert server.http.get("/health", headers={"Host": name}).status_code == 200
    for name in ("evil.example", "localhost.evil.example", "127.0.0.1.evil.example:8080", "["):
        answer = server.http.get("/health", headers={"Host": name})
        assert "accepts requests to localhost" in problem(answer, 403, "forbidden")


def test_cross_site_requests_are_rejected(serve: Any, shop: Any) -> None:
    shop.write(shop.sales(), ("Chad", 1, 1.5))
    server = serve(allow_origins=("https://board.example",))
    own = f"http://127.0.0.1:{server.port}"

    def asked(origin: str, **headers: str) -> Any:
        given = {"Origin": origin, **headers}
        return server.http.post("/sql", json={"sql": "SELECT 1 AS n"}, headers=given)

    assert asked(own).status_code == 200
    allowed = asked("https://board.example")
    assert allowed.headers["access-control-allow-origin"] == "https://board.example"
    for origin in ("https://evil.example", "null", "http://127.0.0.1:1"):
        refused = asked(origin)
        assert "--allow-origin" in problem(refused, 403, "forbidden")
        assert "access-control-allow-origin" not in refused.headers
        with pytest.raises(InvalidStatus) as denied:
            server.socket("/views/shop.sales/changes", origin=origin)
        assert denied.value.response.status_code == 403
    with server.socket("/views/shop.sales/changes", origin=own) as reader:
        assert json.loads(reader.recv(timeout=DEADLINE_S))["type"] == "snapshot"
    drawn = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}
    assert server.http.get("/views", headers=drawn).status_code == 403
    followed = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert server.http.get("/views", headers=followed).status_code == 200
    preflight = {
        "Origin": "https://board.example",
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "content-type",
    }
    assert server.http.options("/sql", headers=preflight).status_code == 200


def test_non_loopback_address_requires_a_token() -> None:
    for host in ("0.0.0.0", "192.0.2.1", "::", "example.com"):
        with pytest.raises(OptionError, match="openssl rand -hex 32"):
            ServerSettings({"warehouse": "w"}, host=host)
        ServerSettings({"warehouse": "w"}, host=host, tokens=(tokens.token_of("x"),))
    for host in ("127.0.0.1", "localhost", "::1", "127.0.0.2"):
        ServerSettings({"warehouse": "w"}, host=host)
    with pytest.raises(OptionError, match="is not an origin"):
        ServerSettings({"warehouse": "w"}, allow_origins=("board.example",))


def test_token_files(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text("# for the hall\n  one  \n\ntwo\n")
    kept = tokens.read_token_file(str(file))
    assert [token.scope.name for token in kept] == ["token 1", "token 2"]
    found = tokens.find_scope(kept, "two")
    assert found is not None and found.sees("any.thing") and found.may("run")
    assert tokens.find_scope(kept, "# for the hall") is None and tokens.find_scope(kept, "") is None
    file.write_text(
        "tokens:\n- name: board\n  token: three\n  views: ['shop.*']\n"
        f"- {{name: other, sha256: {digest('four').hex()}, acts: [read]}}\n"
    )
    kept = tokens.read_token_file(str(file))
    board, other = tokens.find_scope(kept, "three"), tokens.find_scope(kept, "four")
    assert board is not None and other is not None
    assert (board.name, board.sees("shop.x"), board.sees("hr.x")) == ("board", True, False)
    assert board.may("sql") and not board.may("run") and not other.may("sql")
    assert "three" not in repr(kept)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "contains no token; create a token with"),
        ("tokens: 3", "must be a list of"),
        ("tokens: [{name: a}]", "give either 'token' or 'sha256'"),
        ("tokens: [{tokn: a}]", "did you mean 'token'?"),
        ("tokens: [{token: a, acts: [rule]}]", "is not one of read, sql, run"),
        ("tokens: [{sha256: a}]", "64 hexadecimal digits"),
        ("tokens: [{token: 0123}]", "put it in quotes"),
        ("tokns:\n- name: hidden-one\n", "line 1: a token cannot contain spaces, colons"),
        ("one\n- name: hidden-one\n", "line 2: a token cannot contain spaces, colons"),
        ("hidden-one\ntwo\nhidden-one\n", "a token is listed twice"),
        ("tokens: [{token: true}]", "put it in quotes"),
        ("tokens: [{token: hidden-one, views: shop}]", "must be a list of strings"),
        ("tokens:\n - token: [hidden-one\n", "is not YAML in line"),
    ],
)
def test_invalid_token_files(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "tokens"
    file.write_text(text)
    with pytest.raises(OptionError) as error:
        tokens.read_token_file(str(file))
    assert said in str(error.value) and "hidden-one" not in str(error.value)
    with pytest.raises(OptionError, match="cannot be read"):
        tokens.read_token_file(str(tmp_path / "missing"))


def test_token_bucket() -> None:
    now = 0.0
    rate = RateLimiter(2.0, lambda: now)
    assert [rate.take("a") for _ in range(20)] == [0.0] * 20
    assert rate.take("a") == pytest.approx(0.5)
    assert rate.take("b") == 0.0
    now = 0.5
    assert rate.take("a") == 0.0 and rate.take("a") > 0
    now = 1_000.0
    assert [rate.take("a") for _ in range(21)].count(0.0) == 20
    assert RateLimiter(0.0).take("a") == 0.0


@pytest.mark.parametrize("rate", [float("nan"), float("inf"), -1.0])
def test_invalid_rates(rate: float) -> None:
    with pytest.raises(OptionError, match="--rate.* is not a number of requests"):
        ServerSettings({"warehouse": "somewhere"}, rate=rate)


def test_too_many_requests(serve: Any) -> None:
    server = serve(rate=0.1)
    assert server.get("/health").status_code == 200
    answer = server.get("/health")
    assert "more than 0.1 requests a second" in problem(answer, 429, "too_many")
    assert 1 <= int(answer.headers["retry-after"]) <= 10


def exchange(server: Serving, text: bytes) -> bytes:
    """Send bytes on a new connection; returns the response bytes until it closes."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=DEADLINE_S) as connection:
        connection.sendall(text)
        found = b""
        while part := connection.recv(65_536):
            found += part
        return found


def test_size_limits(serve: Any) -> None:
    server = serve()
    message = problem(server.get("/views", x="y" * 20_000), 413, "too_large")
    assert "the path and its parameters" in message
    long = {"X-Long": "y" * 40_000}
    assert "headers" in problem(server.http.get("/views", headers=long), 413, "too_large")
    endless = b"GET /" + b"x" * 99_000
    assert exchange(server, endless).startswith(b"HTTP/1.1 413")
    assert exchange(server, b"nonsense\r\n\r\n").startswith(b"HTTP/1.1 400")
    assert b'"code": "bad_request"' in exchange(server, b"\x16\x03\x01\x02\x00\r\n\r\n")
    assert server.get("/health").status_code == 200


def test_pipelined_requests(serve: Any) -> None:
    server = serve()
    body = b"x" * 60_000
    post = (
        b"POST /sql HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/x\r\n"
        b"Content-Length: 60000\r\n"
    )
    requests = (post + b"\r\n" + body) * 4 + post + b"Connection: close\r\n\r\n" + body
    assert exchange(server, requests).count(b"HTTP/1.1 415") == 5


def test_header_timeout(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamhouse.serve.http.connections.HEAD_S", 1.0)
    server = serve()
    assert exchange(server, b"GET /health HTTP/1.1\r\nHost:").startswith(b"HTTP/1.1 408")
    assert exchange(server, b"") == b""


def test_too_many_connections(serve: Any) -> None:
    server = serve(connections=ConnectionLimits(total=3))
    address = ("127.0.0.1", server.port)
    first = [socket.create_connection(address, timeout=DEADLINE_S) for _ in range(3)]
    try:
        for one in first:
            one.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert one.recv(65_536).startswith(b"HTTP/1.1 200")
        assert exchange(server, b"").startswith(b"HTTP/1.1 503")
    finally:
        for one in first:
            one.close()


def test_too_many_connections_from_one_address(serve: Any, shop: Any) -> None:
    shop.write(shop.sales(), ("Chad", 1, 1.5))
    server = serve(connections=ConnectionLimits(per_address=2))
    request_bytes = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"

    def answer(host: str) -> bytes:
        place = ("127.0.0.1", server.port)
        with (
            contextlib.suppress(ConnectionError),
            socket.create_connection(
                place, timeout=DEADLINE_S, source_address=(host, 0)
            ) as connection,
        ):
            connection.sendall(request_bytes)
            return connection.recv(65_536)
        # The server closed the connection before it had received the whole request.
        return b""

    with server.socket("/views/shop.sales/changes") as reader:
        with server.socket("/views/shop.sales/changes"):
            refused = exchange(server, b"")
            assert refused.startswith(b"HTTP/1.1 429") and b"--max-per-address" in refused
            assert answer("127.0.0.2").startswith(b"HTTP/1.1 200")
            assert json.loads(reader.recv(timeout=DEADLINE_S))["type"] == "snapshot"
        until(lambda: answer("127.0.0.1").startswith(b"HTTP/1.1 200"))


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("10.0.0.1", "10.0.0.1", True),
        ("10.0.0.1", "10.0.0.2", False),
        ("::ffff:10.0.0.1", "10.0.0.1", True),
        ("2001:db8:1:2::1", "2001:db8:1:2:ffff::9", True),
        ("2001:db8:1:2::1", "2001:db8:1:3::1", False),
        ("::1", "127.0.0.1", False),
    ],
)
def test_client_network(one: str, other: str, same: bool) -> None:
    assert (client_network((one, 1)) == client_network((other, 2))) is same


@pytest.mark.parametrize("path", ["/sql", "/scripts/check", "/pipelines"])
def test_body_timeout(serve: Any, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    monkeypatch.setattr("streamhouse.serve.http.middleware.BODY_S", 0.2)
    server = serve(allow_run=True)
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        'Content-Length: 99\r\n\r\n{"sql": '
    )
    answer = exchange(server, head.encode())
    assert answer.startswith(b"HTTP/1.1 400") and b"did not arrive within 0.2 s" in answer


def test_client_that_disconnects_within_its_body(
    serve: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    server = serve(log="json")
    head = b"POST /sql HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\nSELECT"
    with socket.create_connection(("127.0.0.1", server.port), timeout=DEADLINE_S) as connection:
        connection.sendall(head)
    for _ in looks():
        if 'method="POST"' in (reported := server.get("/metrics").text):
            break
    assert 'code="499"' in reported and 'code="500"' not in reported
    server.close()
    assert "Traceback" not in capfd.readouterr().err
