"""Processes that tests start and wait for, and the ports at which they listen."""

from __future__ import annotations

import atexit
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from ipaddress import ip_address
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import Any

import psutil
from tests.waiting import until

PRELOADED = [
    "duckdb",
    "pandas",  # pyarrow loads it with the first value that it makes
    "pyarrow.compute",
    "pyarrow.parquet",
    "pytest",
    "pyspark.sql.session",
    "sqlglot.dialects.duckdb",
    "streamhouse.cli.commands.export",
    "streamhouse.cli.commands.run",
    "streamhouse.cli.main",
    "streamhouse.demo.driver",
    "streamhouse.cli.output",
    "streamhouse.cli.commands.servers.serve",
    "streamhouse.cli.commands.watch",
    "streamhouse.graph.script_check",
    "streamhouse.paimon.catalog.views",
    "streamhouse.runtime.execute",
    "streamhouse.runtime.script",
    "streamhouse.runtime.spark.session",
    "streamhouse.serve.http.app",
    "streamhouse.serve.http.server",
    "streamhouse.serve.queries.client_select",
    "streamhouse.serve.queries.view_rows",
    "streamhouse.serve.queries.worker",
    "streamhouse.sql.streaming.query_planner",
    "tests.local_command",
]
FORKS = multiprocessing.get_context("forkserver")
"""Makes processes as forks of one that has loaded what they need, and has no threads: to load it
takes more than a second of a processor, most of what many of them take at all."""
FORKS.set_forkserver_preload(PRELOADED)


class Fork:
    """A process of `FORKS`, used as a `Popen`."""

    _process: Any

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        number: int = self._process.pid
        return number

    def poll(self) -> int | None:
        code: int | None = self._process.exitcode
        return code

    def kill(self) -> None:
        self._process.kill()


class Command(Fork):
    """`streamhouse` with these arguments, in a process of its own.

    Without `spark` its queries run in threads: the same planner, tasks, commits and checkpoints,
    without a JVM and Python workers, which take ten seconds of a processor to start.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        stdout: int,
        stderr: int,
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
        spark: bool = True,
    ) -> None:
        self._arguments = list(arguments)
        files = _File(stdout), _File(stderr)
        given, place = {**os.environ, **(environment or {})}, str(folder or Path.cwd())
        self._process = FORKS.Process(target=_run, args=(arguments, place, given, files, spark))
        self._process.start()

    def wait(self, timeout: float) -> int:
        self._process.join(timeout)
        code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired(self._arguments, timeout)
        return code

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)


@dataclass(frozen=True)
class _File:
    """An open file; in a process that is given it, the number of its own copy."""

    number: int

    def __reduce__(self) -> tuple[Callable[[Any], int], tuple[Any]]:
        return _copy, (DupFd(self.number),)


def _copy(file: Any) -> int:
    number: int = file.detach()
    return number


def _run(
    arguments: Sequence[str],
    folder: str,
    environment: dict[str, str],
    files: tuple[int, int],
    spark: bool,
) -> None:
    from tests.local_command import local_commands

    from streamhouse.cli.main import main

    os.setsid()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[:0] = filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))
    for number, file in enumerate(files, 1):
        os.dup2(file, number)
        os.close(file)
    # As Python opens them when it starts: to a terminal, each line at once.
    sys.stdout = open(1, "w", 1 if os.isatty(1) else -1, "utf-8", closefd=False)
    sys.stderr = open(2, "w", 1, "utf-8", "backslashreplace", closefd=False)
    sys.argv = ["streamhouse", *arguments]
    try:
        with nullcontext() if spark else local_commands():
            main()
    finally:
        # `multiprocessing` ends its processes without this.
        atexit._run_exitfuncs()


def listening(pids: Iterable[int]) -> set[tuple[str, int]]:
    """Addresses and ports at which processes listen for TCP connections."""
    found = set()
    for pid in pids:
        with suppress(psutil.Error):
            for one in psutil.Process(pid).net_connections("tcp"):
                if one.status == psutil.CONN_LISTEN:
                    found.add((one.laddr.ip, one.laddr.port))
    return found


def reachable(pids: Iterable[int]) -> set[tuple[str, int]]:
    """Those of `listening` that other machines can reach."""
    return {(host, port) for host, port in listening(pids) if not _is_loopback(host)}


def _is_loopback(host: str) -> bool:
    address = ip_address(host)
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


def suspend(pid: int) -> None:
    """Send SIGSTOP, and wait until each thread has stopped: until then they can still answer."""
    os.kill(pid, signal.SIGSTOP)
    until(lambda: all(map(_is_suspended, Path(f"/proc/{pid}/task").glob("*/stat"))))


def _is_suspended(thread: Path) -> bool:
    try:
        return thread.read_text().rpartition(")")[2].split()[0] in "Tt"
    except (FileNotFoundError, ProcessLookupError):
        return True  # it has ended


def await_end(pid: int) -> None:
    """Wait until a process has ended; a zombie has, as in a container nobody may reap it."""

    def ended() -> bool:
        try:
            return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return True

    until(ended)
