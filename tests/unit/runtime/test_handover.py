"""Takes over the JVM and the Python processes of a killed driver."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from tests.processes import gone

import streamhouse
from streamhouse.errors import OptionError
from streamhouse.runtime.spark import handover
from streamhouse.runtime.spark.worker_python import WorkerParent, worker_python
from streamhouse.runtime.spark.worker_request import PARENT

DEADLINE_S = 60.0
DRIVER = """
import json, os, signal, subprocess, sys
from pathlib import Path
from streamhouse.runtime.spark.handover import Jvm
from streamhouse.runtime.spark.worker_python import WorkerParent
parent = WorkerParent()
# Ends with its standard input, as Spark's JVM does.
jvm = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
kept = Jvm(1234, "secret", ("/a",), os.pidfd_open(jvm.pid), jvm.stdin.fileno(), None)
parent.keep(kept, Path(sys.argv[1]), float(sys.argv[2]))
print(json.dumps({"parent": parent.pid, "address": parent.address, "jvm": jvm.pid}), flush=True)
sys.stdin.readline()
parent.release_jvm()
print("let go", flush=True)
signal.pause()
"""
LEAVING = """
import subprocess
print(subprocess.Popen(["sleep", "600"]).pid, flush=True)
"""
WAITING = "import os, signal; print(os.getpid(), flush=True); signal.pause()"


@dataclass
class Driver:
    """A driver with a JVM that is to outlive it; `claim` is where."""

    process: subprocess.Popen[str]
    claim: Path
    parent: int
    address: str
    jvm: int

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(DEADLINE_S)

    def fork(self, module: str) -> subprocess.Popen[str]:
        """Ask as Spark does."""
        return subprocess.Popen(
            [worker_python(), "-m", module],
            cwd=self.claim.parent,
            env={**os.environ, PARENT: self.address},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Callable[..., Driver]]:
    for name, text in (("leaving", LEAVING), ("waiting", WAITING)):
        (tmp_path / f"{name}.py").write_text(text)
    made: list[Driver] = []

    def start(linger_s: float = 600.0) -> Driver:
        claim = tmp_path / "claim"
        process = subprocess.Popen(
            [sys.executable, "-c", DRIVER, str(claim), str(linger_s)],
            cwd=tmp_path,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        made.append(Driver(process, claim, **json.loads(process.stdout.readline())))
        return made[-1]

    yield start
    for each in made:
        each.kill()
        assert each.process.stdin is not None and each.process.stdout is not None
        each.process.stdin.close()
        each.process.stdout.close()
        for pid in (each.parent, each.jvm):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def said(process: subprocess.Popen[str]) -> int:
    assert process.stdout is not None
    return int(process.stdout.readline())


def claimed(driver: Driver) -> tuple[WorkerParent, handover.Jvm]:
    deadline = time.monotonic() + DEADLINE_S
    while (found := handover.claim(driver.claim)) is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    connection, address, jvm = found
    assert address == driver.address
    return WorkerParent((connection, address)), jvm


def test_the_jvm_is_there_for_the_next_driver(driver: Callable[..., Driver]) -> None:
    killed = driver()
    assert handover.claim(killed.claim) is None
    killed.kill()
    parent, jvm = claimed(killed)
    assert (jvm.port, jvm.secret, jvm.folders, jvm.stderr) == (1234, "secret", ("/a",), None)
    process = handover.JvmProcess(jvm)
    assert process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.01)
    # Nobody else gets it.
    assert handover.claim(killed.claim) is None
    parent.release_jvm()
    process.stdin.close()
    assert process.wait(DEADLINE_S) is not None
    assert process.poll() is not None
    parent.close()
    assert gone(killed.parent)
    assert not Path(killed.address).exists()


def test_everything_that_the_old_driver_ran_is_ended(driver: Callable[..., Driver]) -> None:
    killed = driver()
    with killed.fork("waiting") as waiting, killed.fork("leaving") as leaving:
        worker, left_behind = said(waiting), said(leaving)
        leaving.wait(DEADLINE_S)
        killed.kill()
        parent, jvm = claimed(killed)
        assert not psutil.pid_exists(worker) and not psutil.pid_exists(left_behind)
        assert waiting.wait(DEADLINE_S) != 0
    # What Spark asks for now may be a task of the old driver that it tries again.
    with killed.fork("waiting") as refused:
        assert refused.wait(DEADLINE_S) == 1
    parent.allow_forks()
    with killed.fork("waiting") as started:
        assert psutil.pid_exists(said(started))
        started.terminate()
    jvm.close()
    parent.close()
    assert gone(killed.jvm)


def test_the_next_driver_may_be_killed_as_well(driver: Callable[..., Driver]) -> None:
    killed = driver()
    killed.kill()
    for _ in range(2):
        parent, jvm = claimed(killed)
        jvm.close()
        parent.report_batch()
        # As the end of a process does.
        parent._connection.close()
    parent, jvm = claimed(killed)
    assert psutil.pid_exists(killed.jvm)
    parent.close()
    jvm.close()
    assert gone(killed.jvm)


def test_a_jvm_with_which_a_driver_came_to_no_batch_ends(driver: Callable[..., Driver]) -> None:
    killed = driver()
    killed.kill()
    parent, jvm = claimed(killed)
    jvm.close()
    parent._connection.close()
    assert gone(killed.parent) and gone(killed.jvm)


def test_without_a_next_driver_all_ends(driver: Callable[..., Driver]) -> None:
    killed = driver(linger_s=0.2)
    killed.kill()
    assert gone(killed.parent) and gone(killed.jvm)
    assert not killed.claim.exists()


def test_a_jvm_that_is_not_to_outlive_its_driver(driver: Callable[..., Driver]) -> None:
    killed = driver()
    assert killed.process.stdin is not None and killed.process.stdout is not None
    print(file=killed.process.stdin, flush=True)
    assert killed.process.stdout.readline() == "let go\n"
    killed.kill()
    assert gone(killed.parent) and gone(killed.jvm)


def test_a_jvm_that_has_died_is_not_waited_for(driver: Callable[..., Driver]) -> None:
    killed = driver()
    killed.kill()
    parent, jvm = claimed(killed)
    parent.report_batch()
    parent._connection.close()
    process = handover.JvmProcess(jvm)
    process.kill()
    process.stdin.close()
    assert gone(killed.jvm) and gone(killed.parent)


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A folder whose path leaves room for the name of a socket."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def test_only_the_same_command_claims(short_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(short_path))
    monkeypatch.delenv(handover.VARIABLE, raising=False)
    path = handover.claim_path("local[2]")
    assert path is not None and path.parent.stat().st_mode & 0o777 == 0o700
    assert handover.claim_path("local[2]") == path
    assert handover.claim_path("local[4]") != path
    monkeypatch.setenv("SHLVL", "7")
    assert handover.claim_path("local[2]") == path
    with monkeypatch.context() as patch:
        patch.setenv("AWS_PROFILE", "other")
        assert handover.claim_path("local[2]") != path
    with monkeypatch.context() as patch:
        patch.chdir(short_path)
        assert handover.claim_path("local[2]") != path
    with monkeypatch.context() as patch:
        patch.setattr(sys, "orig_argv", [*sys.orig_argv, "--from-scratch"])
        assert handover.claim_path("local[2]") != path
    path.parent.chmod(0o755)
    assert handover.claim_path("local[2]") is None


def test_the_wait_can_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(handover.VARIABLE, "0")
    assert handover.claim_path() is None
    assert handover.linger_s({}) == 10.0
    assert handover.linger_s({handover.VARIABLE: "2.5"}) == 2.5
    with pytest.raises(OptionError, match="takes a number of seconds"):
        handover.linger_s({handover.VARIABLE: "soon"})


def test_a_change_of_any_module_is_another_command() -> None:
    modules = {
        Path(path).relative_to(Path(streamhouse.__file__).parent) for path, _ in handover._code()
    }
    assert {Path("errors.py"), Path("paimon/read/table.py"), Path("sql/plan.py")} <= modules
