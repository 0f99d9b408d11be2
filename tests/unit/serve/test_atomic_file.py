"""Atomic replacement of files, and leftovers of killed writers."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from tests.processes import FORKS
from tests.waiting import DEADLINE_S

from streamhouse.serve.export_files import replacing
from streamhouse.work_folder import sweep

KILLED = """
import os, signal, sys
from pathlib import Path
from streamhouse.serve.export_files import replacing

with replacing(Path(sys.argv[1])) as out:
    out.write(b"half")
    out.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def parts(folder: Path) -> list[str]:
    return [name for name in os.listdir(folder) if name.startswith(".")]


def test_old_file_stays_until_the_new_one_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text("old")
    with replacing(path) as out:
        out.write(b"new")
        out.flush()
        assert path.read_text() == "old"
        assert len(parts(tmp_path)) == 1
    assert path.read_text() == "new"
    assert os.listdir(tmp_path) == ["a.json"]


def test_file_permissions(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        with replacing(tmp_path / "a"):
            pass
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o644


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_exception_keeps_the_old_file(tmp_path: Path, error: type[BaseException]) -> None:
    path = tmp_path / "a.json"
    path.write_text("old")
    with pytest.raises(error), replacing(path) as out:
        out.write(b"new")
        raise error
    assert path.read_text() == "old"
    assert parts(tmp_path) == []


def test_readers_never_see_a_partial_file(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with replacing(path) as out:
        out.write(b"0" * 10_000)
    done = threading.Event()
    seen: set[bytes] = set()

    def read() -> None:
        while not done.is_set():
            text = path.read_bytes()
            assert len(text) == 10_000
            seen.update({text[:1], text[-1:]})

    reader = threading.Thread(target=read)
    reader.start()
    for digit in b"123456789":
        with replacing(path) as out:
            for _ in range(100):
                out.write(bytes([digit]) * 100)
    done.set()
    reader.join(DEADLINE_S)
    assert not reader.is_alive() and seen <= {bytes([one]) for one in b"0123456789"}


def test_leftovers_of_killed_writers_are_deleted(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, str(path)], timeout=DEADLINE_S, check=False
    )
    assert killed.returncode == -9 and len(parts(tmp_path)) == 1
    other = tmp_path / ".b.json.0123"
    other.mkdir()
    (other / ".lock").touch()
    with replacing(path) as out:
        out.write(b"whole")
    assert parts(tmp_path) == [other.name] and path.read_text() == "whole"


def test_files_being_written_are_not_deleted(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    with replacing(path) as out:
        out.write(b"new")
        # From another process, since locks of one are all its own.
        with FORKS.Pool(1) as pool:
            pool.apply_async(sweep, (str(tmp_path), ".a.json.")).get(DEADLINE_S)
        sweep(str(tmp_path), ".a.json.")
    assert path.read_text() == "new"
