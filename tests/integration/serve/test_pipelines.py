"""A pipeline that is started, watched, killed, restarted and stopped over HTTP."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.integration.runtime.conftest import Run
from tests.waiting import DEADLINE_S, until

from streamhouse.paimon.catalog.warehouse import Warehouse

SCRIPT = """
CREATE TABLE IF NOT EXISTS a (id BIGINT, twice BIGINT) WITH ('bucket' = '-1');
CREATE TABLE IF NOT EXISTS b (id BIGINT, PRIMARY KEY (id) NOT ENFORCED) WITH ('bucket' = '1');
CREATE TEMPORARY TABLE made (id BIGINT) WITH (
  'connector' = 'datagen', 'rows-per-second' = '1000', 'fields.id.kind' = 'sequence',
  'fields.id.start' = '1', 'fields.id.end' = '100000000'
);
INSERT INTO a SELECT id, id * 2 FROM made;
INSERT INTO b SELECT id FROM a;
"""


class Server:
    """`streamhouse serve --allow-run` over a warehouse."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.warehouse = folder / "warehouse"
        self.warehouse.mkdir()
        self.runs: list[Run] = []
        self.start()

    def start(self) -> None:
        port = self.folder / f"port{len(self.runs)}"
        place = ["--warehouse", str(self.warehouse), "--port", "0", "--port-file", str(port)]
        run = Run(self.folder, ["serve", *place, "--allow-run"], {}, spark=False)
        self.runs.append(run)
        found = run.until(lambda: port.exists() and port.read_text().strip())
        self.client = httpx.Client(base_url=f"http://127.0.0.1:{found}", timeout=DEADLINE_S)

    def stop(self) -> None:
        self.client.close()
        self.runs[-1].signal(signal.SIGTERM)
        assert self.runs[-1].process.wait(DEADLINE_S) == 0

    def kill(self) -> None:
        """End all that was started, by whomever."""
        self.client.close()
        for run in self.runs:
            run.kill()

    def ask(self, method: str, path: str, code: int = 200, **more: Any) -> Any:
        answer = self.client.request(method, path, **more)
        assert answer.status_code == code, answer.text
        return answer.json()

    def until(self, what: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
        """The pipeline `numbers` once `what` is true of it."""

        def found() -> dict[str, Any]:
            pipeline: dict[str, Any] = self.ask("GET", "/pipelines/numbers")
            return pipeline if what(pipeline) else {}

        return until(found, lambda: self.client.get("/pipelines/numbers/log").text)

    def rows(self, table: str) -> list[int]:
        opened = Warehouse(str(self.warehouse)).table(f"default.{table}")
        return sorted(id for batch in opened.read(["id"]) for id in batch["id"].to_pylist())


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    made = Server(tmp_path)
    yield made
    made.kill()


def running(queries: int) -> Callable[[dict[str, Any]], bool]:
    """A predicate: so many queries run, each with rows and a known lag."""

    def check(found: dict[str, Any]) -> bool:
        answers = found["queries"]
        return len(answers) == queries and all(
            answer["rows_per_second"] and answer["lag"] for answer in answers
        )

    return check


def test_pipeline_over_http(server: Server) -> None:
    made = server.ask("POST", "/pipelines", 201, json={"name": "numbers", "sql": SCRIPT})
    assert (made["state"], made["startable"], made["script"]) == ("running", True, SCRIPT)
    first = server.until(running(2))
    queries = {query["name"]: query for query in first["queries"]}
    assert set(queries) == {"default.a", "default.b"}
    assert queries["default.b"]["sources"] == ["default.a"]
    assert queries["default.a"]["batches"] > 0 and queries["default.a"]["last_batch_ms"] > 0
    assert queries["default.a"]["lag"]["rows"] is not None
    assert queries["default.b"]["lag"]["snapshots"] is not None
    assert first["last_error"] is None and first["maintenance"] is not None
    graph = server.ask("GET", "/pipelines/numbers/graph")
    writes = {edge["to"] for edge in graph["edges"] if edge["kind"] == "writes"}
    assert writes == {"default.a", "default.b"}
    again = server.ask("POST", "/pipelines", 409, json={"name": "numbers", "sql": SCRIPT})
    assert again["error"]["code"] == "conflict"

    os.kill(first["pid"], signal.SIGKILL)
    killed = server.until(lambda pipeline: pipeline["state"] != "running")
    assert killed["state"] == "failed" and "killed" in killed["last_error"]
    assert all(query["rows_per_second"] == 0 for query in killed["queries"])
    server.ask("POST", "/pipelines/numbers/start")
    second = server.until(running(2))
    assert second["pid"] != first["pid"] and second["last_error"] is None

    # It does not end with the server, and the next server finds it.
    server.stop()
    server.start()
    assert server.ask("GET", "/pipelines/numbers")["pid"] == second["pid"]
    server.ask("DELETE", "/pipelines/numbers", 202)
    stopped = server.until(lambda pipeline: pipeline["state"] != "running")
    assert (stopped["state"], stopped["last_error"]) == ("stopped", None)
    written = server.rows("a")
    assert written == list(range(1, len(written) + 1))
    assert set(server.rows("b")) <= set(written)
