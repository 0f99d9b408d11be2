from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streamhouse.runtime.streaming.tasks.task_input import TaskInput
from streamhouse.runtime.streaming.tasks.task_protocol import (
    LARGE_BYTES,
    RowFiles,
    TaskAttempt,
    message_of,
    results,
)

SMALL = pa.table({"id": [1, 2], "text": ["a", None]})
LARGE = pa.table({"id": pa.array(range(LARGE_BYTES // 8)), "text": ["text"] * (LARGE_BYTES // 8)})
TASK = TaskInput(0, {}, {"batch": 1})
MESSAGES = [("t", b"bytes"), ("t", SMALL), ("t", LARGE), ("other", b"")]


def sent(files: RowFiles | None) -> list[dict[str, Any]]:
    """The rows of `RESULT` that Spark passes to the driver, without the report."""
    records: list[dict[str, Any]]
    *records, report = results(
        TASK, TaskAttempt("a", False), "d.t", MESSAGES, {}, files
    ).to_pylist()
    assert report["table"] is None and report["report"] is not None
    return records


def check_received(records: list[dict[str, Any]]) -> None:
    assert [(record["table"], message_of(record)) for record in records] == MESSAGES


def test_large_rows_are_a_file_until_they_are_taken(tmp_path: Path) -> None:
    records = sent(pickle.loads(pickle.dumps(RowFiles.at(tmp_path))))
    assert [record["rows_file"] is not None for record in records] == [False, False, True, False]
    assert [str(file) for file in tmp_path.iterdir()] == [records[2]["rows_file"]]
    check_received(records)
    assert not list(tmp_path.iterdir())


def test_rows_stay_readable_after_their_file_is_deleted(tmp_path: Path) -> None:
    rows = message_of(sent(RowFiles.at(tmp_path))[2])
    assert not list(tmp_path.iterdir()) and not isinstance(rows, bytes)
    assert rows.column("id").to_pylist() == list(range(LARGE_BYTES // 8))


def check_sent_by_spark(files: RowFiles | None) -> None:
    """Check that large rows are sent compressed instead of in a file."""
    records = sent(files)
    assert all(record["rows_file"] is None for record in records)
    assert 0 < len(records[2]["rows"]) < 0.75 * LARGE.nbytes
    check_received(records)


@pytest.mark.parametrize("other", ["machine", "user", "device", "inode"])
def test_a_task_that_sees_another_folder_sends_the_rows(tmp_path: Path, other: str) -> None:
    files = RowFiles.at(tmp_path)
    machine, user, device, inode = files.identity
    identity = {
        "machine": ("another machine", user, device, inode),
        "user": (machine, -1, device, inode),
        "device": (machine, user, -1, inode),
        "inode": (machine, user, device, -1),
    }[other]
    check_sent_by_spark(replace(files, identity=identity))
    assert not list(tmp_path.iterdir())


def test_a_task_without_the_folder_sends_the_rows(tmp_path: Path) -> None:
    files = RowFiles.at(tmp_path)
    tmp_path.rmdir()
    check_sent_by_spark(files)
    check_sent_by_spark(None)


def test_a_task_that_cannot_write_a_file_sends_the_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full:
        def __init__(self, path: str, mode: str) -> None:
            Path(path).touch()

        def __enter__(self) -> None:
            raise OSError("no space left")

        def __exit__(self, *error: object) -> None: ...

    files = RowFiles.at(tmp_path)
    monkeypatch.setattr(pa, "OSFile", Full)
    check_sent_by_spark(files)
    assert not list(tmp_path.iterdir())
