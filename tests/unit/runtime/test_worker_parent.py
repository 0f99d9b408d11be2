"""Spark's Python processes are forks of one that has imported the libraries."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.processes import await_end
from tests.waiting import DEADLINE_S

from streamhouse.runtime.spark.worker_python import WorkerParent, worker_python
from streamhouse.runtime.spark.worker_request import PARENT

TOLD = """
import json, os, sys
print(json.dumps({
    "arguments": sys.argv, "name": __name__, "folder": os.getcwd(), "given": os.environ["GIVEN"],
    "said": sys.stdin.read(), "parent": os.getppid(), "loaded": "duckdb" in sys.modules,
}))
print("and more", file=sys.stderr)
sys.exit(3)
"""
WAITING = "import os, signal; print(os.getpid(), flush=True); signal.pause()"
KILLED = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
ORPHAN = """
import os, signal
from streamhouse.runtime.spark.worker_python import WorkerParent
parent = WorkerParent()
print(parent.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of modules, which Python finds as it was started there."""
    folder = tmp_path_factory.mktemp("modules")
    for name, text in (("told", TOLD), ("waiting", WAITING), ("killed", KILLED)):
        (folder / f"{name}.py").write_text(text)
    return folder


@pytest.fixture(scope="module")
def parent(place: Path) -> Iterator[WorkerParent]:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        made = WorkerParent()
    yield made
    made.close()
    assert not psutil.pid_exists(made.pid)
    assert not Path(made.address).exists()


def start(place: Path, address: str | None, *arguments: str) -> subprocess.Popen[str]:
    """What Spark does."""
    given = {} if address is None else {PARENT: address}
    return subprocess.Popen(
        [worker_python(), *arguments],
        cwd=place,
        env={**os.environ, "PYTHONPATH": "/spark/pyspark.zip", "GIVEN": "é", **given},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def report_of(process: subprocess.Popen[str]) -> dict[str, Any]:
    out, err = process.communicate("some\nwords", timeout=DEADLINE_S)
    assert (process.returncode, err) == (3, "and more\n"), out
    found: dict[str, Any] = json.loads(out)
    return found


def test_a_fork_is_as_python_itself(place: Path, parent: WorkerParent) -> None:
    forked = report_of(start(place, parent.address, "-m", "told", "one", "2 3"))
    itself = report_of(start(place, None, "-m", "told", "one", "2 3"))
    assert (forked.pop("parent"), itself.pop("parent")) == (parent.pid, os.getpid())
    assert (forked.pop("loaded"), itself.pop("loaded")) == (True, False)
    assert forked == itself
    assert forked["said"] == "some\nwords" and forked["given"] == "é"


def test_forks_run_concurrently(place: Path, parent: WorkerParent) -> None:
    with start(place, parent.address, "-m", "waiting") as waiting:
        try:
            assert waiting.stdout is not None
            pid = int(waiting.stdout.readline())
            assert psutil.Process(pid).ppid() == parent.pid
            assert report_of(start(place, parent.address, "-m", "told"))["loaded"]
        finally:
            # Spark ends a process by a signal to the one that it has started.
            waiting.terminate()
        await_end(pid)
    assert psutil.pid_exists(parent.pid)


def test_a_fork_that_is_killed_has_failed(place: Path, parent: WorkerParent) -> None:
    with start(place, parent.address, "-m", "killed") as killed:
        killed.communicate(timeout=DEADLINE_S)
    assert killed.returncode == 1


def test_what_is_no_module_is_run_by_python_itself(place: Path, parent: WorkerParent) -> None:
    with start(place, parent.address, "-c", "import os; print(os.getppid())") as process:
        out, _ = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, int(out)) == (0, os.getpid())


def test_without_a_parent_processes_start_by_themselves(place: Path, tmp_path: Path) -> None:
    assert report_of(start(place, str(tmp_path / "nobody"), "-m", "told"))["parent"] == os.getpid()


def test_it_ends_with_the_process_that_started_it(place: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", ORPHAN], capture_output=True, text=True, timeout=DEADLINE_S
    )
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    await_end(int(ended.stdout))
