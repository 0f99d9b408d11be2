"""Pipelines over HTTP: a real server, and processes without Spark."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import httpx
import pytest
import uvicorn
from tests.waiting import DEADLINE_S, looks, until

from streamhouse.runtime.execute import execute
from streamhouse.runtime.monitoring.metrics import Commit
from streamhouse.runtime.monitoring.process import own
from streamhouse.runtime.monitoring.status import QueryStatus, Status, Statuses
from streamhouse.serve.http.app import create_app
from streamhouse.serve.pipelines import runner
from streamhouse.serve.settings import ServerSettings
from streamhouse.serve.tokens import BearerToken, Scope, digest
from streamhouse.serve.views.served_view import ServedView
from streamhouse.source import Lag, SourceState

SCRIPT = "CREATE TABLE `<a>` (i INT); CREATE TABLE b (i INT); INSERT INTO b SELECT i FROM `<a>`;"
JSON = {"Content-Type": "application/json"}


@contextlib.contextmanager
def served(folder: Path, **settings: Any) -> Iterator[httpx.Client]:
    """A server of a warehouse, in a thread."""
    app = create_app(ServerSettings({"warehouse": str(folder)}, **settings))
    config = uvicorn.Config(app, port=0, ws="none", log_level="critical", lifespan="on")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        for _ in looks():
            if server.started:
                break
            assert thread.is_alive()
        port = server.servers[0].sockets[0].getsockname()[1]
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=DEADLINE_S) as client:
            yield client
    finally:
        server.should_exit = True
        thread.join(DEADLINE_S)
        assert not thread.is_alive()


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    """With the pipeline `revenue`, which this process seems to be."""
    folder = tmp_path / "warehouse"
    folder.mkdir()
    statuses, now = Statuses({"warehouse": str(folder)}), time.time_ns() // 1_000_000
    query = QueryStatus(
        name="d.b", target="d.b", sources=("d.a",), rows_per_second=12.5, rows=99, batches=3,
        last_batch_ms=now, took_ms=250.5, lag=Lag(0.5, snapshots=1),
    )  # fmt: skip
    statuses.write(Status("revenue", "running", own(), now, now, queries=(query,)))
    statuses.store_masked_script("revenue", SCRIPT)
    return folder


@pytest.fixture
def client(warehouse: Path) -> Iterator[httpx.Client]:
    with served(warehouse) as made:
        yield made


def error(answer: httpx.Response, code: int) -> dict[str, Any]:
    assert answer.status_code == code, answer.text
    found: dict[str, Any] = answer.json()["error"]
    return found


def test_list_of_pipelines(client: httpx.Client) -> None:
    (found,) = client.get("/pipelines").json()["pipelines"]
    assert (found["name"], found["state"], found["pid"]) == ("revenue", "running", own().pid)
    (query,) = found["queries"]
    assert (query["rows_per_second"], query["last_batch_ms"]) == (12.5, 250.5)
    assert query["lag"] == {"seconds": 0.5, "rows": None, "snapshots": 1, "bytes": None} | {
        "waiting_rows": None
    }
    assert query["metrics"] == {"numRecordsIn": 99, "numRecordsInPerSecond": 12.5}
    assert client.get("/pipelines/revenue").json() == found
    gone = error(client.get("/pipelines/revenu"), 404)
    assert gone["code"] == "not_found" and "did you mean 'revenue'" in gone["message"]
    assert error(client.get("/pipelines/revenue?x=1"), 400)["code"] == "bad_request"


def test_metrics_include_pipelines(warehouse: Path) -> None:
    statuses, now = Statuses({"warehouse": str(warehouse)}), time.time_ns() // 1_000_000
    state = SourceState(False, ("binlog.000007", 154), now - 5_000, now - 2_000, 1, 0, 0)
    query = QueryStatus(
        name="d.c", target="d.c", sources=("d.m",), lag=Lag(0.0, bytes=0, state=state),
        changes={"+I": 5, "-U": 2, "+U": 2}, commit=Commit(12.5, 3, 40, 1, 2),
    )  # fmt: skip
    statuses.write(Status("fed", "running", own(), now, now, queries=(query,)))
    statuses.write(Status("old", "failed", own(), now, now, queries=(query,)))
    few = BearerToken(digest("few"), Scope("few", ("d.b",)))
    every = BearerToken(digest("all"), Scope("all"))
    with served(warehouse, tokens=(few, every)) as client:
        text = client.get("/metrics", headers={"Authorization": "Bearer all"}).text
        hidden = client.get("/metrics", headers={"Authorization": "Bearer few"}).text
        listed = client.get("/pipelines/fed", headers={"Authorization": "Bearer all"}).json()
    labels = '{pipeline="fed",query="d.c"}'
    assert f"streamhouse_currentFetchEventTimeLag{labels} 3000.0" in text
    assert f"streamhouse_BinlogPosition{labels} 154.0" in text
    assert f"streamhouse_TotalNumberOfUpdateEventsSeen{labels} 2.0" in text
    assert f"streamhouse_lastCommitDuration{labels} 12.5" in text
    assert 'streamhouse_numRecordsIn{pipeline="revenue",query="d.b"} 99.0' in text
    assert 'pipeline="old",query=' not in text and "pipeline=" not in hidden
    assert 'streamhouse_pipeline_running{pipeline="old"} 0.0' in text
    assert 'streamhouse_pipeline_running{pipeline="fed"} 1.0' in text
    (found,) = listed["queries"]
    assert found["lag"] is not None and "state" not in found["lag"]
    metrics = found["metrics"]
    assert 2_000 <= metrics.pop("MilliSecondsSinceLastEvent") < DEADLINE_S * 1000
    assert metrics == {
        "numRecordsIn": 0, "numRecordsInPerSecond": 0.0, "isSnapshotting": 0, "isStreamReading": 1,
        "currentFetchEventTimeLag": 3_000, "MilliSecondsBehindSource": 3_000,
        "BinlogFilename": "binlog.000007", "BinlogPosition": 154,
        "numTablesSnapshotted": 1, "numTablesRemaining": 0, "numSnapshotSplitsRemaining": 0,
        "TotalNumberOfEventsSeen": 7, "TotalNumberOfCreateEventsSeen": 5,
        "TotalNumberOfUpdateEventsSeen": 2, "TotalNumberOfDeleteEventsSeen": 0,
        "lastCommitDuration": 12.5, "lastTableFilesAdded": 3, "lastTableFilesAppended": 3,
        "lastDeltaRecordsAppended": 40, "lastPartitionsWritten": 1, "lastBucketsWritten": 2,
    }  # fmt: skip


def test_views_report_their_last_refresh(warehouse: Path) -> None:
    statuses, now = Statuses({"warehouse": str(warehouse)}), time.time_ns() // 1_000_000
    query = QueryStatus(
        name="d.v", target="d.v", sources=("d.a", "d.b"), batches=2, last_batch_ms=now - 3_000,
        took_ms=500.0,
        lag=Lag(seconds=0.0), strategy="incremental", state_bytes=4096,
        view_rows=7,
    )  # fmt: skip
    lookups = QueryStatus(name="d.t", target="d.t", lookups=("d.names",), state_bytes=512)
    statuses.write(Status("revenue", "running", own(), now, now, queries=(query, lookups)))
    with served(warehouse) as client:
        found, joined = client.get("/pipelines/revenue").json()["queries"]
        text = client.get("/metrics").text
    assert found["strategy"] == "incremental" and found["sources"] == ["d.a", "d.b"]
    assert 3 <= found["refresh"].pop("age_seconds") < DEADLINE_S
    assert found["refresh"] == {"seconds": 0.5, "current": True}
    labels = '{pipeline="revenue",query="d.v"}'
    assert f"streamhouse_lastRefreshDuration{labels} 500.0" in text
    assert f"streamhouse_refreshLag{labels} 0.0" in text
    assert f"streamhouse_refreshIncremental{labels} 1" in text
    assert found["view_rows"] == 7 and f"streamhouse_viewRows{labels} 7" in text
    assert found["state_bytes"] == 4096 and f"streamhouse_stateSize{labels} 4096" in text
    assert joined["refresh"] is None and joined["state_bytes"] == 512
    assert 'streamhouse_stateSize{pipeline="revenue",query="d.t"} 512' in text


def test_graphs(client: httpx.Client) -> None:
    graph = client.get("/pipelines/revenue/graph").json()
    assert [edge["kind"] for edge in graph["edges"]] == ["reads", "writes"]
    drawn = client.get("/pipelines/revenue/graph.svg")
    assert drawn.headers["content-type"].startswith("image/svg+xml")
    assert "sandbox" in drawn.headers["content-security-policy"]
    words = {node.text for node in ElementTree.fromstring(drawn.text).iter() if node.text}
    assert "<a>" in words
    assert error(client.get("/pipelines/gone/graph"), 404)["code"] == "not_found"


def test_check_needs_no_permission_to_run(client: httpx.Client, warehouse: Path) -> None:
    before = sorted(path.name for path in warehouse.iterdir())
    right = client.post("/scripts/check", json={"sql": SCRIPT}).json()
    assert (right["ok"], right["statements"], len(right["graph"]["edges"])) == (True, 3, 2)
    wrong = client.post("/scripts/check", json={"sql": "SELECT 1;\nCREAT TABLE a (i INT)"}).json()
    assert (wrong["ok"], wrong["error"]["line"], wrong["error"]["column"]) == (False, 2, 1)
    assert client.post("/scripts/check", json={"sql": ""}).json()["ok"]
    for text in ("USE nowhere", "CREATE TABLE nowhere.a (i INT)", "SELECT i FROM nowhere.a"):
        lost = client.post("/scripts/check", json={"sql": text})
        assert not lost.json()["ok"] and str(warehouse) not in lost.text
    for body in ({}, {"sql": 1}, {"sql": "", "more": 1}, {"sql": "x" * (1 << 20) + "x"}):
        assert error(client.post("/scripts/check", json=body), 422)["code"] == "invalid"
    assert sorted(path.name for path in warehouse.iterdir()) == before


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/pipelines"),
        ("DELETE", "/pipelines/revenue"),
        ("POST", "/pipelines/revenue/start"),
        ("POST", "/pipelines/revenue/forget"),
        ("GET", "/pipelines/revenue/log"),
    ],
)
def test_running_requires_allow_run(
    client: httpx.Client, method: str, path: str, warehouse: Path
) -> None:
    body = b'{"name": "p", "sql": "SELECT 1"}' if method == "POST" else b""
    found = error(client.request(method, path, content=body, headers=JSON), 403)
    assert found["code"] == "forbidden" and "--allow-run" in found["message"]
    assert [path.name for path in (warehouse / ".pipelines").iterdir()] == ["revenue"]


def test_start_and_stop(warehouse: Path) -> None:
    execute(str(warehouse), "CREATE TABLE people (name STRING); INSERT INTO people VALUES ('Ann')")
    body = {"name": "live", "sql": "SELECT name FROM people;"}
    with served(warehouse, allow_run=True) as client:

        def until(what: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
            for _ in looks(lambda: found):
                if what(found := client.get("/pipelines/live").json()):
                    break
            return dict(found)

        bad = client.post("/pipelines", json={**body, "sql": "SELECT name\nFROM peopel;"})
        found = error(bad, 422)
        assert found["code"] == "invalid" and found["line"] == 2 and "peopel" in found["message"]
        assert error(client.post("/pipelines", json={**body, "name": "../x"}), 422)
        plain = {"Content-Type": "text/plain"}
        assert error(client.post("/pipelines", content=b"{}", headers=plain), 415)
        made = client.post("/pipelines", json=body)
        assert made.status_code == 201, made.text
        assert (made.json()["state"], made.json()["startable"]) == ("running", True)
        try:
            assert error(client.post("/pipelines", json=body), 409)["code"] == "conflict"
            until(lambda _: "name=Ann" in client.get("/pipelines/live/log?lines=5").text)
            assert error(client.post("/pipelines/live/start", headers=JSON), 409)
        finally:
            assert client.delete("/pipelines/live", headers=JSON).status_code == 202
        assert until(lambda pipeline: pipeline["state"] != "running")["state"] == "stopped"
        alone = client.post("/pipelines/live/start", json={"keep_targets": True})
        assert "needs 'from_scratch'" in error(alone, 400)["message"]
        assert error(client.post("/pipelines", json={**body, "keep_targets": True}), 400)
        assert error(client.post("/pipelines/live/start", json={"more": True}), 422)
        assert error(client.delete("/pipelines/live", headers=JSON), 409)
        assert error(client.delete("/pipelines/revenue", headers=JSON), 409)
        assert error(client.post("/pipelines/gone/start", headers=JSON), 404)
        assert error(client.get("/pipelines/gone/log"), 404)
        assert error(client.post("/pipelines/revenue/forget", headers=JSON), 409)
        assert client.post("/pipelines/live/forget", headers=JSON).json()["state"] == "stopped"
        assert error(client.get("/pipelines/live"), 404)
        assert error(client.post("/pipelines/live/forget", headers=JSON), 404)


def test_masked_script_can_be_restarted(warehouse: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "_PROGRAM", ("-c", "raise SystemExit(1)"))
    reads = "CREATE TEMPORARY TABLE s (id INT PRIMARY KEY NOT ENFORCED) WITH ("
    address = "'connector' = 'mysql-cdc', 'hostname' = 'db', 'username' = 'reader', "
    of = "'password' = 'hidden', 'database-name' = 'd', 'table-name' = 's');\nSELECT id FROM s;"
    with served(warehouse, allow_run=True) as client:

        def start(sql: str) -> httpx.Response:
            for _ in looks():
                made = client.post("/pipelines", json={"name": "p", "sql": sql})
                # The one before ends at once, which may not have been seen yet.
                if made.status_code != 409:
                    break
            assert "hidden" not in made.text
            return made

        displayed = start(reads + address + of).json()["script"]
        assert "'password' = '****'" in displayed
        edited = displayed.replace("id FROM", "id + 1 FROM")
        assert start(edited).status_code == 201
        kept = (warehouse / ".pipelines/p/script.sql").read_text()
        assert kept == edited.replace("****", "hidden")
        refused = error(start(edited.replace("'db'", "'evil.example'")), 422)
        assert refused["code"] == "invalid" and refused["line"] == 1
        assert "'password' is unknown here; write it out" in refused["message"]


def test_token_permissions(warehouse: Path) -> None:
    some = BearerToken(digest("some"), Scope("some", ("shop.*",)))
    reads = BearerToken(digest("reads"), Scope("reads", ("*",), frozenset({"read", "sql"})))
    with served(warehouse, tokens=(some, reads), allow_run=True) as client:
        for path in ("/pipelines", "/pipelines/revenue", "/pipelines/revenue/graph"):
            found = client.get(path, headers={"Authorization": "Bearer some"})
            assert "token that sees all of them" in error(found, 403)["message"]
            assert client.get(path, headers={"Authorization": "Bearer reads"}).status_code == 200
            assert error(client.get(path), 401)
        given = {"Authorization": "Bearer some"}
        assert error(client.post("/scripts/check", json={"sql": ""}, headers=given), 403)
        given = {"Authorization": "Bearer reads"}
        body = {"name": "p", "sql": "SELECT 1"}
        assert "'run'" in error(client.post("/pipelines", json=body, headers=given), 403)["message"]
        assert error(client.get("/pipelines/revenue/log", headers=given), 403)


def test_pipelines_are_hidden_with_a_views_file(warehouse: Path) -> None:
    views = (ServedView("hall.b", "d.b"),)
    reads = BearerToken(digest("reads"), Scope("reads", ("*",), frozenset({"read", "sql"})))
    runs = BearerToken(digest("runs"), Scope("runs"))
    for allowed, codes in ((False, (403, 403)), (True, (403, 200))):
        with served(warehouse, views=views, tokens=(reads, runs), allow_run=allowed) as client:
            for token, code in zip(("reads", "runs"), codes, strict=True):
                given = {"Authorization": f"Bearer {token}"}
                for path in ("/pipelines", "/pipelines/revenue", "/pipelines/revenue/graph"):
                    assert client.get(path, headers=given).status_code == code
                asked = client.post("/scripts/check", json={"sql": ""}, headers=given)
                assert asked.status_code == code
    # The same without tokens.
    for allowed, code in ((False, 403), (True, 200)):
        with served(warehouse, views=views, allow_run=allowed) as client:
            for path in ("/pipelines", "/pipelines/revenue", "/pipelines/revenue/graph"):
                assert client.get(path).status_code == code
            assert client.post("/scripts/check", json={"sql": ""}).status_code == code


FUNCTION = "CREATE TEMPORARY FUNCTION one AS 'served_functions.one' LANGUAGE PYTHON;"


@pytest.fixture
def imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that a module with a function makes when it is imported."""
    folder, made = tmp_path / "functions", tmp_path / "imported"
    folder.mkdir()
    (folder / "served_functions.py").write_text(
        f"import os\nos.makedirs({str(made)!r}, exist_ok=True)\n"
        "def one(a: int) -> str:\n    return f'made of {a}'\n"
    )
    # As of a server that was started with it, and of the pipelines that it starts.
    path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    monkeypatch.setenv("PYTHONPATH", path)
    monkeypatch.syspath_prepend(str(folder))
    return made


def test_python_functions_require_permission_to_run(warehouse: Path, imported: Path) -> None:
    script = f"SET 'execution.runtime-mode' = 'batch';\n{FUNCTION}\nSELECT one(1) AS a;"
    Statuses({"warehouse": str(warehouse)}).store_masked_script("revenue", script)
    reads = BearerToken(digest("reads"), Scope("reads", ("*",), frozenset({"read", "sql"})))
    runs = BearerToken(digest("runs"), Scope("runs"))
    body = {"name": "p", "sql": script}
    for allowed, name in ((False, "runs"), (True, "reads")):
        with served(warehouse, tokens=(reads, runs), allow_run=allowed) as client:
            client.headers["Authorization"] = f"Bearer {name}"
            found = client.post("/scripts/check", json={"sql": script}).json()["error"]
            assert (found["line"], found["column"]) == (2, 1) and "--allow-run" in found["message"]
            drawn = error(client.get("/pipelines/revenue/graph"), 422)
            assert "--allow-run" in drawn["message"]
            asked = client.post("/sql", json={"sql": script})
            assert "one SELECT" in error(asked, 422)["message"]
            assert error(client.post("/pipelines", json=body), 403)["code"] == "forbidden"
    assert not imported.exists()
    with served(warehouse, tokens=(runs,), allow_run=True) as client:
        client.headers["Authorization"] = "Bearer runs"
        assert client.post("/scripts/check", json={"sql": script}).json()["ok"]
        assert client.get("/pipelines/revenue/graph").status_code == 200
        assert imported.exists()
        assert client.post("/pipelines", json=body).status_code == 201
        until(lambda: client.get("/pipelines/p").json()["state"] not in ("starting", "running"))
        log = client.get("/pipelines/p/log").text
        assert "made of 1" in log, log
