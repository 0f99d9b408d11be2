from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from streamhouse.runtime.streaming.tasks.message_files import (
    LARGE_BYTES,
    MessageFiles,
    read_and_delete,
)
from streamhouse.runtime.streaming.tasks.task_results import RESULT

LARGE, SMALL = bytes(range(256)) * (LARGE_BYTES // 256), b"small"
ROWS = [
    {"table": "t", "message": SMALL, "message_file": None, "report": None},
    {"table": "t", "message": LARGE, "message_file": None, "report": None},
    {"table": None, "message": None, "message_file": None, "report": "{}"},
]


def results() -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pylist(ROWS, schema=RESULT)


def test_a_large_message_is_a_file_until_it_is_taken(tmp_path: Path) -> None:
    files = pickle.loads(pickle.dumps(MessageFiles.at(tmp_path)))
    (found,) = files.put(results())
    small, large, report = found.to_pylist()
    assert (small, report) == (ROWS[0], ROWS[2])
    assert (large["table"], large["message"]) == ("t", None)
    assert Path(large["message_file"]).parent == tmp_path
    assert read_and_delete(large["message_file"]) == LARGE
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("other", ["machine", "user", "device", "inode"])
def test_a_task_that_sees_another_folder_sends_the_message(tmp_path: Path, other: str) -> None:
    files = MessageFiles.at(tmp_path)
    machine, user, device, inode = files.identity
    identity = {
        "machine": ("another machine", user, device, inode),
        "user": (machine, -1, device, inode),
        "device": (machine, user, -1, inode),
        "inode": (machine, user, device, -1),
    }[other]
    (found,) = replace(files, identity=identity).put(results())
    assert found.to_pylist() == ROWS
    assert not list(tmp_path.iterdir())


def test_a_task_without_the_folder_sends_the_message(tmp_path: Path) -> None:
    files = MessageFiles.at(tmp_path)
    tmp_path.rmdir()
    (found,) = files.put(results())
    assert found.to_pylist() == ROWS


def test_a_task_that_cannot_write_a_file_sends_the_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, data: bytes) -> int:
        path.touch()
        raise OSError("no space left")

    files = MessageFiles.at(tmp_path)
    monkeypatch.setattr(Path, "write_bytes", full)
    (found,) = files.put(results())
    assert found.to_pylist() == ROWS
    assert not list(tmp_path.iterdir())
