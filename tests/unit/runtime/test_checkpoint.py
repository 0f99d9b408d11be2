"""The checkpoint's folder: lock, identity of the query, last batch."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.waiting import DEADLINE_S

from streamhouse.errors import DataLossError, StreamhouseError
from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.runtime.query_description import QueryDescription
from streamhouse.runtime.state.checkpoint import Checkpoint, checkpoints_of
from streamhouse.runtime.streaming.query import JobQuery


def test_only_one_process_runs_a_query(tmp_path: Path) -> None:
    first, second = Checkpoint(tmp_path, "p", "d.t"), Checkpoint(tmp_path, "p", "d.t")
    first.acquire()
    with pytest.raises(StreamhouseError, match=r"already running \(process \d+\)"):
        second.acquire()
    Checkpoint(tmp_path, "other", "d.t").acquire()
    first.release()
    second.acquire()
    second.release()


def test_the_lock_ends_with_its_process(tmp_path: Path) -> None:
    hold = (
        "import sys, pathlib, os; from streamhouse.runtime.state.checkpoint import Checkpoint;"
        "Checkpoint(pathlib.Path(sys.argv[1]), 'p', 'd.t').acquire(); os.kill(os.getpid(), 9)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", hold, str(tmp_path)], check=False, timeout=DEADLINE_S
    )
    assert ended.returncode == -9
    checkpoint = Checkpoint(tmp_path, "p", "d.t")
    checkpoint.acquire(wait_s=5)
    checkpoint.release()


def test_the_query_id_stays(tmp_path: Path) -> None:
    made = Checkpoint(tmp_path, "p", "d.t").query_id()
    assert Checkpoint(tmp_path, "p", "d.t").query_id() == made
    assert Checkpoint(tmp_path, "p", "d.u").query_id() != made
    (tmp_path / "p/d.t/metadata").write_text("{")
    with pytest.raises(StreamhouseError, match="is damaged"):
        Checkpoint(tmp_path, "p", "d.t").query_id()


def test_its_position_is_the_last_batch_that_spark_has_committed(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path, "p", "d.t")
    assert (checkpoint.logs.last_committed(), checkpoint.logs.last_offset()) == (-1, {})
    for folder, number, text in (
        ("offsets", 0, {"batch": 0}),
        ("offsets", 1, {"batch": 1}),
        ("commits", 0, {}),
    ):
        path = checkpoint.path / folder / str(number)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("v1\n{}\n" + json.dumps(text))
    (checkpoint.path / "offsets" / ".2.tmp").touch()
    assert (checkpoint.logs.last_committed(), checkpoint.logs.last_offset()) == (0, {"batch": 0})
    assert checkpoint.logs.logged() == {0: {"batch": 0}, 1: {"batch": 1}}


def test_a_run_begins_with_an_empty_folder_of_its_own(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path, "p", "d.t")
    (tmp_path / "p/d.t").mkdir(parents=True)
    (checkpoint.run_folder() / "spec").write_text("of a run that crashed")
    assert list(checkpoint.run_folder().iterdir()) == []
    assert checkpoint.run_folder().stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("name", ["../../etc/x y.sql", "..", ".", "/x", "a/b"])
def test_names_cannot_leave_the_folder(tmp_path: Path, name: str) -> None:
    path = Checkpoint(tmp_path, name, "d.t").path.resolve()
    assert path.parent.parent == tmp_path.resolve()


def test_checkpoints_of_an_object_store_are_in_the_state_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert checkpoints_of(f"file://{tmp_path}") == tmp_path / ".checkpoints"
    folders = {checkpoints_of(f"{scheme}://bucket/a/b") for scheme in ("s3", "s3a", "oss")}
    assert folders == {tmp_path / "streamhouse" / "checkpoints" / "s3%3A%2F%2Fbucket%2Fa%2Fb"}


def test_what_a_killed_spark_had_begun_to_write_is_removed(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path, "shop", "default.sales")
    for log in ("offsets", "commits"):
        (checkpoint.path / log).mkdir(parents=True)
        (checkpoint.path / log / ".1.83b1a3cd-16ec.tmp").touch()
        (checkpoint.path / log / "0").write_text("v1\n{}")
    checkpoint.acquire()
    checkpoint.release()
    assert sorted(path.name for path in checkpoint.path.glob("*/*")) == ["0", "0"]


def test_what_a_power_failure_left_empty_is_removed_from_the_end(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path, "p", "d.t")
    for log in ("offsets", "commits"):
        (checkpoint.path / log).mkdir(parents=True)
        for number, text in enumerate(['v1\n{}\n{"batch": 0}', 'v1\n{}\n{"bat', "", "\0\0\0"]):
            (checkpoint.path / log / str(number)).write_text(text)
    checkpoint.acquire()
    checkpoint.release()
    assert sorted(path.name for path in checkpoint.path.glob("*/*")) == ["0", "0"]
    assert (checkpoint.logs.last_batch(), checkpoint.logs.last_offset()) == (0, {"batch": 0})


def test_a_batch_that_only_the_commit_log_has_is_an_error(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path, "p", "d.t")
    for log, number in (("offsets", 0), ("commits", 0), ("commits", 1)):
        (checkpoint.path / log).mkdir(parents=True, exist_ok=True)
        (checkpoint.path / log / str(number)).write_text('v1\n{}\n{"batch": 0}')
    with pytest.raises(DataLossError, match="offsets/1 is missing or damaged.*--from-scratch"):
        checkpoint.logs.last_offset()


class Query(JobQuery):
    """A query that does nothing."""

    @property
    def targets(self) -> list[TableAddress]:
        return []

    def prepare(self) -> None: ...

    def commit(self, sent: object) -> None: ...

    def tick(self) -> None: ...


def test_a_query_whose_checkpoint_was_cleared_logs_its_batches(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path, "p", "d.t")
    checkpoint.acquire()
    checkpoint.clear()
    address = TableAddress({"warehouse": str(tmp_path)}, "d.t")
    query = Query(checkpoint, QueryDescription("p", "d.t", "d.t", address, checkpoint.path, ()))
    checkpoint.logs.plan({"batch": 0})
    checkpoint.logs.commit()
    assert checkpoint.logs.last_offset() == {"batch": 0}
    query.stop()
