"""A trimmed log keeps its last lines."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from streamhouse.runtime.monitoring.log_file import MOST_BYTES, LogFile


@pytest.fixture
def log(tmp_path: Path) -> LogFile:
    return LogFile(tmp_path / "log")


def test_the_end_of_a_long_log_is_kept(log: LogFile) -> None:
    handle = os.open(log.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        assert log.takes(handle)
        lines = [f"line {number:07d}" for number in range(60_000)]
        os.write(handle, "\n".join(lines).encode() + b"\n")
        log.trim()
        os.write(handle, b"after\n")
    finally:
        os.close(handle)
    assert log.path.read_text() == "after\n"
    assert log.last_lines(3) == [*lines[-2:], "after"]
    kept = log.last_lines(1_000_000)
    assert kept[:-1] == lines[-len(kept) + 1 :]
    files = sorted(log.path.parent.iterdir())
    assert [file.name for file in files] == ["log", "log.1"]
    assert sum(file.stat().st_size for file in files) <= MOST_BYTES + 6


def test_a_short_log_is_left_alone(log: LogFile) -> None:
    log.path.write_text("one\ntwo\n")
    log.trim()
    assert log.last_lines(1) == ["two"] and log.last_lines(0) == []
    assert log.last_lines(5) == ["one", "two"]


def test_no_log_is_no_error(log: LogFile) -> None:
    log.trim()
    assert log.last_lines(5) == []
    assert not log.takes(2)


def test_appended_text_is_bounded_too(tmp_path: Path) -> None:
    log = LogFile(tmp_path / "spark.log")
    log.append(b"")
    assert not log.path.exists()
    log.append(b"first\n")
    log.append(b"x" * MOST_BYTES + b"\nlast\n")
    assert log.path.read_bytes() == b""
    assert log.last_lines(1) == ["last"]
