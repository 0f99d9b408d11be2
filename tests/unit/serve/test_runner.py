"""Pipelines that a server starts: real processes of `streamhouse run`, without Spark.

A SELECT over a stream runs until it is stopped, and prints its rows.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import DEADLINE_S, looks

from streamhouse.errors import OptionError, PipelineError, SqlError, TableError
from streamhouse.runtime.execute import execute
from streamhouse.runtime.monitoring.process import Process, own
from streamhouse.runtime.monitoring.status import SCRIPT, Status, Statuses
from streamhouse.secret_references import ALLOWED
from streamhouse.serve.pipelines import runner as module
from streamhouse.serve.pipelines.listing import Pipeline, described
from streamhouse.serve.pipelines.runner import MAX_SQL_BYTES, Runner

LIVE = "SELECT name FROM people;  -- 'password' = 'hidden'"
READER = (
    "CREATE TEMPORARY TABLE s (id INT PRIMARY KEY NOT ENFORCED) WITH ('connector' = 'mysql-cdc', "
    "'hostname' = 'db', 'username' = 'reader', 'password' = 'hidden', 'database-name' = 'shop', "
    "'table-name' = 's');\nSELECT id FROM s;"
)


class Server:
    """What a server has of a warehouse's pipelines."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.options = {"warehouse": str(folder)}
        self.runner = Runner(self.options)
        self.statuses = Statuses(self.options)

    def look(self, name: str) -> Pipeline:
        return described(self.statuses, self.statuses.find(name))

    def until(self, name: str, what: Callable[[Pipeline], Any]) -> Pipeline:
        for _ in looks(lambda: (found, self.runner.log(name, 50))):
            if what(found := self.look(name)):
                break
        return found

    def forge(self, name: str, process: Process) -> None:
        """Write a status for the name that no pipeline of that name has written."""
        now = time.time_ns() // 1_000_000
        self.statuses.write(Status(name, "running", process, now, now))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    made = Server(tmp_path / "warehouse")
    made.folder.mkdir()
    yield made
    for child in list(made.runner._children.values()):
        child.kill()
        child.wait(DEADLINE_S)


@pytest.fixture
def other() -> Iterator[subprocess.Popen[bytes]]:
    """A process that is none of ours."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def test_scripts_read_no_secrets_of_the_server(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless whoever runs the server allows it; the script might send them anywhere."""
    monkeypatch.setenv("SHOP_PASSWORD", "hidden")
    monkeypatch.delenv(ALLOWED, raising=False)
    script = READER.replace("'hidden'", "'${env:SHOP_PASSWORD}'").replace("'db'", "'no.invalid'")
    server.runner.start("reader", script)
    ended = server.until("reader", lambda pipeline: pipeline["state"] == "failed")
    assert "env:SHOP_PASSWORD, which is not allowed here" in ended["last_error"]
    monkeypatch.setenv(ALLOWED, "env:SHOP_*")
    script = script.replace("'table-name'", "'connect.max-retries' = '0', 'table-name'")
    server.runner.start("reader", script)
    ended = server.until("reader", lambda pipeline: pipeline["state"] == "failed")
    assert "no.invalid:3306 cannot be reached" in ended["last_error"]


def test_start_stop_restart_and_kill(server: Server) -> None:
    execute(server.folder.as_posix(), "CREATE TABLE people (name STRING);"
            "INSERT INTO people VALUES ('Ann')")  # fmt: skip
    server.runner.start("live", LIVE)
    first = server.look("live")
    assert (first["state"], first["startable"]) == ("running", True)
    assert first["script"] == LIVE.replace("hidden", "****")
    found = server.until("live", lambda _: "name=Ann" in server.runner.log("live", 10))
    assert found["state"] == "running" and found["pid"] is not None
    runner = server.runner
    acts: list[Callable[[], None]] = [
        lambda: runner.start("live", LIVE),
        lambda: runner.start_again("live"),
    ]
    for act in acts:
        with pytest.raises(PipelineError, match="'live' is running; stop it first"):
            act()
    # Any server of the warehouse finds it.
    assert Server(server.folder).look("live")["pid"] == found["pid"]
    Server(server.folder).runner.stop("live")
    ended = server.until("live", lambda pipeline: pipeline["state"] != "running")
    assert (ended["state"], ended["last_error"]) == ("stopped", None)
    assert ended["ended"] is not None
    with pytest.raises(PipelineError, match="is not running"):
        server.runner.stop("live")

    server.runner.start_again("live")
    again = server.until("live", lambda pipeline: pipeline["pid"] not in (None, found["pid"]))
    os.kill(again["pid"], signal.SIGKILL)
    killed = server.until("live", lambda pipeline: pipeline["state"] != "running")
    assert killed["state"] == "failed" and "it was killed" in killed["last_error"]
    assert [path.stat().st_mode & 0o777 for path in _private(server, "live")] == [0o600, 0o600]


def test_from_scratch_applies_to_one_start(server: Server) -> None:
    execute(server.folder.as_posix(), "CREATE TABLE people (name STRING);"
            "INSERT INTO people VALUES ('Ann')")  # fmt: skip

    def lines(word: str) -> int:
        return sum(word in line for line in server.runner.log("live", 50).splitlines())

    starts: list[Callable[[], None]] = [
        lambda: server.runner.start("live", LIVE, from_scratch=True, keep_targets=True),
        lambda: server.runner.start_again("live"),
    ]
    for number, start in enumerate(starts, 1):
        start()
        server.until("live", lambda _, n=number: lines("name=Ann") == n)  # type: ignore[misc]
        assert lines("--from-scratch has no effect") == 1
        server.runner.stop("live")
        assert (
            server.until("live", lambda pipeline: pipeline["state"] != "running")["state"]
            == "stopped"
        )
    with pytest.raises(OptionError, match="needs 'from_scratch'"):
        server.runner.start_again("live", keep_targets=True)


def _private(server: Server, name: str) -> list[Path]:
    return [server.folder / ".pipelines" / name / file for file in (SCRIPT, "log")]


def test_failed_script_reports_its_error(server: Server) -> None:
    server.runner.start("bad", "\nINSERT INTO nowhere VALUES (1);")
    found = server.until("bad", lambda pipeline: pipeline["state"] != "running")
    assert found["state"] == "failed"
    assert "line 2, column 1" in found["last_error"] and "nowhere" in found["last_error"]
    server.until("bad", lambda pipeline: pipeline["last_error"] in server.runner.log("bad", 5))


def test_process_that_exits_at_startup_has_failed(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_PROGRAM", ("-c", "raise SystemExit('no: password=hidden')"))
    server.runner.start("none", LIVE)
    found = server.until("none", lambda pipeline: pipeline["state"] != "running")
    assert found["state"] == "failed"
    assert found["last_error"] == "its process exited with code 1 at startup: no: password=***"
    assert server.runner.log("none", 5) == "no: password=***\n"


def test_pipeline_stopped_at_startup(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PROGRAM", ("-c", "import time; time.sleep(99)"))
    server.runner.start("slow", LIVE)
    server.runner.stop("slow")
    assert (
        server.until("slow", lambda pipeline: pipeline["state"] != "running")["state"] == "stopped"
    )


@pytest.mark.parametrize("name", ["", "A", "a b", "../x", "a" * 65, "ä", "a\n", ".a"])
def test_invalid_names(server: Server, name: str) -> None:
    with pytest.raises(OptionError, match="the name of a pipeline has 1 to 64"):
        server.runner.start(name, LIVE)
    assert list(server.folder.iterdir()) == []


def test_unknown_masked_secrets_and_too_long_scripts(server: Server) -> None:
    with pytest.raises(SqlError, match="write it out"):
        server.runner.start("p", "CREATE TABLE t (i INT) WITH ('password' = '****')")
    with pytest.raises(OptionError, match="is longer than 1,048,576 bytes"):
        server.runner.start("p", "ä" * (MAX_SQL_BYTES // 2) + "x")
    assert list(server.folder.iterdir()) == []


def test_masked_secrets_are_restored(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PROGRAM", ("-c", "raise SystemExit(1)"))
    server.runner.start("p", READER)
    displayed = server.until("p", lambda pipeline: pipeline["state"] == "failed")["script"]
    assert "hidden" not in displayed
    server.runner.start("p", displayed.replace("SELECT id", "SELECT id + 1"))
    found = server.until("p", lambda pipeline: pipeline["state"] == "failed")
    assert "hidden" not in str(found) and "SELECT id + 1" in found["script"]
    kept = server.folder / ".pipelines/p" / SCRIPT
    assert kept.read_text() == READER.replace("SELECT id", "SELECT id + 1")
    for name, old, new in (("p", "'db'", "'evil.example'"), ("q", "", "")):
        with pytest.raises(SqlError, match="write it out"):
            server.runner.start(name, displayed.replace(old, new))
    assert "evil.example" not in kept.read_text()
    assert [path.name for path in kept.parent.parent.iterdir()] == ["p"]


def test_forget_an_ended_pipeline(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PROGRAM", ("-c", "import time; time.sleep(99)"))
    server.runner.start("slow", READER)
    with pytest.raises(PipelineError, match="'slow' is running; stop it first"):
        server.runner.forget("slow")
    server.runner.stop("slow")
    server.until("slow", lambda pipeline: pipeline["state"] == "stopped")
    server.runner.forget("slow")
    assert list((server.folder / ".pipelines").iterdir()) == []
    for act in (server.runner.forget, server.runner.start_again):
        with pytest.raises(TableError, match="there is no pipeline 'slow'"):
            act("slow")


def test_stop_while_starting(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command line of a process is empty until the kernel has loaded its program."""
    monkeypatch.setattr(module, "_PROGRAM", ("-c", "import time; time.sleep(99)"))
    server.runner.start("slow", READER)
    empty, read = [b"", b""], Path.read_bytes

    def starting(path: Path) -> bytes:
        return empty.pop() if empty and path.name == "cmdline" else read(path)

    monkeypatch.setattr(Path, "read_bytes", starting)
    server.runner.stop("slow")
    assert empty == []
    server.until("slow", lambda pipeline: pipeline["state"] == "stopped")


def test_other_processes_are_not_stopped(server: Server, other: subprocess.Popen[bytes]) -> None:
    process = Process.of(other.pid)
    assert process is not None
    server.forge("forged", process)
    with pytest.raises(PipelineError, match="was not started by a server"):
        server.runner.stop("forged")
    (server.folder / ".pipelines/forged" / SCRIPT).write_text(LIVE)
    with pytest.raises(PipelineError, match=f"process {other.pid} does not belong to pipeline"):
        server.runner.stop("forged")
    elsewhere = Process(other.pid, process.started, "another", "host-b")
    server.forge("forged", elsewhere)
    with pytest.raises(PipelineError, match="is running on host-b"):
        server.runner.stop("forged")
    assert other.poll() is None


def test_unknown_pipelines(server: Server) -> None:
    for act in (server.runner.start_again, server.runner.stop):
        with pytest.raises(TableError, match="there is no pipeline 'gone'"):
            act("gone")
    with pytest.raises(TableError, match="there is no pipeline 'gone'"):
        server.runner.log("gone", 1)
    server.forge("revenue", own())
    with pytest.raises(TableError, match="did you mean 'revenue'"):
        server.look("revenu")


def test_object_store_warehouse_is_rejected() -> None:
    with pytest.raises(OptionError, match="only for a warehouse in a local directory"):
        Runner({"warehouse": "s3://bucket/warehouse", "s3.region": "x"}).start("p", LIVE)
