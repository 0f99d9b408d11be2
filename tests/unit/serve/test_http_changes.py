"""Change streams over HTTP: server-sent events and WebSockets."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.serving import Serving, problem
from tests.waiting import DEADLINE_S
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection

from streamhouse.serve.settings import StreamSettings
from streamhouse.serve.views.served_view import ServedView

FAST = StreamSettings(every_ms=5, heartbeat_s=0.2)


@pytest.fixture
def sales(shop: Any) -> str:
    table: str = shop.sales()
    shop.write(table, ("Peru", 2, 2.5), ("Chad", 1, 1.5))
    return table


def changed(row: dict[str, Any]) -> tuple[Any, ...]:
    return (row["rowkind"], row["country"], row["orders"])


def test_server_sent_events(serve: Any, shop: Any, sales: str) -> None:
    server: Serving = serve(streams=FAST)
    with server.stream(f"/views/{sales}/changes") as events:
        first = next(events)
        assert first["event"] == "snapshot" and first["snapshot"] == 1 and not first["more"]
        assert [changed(row) for row in first["rows"]] == [("+I", "Chad", 1), ("+I", "Peru", 2)]
        shop.write(sales, ("Chad", 3, 1.5), ("Peru", 2, 2.5), kinds=["+I", "-D"])
        second = next(events)
        assert second["event"] == "changes" and second["snapshot"] == 2
        assert sorted(changed(row) for row in second["rows"]) == [
            ("+U", "Chad", 3),
            ("-D", "Peru", 2),
            ("-U", "Chad", 1),
        ]
    with server.stream(f"/views/{sales}/changes?last_id={first['id']}") as events:
        assert next(events) == second
    with server.stream(f"/views/{sales}/changes", **{"Last-Event-ID": first["id"]}) as events:
        assert next(events) == second


def test_websocket_messages(serve: Any, shop: Any, sales: str) -> None:
    server = serve(streams=FAST)
    with server.socket(f"/views/{sales}/changes?columns=country,orders") as reader:
        first = json.loads(reader.recv(timeout=DEADLINE_S))
        assert first["type"] == "snapshot" and first["id"].startswith("1-")
        assert first["rows"][0] == {"rowkind": "+I", "country": "Chad", "orders": 1}
        while json.loads(reader.recv(timeout=DEADLINE_S))["type"] != "heartbeat":
            pass
        shop.write(sales, ("Oman", 7, 1.0))
        while (found := json.loads(reader.recv(timeout=DEADLINE_S)))["type"] == "heartbeat":
            pass
        assert found["rows"] == [{"rowkind": "+I", "country": "Oman", "orders": 7}]


def test_the_log_counts_the_bytes_of_websocket_messages(
    serve: Any, shop: Any, sales: str, capfd: pytest.CaptureFixture[str]
) -> None:
    shop.write(sales, ("Côte d’Ivoire", 1, 1.0))
    server = serve(streams=FAST, log="json")
    with server.socket(f"/views/{sales}/changes?columns=country") as reader:
        texts = [str(reader.recv(timeout=DEADLINE_S))]
        while json.loads(texts[-1])["type"] != "heartbeat":
            texts.append(str(reader.recv(timeout=DEADLINE_S)))
    server.close()
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    asked = next(line for line in lines if line.get("path") == f"/views/{sales}/changes")
    assert any(not text.isascii() for text in texts)
    assert asked["bytes"] >= sum(len(text.encode()) for text in texts)
    heartbeat = len(texts[-1])
    assert (asked["bytes"] - sum(len(text.encode()) for text in texts)) % heartbeat == 0


def test_stream_of_a_view_with_columns_and_filter(serve: Any, shop: Any, sales: str) -> None:
    view = ServedView("hall.board", sales, ("country",), "orders > 1")
    server = serve(views=(view,), streams=FAST)
    with server.stream("/views/hall.board/changes") as events:
        assert next(events)["rows"] == [{"rowkind": "+I", "country": "Peru"}]
        shop.write(sales, ("Chad", 9, 1.5))
        assert next(events)["rows"] == [{"rowkind": "+I", "country": "Chad"}]


def test_requests_that_cannot_be_streamed(serve: Any, sales: str) -> None:
    server = serve(streams=FAST)
    path = f"/views/{sales}/changes"
    answer = server.get(path, last_id="99")
    problem(answer, 410, "expired")
    assert answer.json()["error"]["restart"] == path
    assert "earliest" in answer.json()["error"]
    problem(server.get(path, last_id="x y"), 400, "bad_request")
    problem(server.get(path, columns="contry"), 400, "bad_request")
    problem(server.get(path, since="1"), 400, "bad_request")
    problem(server.get("/views/shop.sale/changes"), 404, "not_found")
    for wrong, status in ((f"{path}?last_id=99", 410), ("/views/shop.no/changes", 404)):
        with pytest.raises(InvalidStatus) as refused:
            server.socket(wrong)
        assert refused.value.response.status_code == status
        assert "message" in json.loads(refused.value.response.body)["error"]


def test_client_that_sends_messages_is_disconnected(serve: Any, sales: str) -> None:
    server = serve(streams=FAST)
    with server.socket(f"/views/{sales}/changes") as reader:
        with pytest.raises(ConnectionClosed) as closed:
            for _ in range(200):
                reader.send("hello")
            while True:
                reader.recv(timeout=DEADLINE_S)
        assert closed.value.rcvd is not None and closed.value.rcvd.code == 1008


def test_slow_subscriber_is_disconnected_and_can_resume(serve: Any, shop: Any) -> None:
    table = shop.orders()
    settings = StreamSettings(every_ms=5, queue_events=4, queue_bytes=1 << 20)
    server = serve(streams=settings)
    wide = "x" * 200_000
    with server.http.stream("GET", f"/views/{table}/changes") as answer:
        lines = answer.iter_lines()
        assert next(lines).startswith("id: ")
        number = 0
        # More than the sockets' own buffers take.
        while not _overflows(server) and number < 400:
            number += 1
            shop.write(table, (number, wide, None))
        assert _overflows(server) == 1
    assert server.get("/health").status_code == 200


def _overflows(server: Serving) -> int:
    return sum(stats.overflows for stats in server.app.state.hub.stats())


def test_streams_end_at_shutdown(shop: Any, sales: str) -> None:
    server = Serving(shop.path, streams=FAST)
    closed = []
    with server.socket(f"/views/{sales}/changes") as reader:
        reader.recv(timeout=DEADLINE_S)
        with server.stream(f"/views/{sales}/changes") as events:
            next(events)
            server.end()
            assert list(events) == []
            with pytest.raises(ConnectionClosed) as error:
                while True:
                    closed.append(reader.recv(timeout=DEADLINE_S))
            assert error.value.rcvd is not None and error.value.rcvd.code == 1001
    server.close()


def test_reconnecting_browser_resumes(serve: Any, shop: Any, sales: str) -> None:
    server = serve(streams=FAST)
    # A browser reconnects to its first URL, and sends the last id in a header.
    path = f"/views/{sales}/changes?last_id=latest"
    with server.stream(path) as events:
        begun = next(events)["id"]
        shop.write(sales, ("Oman", 7, 1.0))
        had = next(events)["id"]
    shop.write(sales, ("Mali", 8, 1.0))
    with server.stream(path, **{"Last-Event-ID": had}) as events:
        assert [changed(row) for row in next(events)["rows"]] == [("+I", "Mali", 8)]
    late = f"/views/{sales}/changes?last_id={begun}"
    with server.socket(late, additional_headers={"Last-Event-ID": had}) as reader:
        found = json.loads(reader.recv(timeout=DEADLINE_S))
        assert [changed(row) for row in found["rows"]] == [("+I", "Mali", 8)]


def test_restart_path_keeps_the_columns(serve: Any, sales: str) -> None:
    server = serve(streams=FAST)
    path = f"/views/{sales}/changes"
    gone = server.get(path, last_id="99", columns="orders,country").json()["error"]
    assert gone["restart"] == f"{path}?columns=orders%2Ccountry" and gone["earliest"] == 1
    with server.stream(gone["restart"]) as events:
        assert next(events)["rows"][0] == {"rowkind": "+I", "country": "Chad", "orders": 1}
    wrong = server.get(path, columns="contry")
    assert "did you mean 'country'?" in problem(wrong, 400, "bad_request")


def messages(reader: ClientConnection) -> Iterator[dict[str, Any]]:
    """The messages of a WebSocket in the form of events, without heartbeats."""
    while True:
        found = json.loads(reader.recv(timeout=DEADLINE_S))
        if found["type"] != "heartbeat":
            yield {"event": found.pop("type"), **found}


def replayed(events: Iterator[dict[str, Any]], last: str) -> dict[str, int]:
    """The orders of each country, rebuilt from events until the country `last` occurs."""
    rows: dict[str, int] = {}
    for found in events:
        if found["event"] == "snapshot":
            rows.clear()
        for row in found["rows"]:
            assert row["rowkind"] == "+I"
            rows[row["country"]] = row["orders"]
        if last in rows:
            return rows
    raise AssertionError(f"the stream ended before {last}")


def test_streams_of_a_dropped_table_end(serve: Any, shop: Any, sales: str) -> None:
    server = serve(streams=StreamSettings(every_ms=5, missing_s=0.0))
    path = f"/views/{sales}/changes"
    with server.stream(path) as events, server.socket(path) as reader:
        next(events)
        reader.recv(timeout=DEADLINE_S)
        shop.warehouse.drop_table("shop", "sales")
        (reported,) = events
        assert reported["event"] == "error" and reported["error"]["code"] == "not_found"
        assert "shop.sales no longer exists" in reported["error"]["message"]
        with pytest.raises(ConnectionClosed) as closed:
            next(messages(reader))
        assert closed.value.rcvd is not None and closed.value.rcvd.code == 4404
        assert closed.value.rcvd.reason.startswith("shop.sales no longer exists")
    problem(server.get(path), 404, "not_found")
    shop.sales()
    shop.write(sales, ("Oman", 7, 1.0))
    with server.stream(path) as events:
        assert replayed(events, "Oman") == {"Oman": 7}


def test_streams_of_a_recreated_table_start_again(serve: Any, shop: Any, sales: str) -> None:
    server = serve(streams=StreamSettings(every_ms=5, missing_s=60.0))
    path = f"/views/{sales}/changes"
    with server.stream(path) as events, server.socket(path) as reader:
        first, other = next(events), messages(reader)
        assert next(other)["id"] == first["id"]
        shop.warehouse.drop_table("shop", "sales")
        shop.sales()
        shop.write(sales, ("Oman", 7, 1.0))
        for found in (events, other):
            assert replayed(found, "Oman") == {"Oman": 7}
    gone = server.get(path, last_id=first["id"])
    assert gone.json()["error"]["restart"] == path
    problem(gone, 410, "expired")
