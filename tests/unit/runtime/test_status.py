"""The status file of a pipeline, and its correction if the process has died."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.waiting import DEADLINE_S, until

from streamhouse.errors import PipelineError, TableError
from streamhouse.runtime.monitoring.process import Process, own, started
from streamhouse.runtime.monitoring.status import (
    LOST_AFTER_S,
    MaintenanceStatus,
    QueryStatus,
    State,
    Status,
    Statuses,
)
from streamhouse.source import Lag

QUERY = QueryStatus(
    name="d.t", target="d.t", sources=("d.s",), lookups=("d.k",), rows_per_second=5.5, rows=10,
    batches=2, last_batch_ms=1, took_ms=2.5, lag=Lag(1.5, snapshots=3),
)  # fmt: skip


@pytest.fixture
def statuses(tmp_path: Path) -> Statuses:
    return Statuses({"warehouse": str(tmp_path)})


@pytest.fixture
def other() -> Iterator[subprocess.Popen[bytes]]:
    """A process that waits until it is ended."""
    program = [sys.executable, "-c", "input()"]
    with subprocess.Popen(program, stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def status(process: Process, name: str = "p", age_s: float = 0.0) -> Status:
    at = now_ms() - int(age_s * 1000)
    return Status(name, "running", process, at, at, queries=(QUERY,))


def process_of(one: subprocess.Popen[bytes]) -> Process:
    found = Process.of(one.pid)
    assert found is not None
    return found


def test_a_written_status_is_read(statuses: Statuses) -> None:
    assert statuses.names() == [] and statuses.read("p") is None
    changed_status = replace(status(own()), maintenance=MaintenanceStatus(1, 2, "e", 3), error="x")
    statuses.write(changed_status)
    assert statuses.read("p") == changed_status
    assert statuses.names() == ["p"]
    assert statuses.masked_script("p") is None
    statuses.store_masked_script("p", "SELECT 1")
    assert statuses.masked_script("p") == "SELECT 1"


@pytest.mark.parametrize("name", ["../../etc/x y.sql", "..", ".", "/x", "a/b", "ä", "a%2Fb"])
def test_names_cannot_leave_the_folder(statuses: Statuses, tmp_path: Path, name: str) -> None:
    statuses.write(status(own(), name))
    assert statuses.names() == [name]
    assert [path.name for path in tmp_path.iterdir()] == [".pipelines"]
    (folder,) = (tmp_path / ".pipelines").iterdir()
    assert [path.name for path in folder.iterdir()] == ["status.json"]


def test_a_name_that_no_folder_can_have_is_not_there(statuses: Statuses) -> None:
    assert statuses.read("ä" * 100) is None


def test_a_killed_process_has_failed(statuses: Statuses, other: subprocess.Popen[bytes]) -> None:
    statuses.write(status(process_of(other)))
    found = statuses.read("p")
    assert found is not None and found.state == "running"
    other.kill()
    other.wait(DEADLINE_S)
    found = statuses.read("p")
    assert found is not None and found.state == "failed"
    assert found.error == f"it was killed: process {other.pid} ended without a final status"


def test_a_zombie_is_dead(statuses: Statuses, other: subprocess.Popen[bytes]) -> None:
    statuses.write(status(process_of(other)))
    other.kill()
    until(lambda: started(other.pid) is None)
    found = statuses.read("p")
    assert found is not None and found.state == "failed"


def test_a_process_that_was_asked_to_end_has_stopped(
    statuses: Statuses, other: subprocess.Popen[bytes]
) -> None:
    process = process_of(other)
    statuses.write(status(process))
    statuses.request_stop("p", process)
    found = statuses.read("p")
    assert found is not None and found.state == "running"
    other.kill()
    other.wait(DEADLINE_S)
    found = statuses.read("p")
    assert found is not None and found.state == "stopped" and found.error is None


def test_another_process_with_the_same_number_is_not_taken_for_it(statuses: Statuses) -> None:
    statuses.write(status(replace(own(), started=own().started - 1)))
    found = statuses.read("p")
    assert found is not None and found.state == "failed"


def test_a_process_on_another_host_counts_as_alive_while_its_status_is_fresh(
    statuses: Statuses,
) -> None:
    elsewhere = Process(1, 1, "another", "host-b")
    statuses.write(status(elsewhere, age_s=LOST_AFTER_S / 2))
    found = statuses.read("p")
    assert found is not None and found.state == "running"
    statuses.write(status(elsewhere, age_s=LOST_AFTER_S + 1))
    found = statuses.read("p")
    assert found is not None and found.state == "failed"
    assert "it has not reported its status" in str(found.error) and "host-b" in str(found.error)


def test_one_that_has_ended_stays_as_it_ended(statuses: Statuses) -> None:
    gone = replace(own(), started=1)
    states: tuple[State, ...] = ("stopped", "failed")
    for state in states:
        changed_status = replace(status(gone), state=state, ended_ms=5)
        statuses.write(changed_status)
        assert statuses.read("p") == changed_status


def test_one_that_is_to_start_does_so_in_time_or_has_failed(statuses: Statuses) -> None:
    statuses.write(replace(status(own()), state="starting"))
    found = statuses.read("p")
    assert found is not None and found.state == "starting" and found.is_live
    late = status(own(), age_s=LOST_AFTER_S + 1)
    statuses.write(replace(late, state="starting"))
    found = statuses.read("p")
    assert found is not None and found.state == "failed"


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"process": 1}', '{"process": {"pid": 1}}'])
def test_an_unreadable_status_is_none(statuses: Statuses, tmp_path: Path, text: str) -> None:
    statuses.write(status(own()))
    (tmp_path / ".pipelines/p/status.json").write_text(text)
    assert statuses.read("p") is None


def test_only_what_has_ended_is_forgotten(statuses: Statuses, tmp_path: Path) -> None:
    for name in ("p", "a name/.."):
        statuses.write(replace(status(own()), name=name, state="stopped"))
        statuses.store_masked_script(name, "SELECT 1")
    statuses.write(replace(status(own()), name="live"))
    (tmp_path / ".pipelines/odd").mkdir()
    with pytest.raises(PipelineError, match="'live' is running; stop it first"):
        statuses.forget("live")
    for name in ("gone", "", ".", "..", "../.pipelines", "p/status.json"):
        with pytest.raises(TableError, match="there is no pipeline"):
            statuses.forget(name)
    for name in ("p", "a name/..", "odd"):
        statuses.forget(name)
        assert statuses.read(name) is None and statuses.masked_script(name) is None
    assert statuses.names() == ["live"]


def test_files_that_cannot_be_deleted_are_reported(
    statuses: Statuses, monkeypatch: pytest.MonkeyPatch
) -> None:
    statuses.write(replace(status(own()), state="stopped"))
    monkeypatch.setattr(shutil, "rmtree", lambda *_, **__: None)
    with pytest.raises(PipelineError, match="this user may not remove some files"):
        statuses.forget("p")
