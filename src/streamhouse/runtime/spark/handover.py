"""Hands Spark's JVM over from a killed driver to the restarted one.

Starting the JVM and its Spark session takes most of the time of a restart. So the process from
which Spark's Python workers are forked (`worker_parent`) holds the JVM's standard input open; the
JVM exits when that is closed. When the driver ends without notice, this process kills all Python
workers at once, so that the old run can no longer read or write. It forks no new workers, and keeps
the JVM for some seconds. If the same user starts the same command again in the same environment
within this time, the new driver claims the JVM at a Unix socket. See
docs/decisions/135-spark-jvm-outlives-its-driver.md.
"""

from __future__ import annotations

import contextlib
import hashlib
import marshal
import os
import select
import signal
import socket
import stat
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import streamhouse
from streamhouse.errors import OptionError
from streamhouse.runtime.spark.worker_request import LENGTH

VARIABLE = "STREAMHOUSE_SPARK_LINGER_S"
"""Environment variable: how many seconds (default 10) the JVM waits for its driver to be restarted;
0: it ends with the driver."""
_LINGER_S = 10.0
_PASSING = ("_", "SHLVL", "OLDPWD", "INVOCATION_ID", "JOURNAL_STREAM", "SYSTEMD_EXEC_PID")
"""Environment variables that differ between starts of the same command, and are ignored."""
_LONGEST_PATH = 100
_MOST_FILES = 3
_CLAIM_S = 5.0
_THREADS = Path("/proc/self/task")


@dataclass(frozen=True)
class Jvm:
    """A running JVM, with file descriptors of this process.

    `port` and `secret` are those of its py4j gateway, `folders` are temporary folders to remove
    after it. `process` is its pidfd, `stdin` the writing end of its standard input, `stderr` the
    file with its standard error, if there is one.
    """

    port: int
    secret: str
    folders: tuple[str, ...]
    process: int
    stdin: int
    stderr: int | None

    @property
    def files(self) -> list[int]:
        return [self.process, self.stdin, *([] if self.stderr is None else [self.stderr])]

    def sent(self) -> tuple[int, str, tuple[str, ...]]:
        """The part of a message about it without the file descriptors."""
        return self.port, self.secret, self.folders

    @classmethod
    def received(cls, sent: tuple[int, str, tuple[str, ...]], files: list[int]) -> Jvm:
        port, secret, folders = sent
        process, stdin, *rest = files
        return cls(port, secret, folders, process, stdin, rest[0] if rest else None)

    def close(self) -> None:
        """Close the descriptors; the JVM exits unless another process holds its stdin open."""
        close_files(self.files)


class JvmProcess:
    """A JVM that is not a child of this process, with the interface of `subprocess.Popen`."""

    def __init__(self, jvm: Jvm) -> None:
        self._process = jvm.process
        self._ended = select.poll()
        self._ended.register(jvm.process, select.POLLIN)
        self.stdin = os.fdopen(jvm.stdin, "wb", buffering=0)

    def poll(self) -> int | None:
        """None while it runs, else 1: only its parent process can learn the exit code."""
        return 1 if self._ended.poll(0) else None

    def wait(self, timeout: float) -> int:
        """Wait for its exit; `subprocess.TimeoutExpired` after `timeout` seconds."""
        if not self._ended.poll(timeout * 1000):
            raise subprocess.TimeoutExpired("java", timeout)
        return 1

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._process, signal.SIGKILL)


def linger_s(environment: Mapping[str, str] = os.environ) -> float:
    """How many seconds a JVM waits for its driver; `OptionError` for an invalid variable."""
    text = environment.get(VARIABLE, "")
    try:
        return float(text or _LINGER_S)
    except ValueError:
        raise OptionError(f"{VARIABLE} is '{text}'; it takes a number of seconds") from None


def claim_path(*what: object) -> Path | None:
    """The Unix socket at which a restart of this command can claim the JVM of a killed driver.

    `what` is further state that must be equal in both runs. None if the JVM ends with its driver:
    because the user set 0 seconds, or because the system lacks a needed feature (pidfd, `/proc`,
    a private temporary folder).
    """
    if linger_s() <= 0 or not hasattr(os, "pidfd_open") or not _children_files():
        return None
    folder = Path(tempfile.gettempdir()) / f"streamhouse-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError:
        return None
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        return None
    environment = sorted(item for item in os.environ.items() if item[0] not in _PASSING)
    same = (_code(), sys.executable, sys.orig_argv[1:], os.getcwd(), environment, what)
    path = folder / f"spark-{hashlib.sha256(repr(same).encode()).hexdigest()[:16]}"
    return path if len(os.fsencode(path)) <= _LONGEST_PATH else None


def claim(path: Path) -> tuple[socket.socket, str, Jvm] | None:
    """Claim the JVM at a socket; None if there is none.

    Returns the connection to the worker parent that keeps it, the socket path at which that one
    takes fork requests, and the JVM.
    """
    keeper = socket.socket(socket.AF_UNIX)
    keeper.settimeout(_CLAIM_S)
    try:
        keeper.connect(os.fspath(path))
        (address, jvm), files = receive(keeper)
    except (OSError, EOFError):
        keeper.close()
        return None
    return keeper, address, Jvm.received(jvm, files)


def is_own(client: socket.socket) -> bool:
    """Whether the process at the other end belongs to this user."""
    size = struct.calcsize("3i")
    peer = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    return bool(struct.unpack("3i", peer)[1] == os.getuid())


def send(to: socket.socket, message: Any, files: Iterable[int] = ()) -> None:
    """Send an object that `marshal` can serialise, and open file descriptors. Raises `OSError`."""
    body = marshal.dumps(message)
    socket.send_fds(to, [len(body).to_bytes(LENGTH, "big")], list(files))
    to.sendall(body)


def receive(sender: socket.socket) -> tuple[Any, list[int]]:
    """Receive a message and its file descriptors. Raises `EOFError` at the end, or `OSError`."""
    head, files, _, _ = socket.recv_fds(sender, LENGTH, _MOST_FILES)
    try:
        if len(head) != LENGTH:
            raise EOFError
        left = int.from_bytes(head, "big")
        parts = []
        while left:
            parts.append(sender.recv(left))
            if not parts[-1]:
                raise EOFError
            left -= len(parts[-1])
        return marshal.loads(b"".join(parts)), files
    except BaseException:
        close_files(files)
        raise


def close_files(files: Iterable[int]) -> None:
    for file in files:
        os.close(file)


def kill_children() -> None:
    """SIGKILL and reap all descendants of this process, which must be their subreaper."""
    while True:
        for file in _children_files():
            for pid in file.read_text().split():
                os.kill(int(pid), signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def _children_files() -> list[Path]:
    return list(_THREADS.glob("*/children"))


def _code() -> list[tuple[str, int]]:
    """The modification times of our modules: after an upgrade the old JVM must not be claimed."""
    package = Path(streamhouse.__file__).parent
    return sorted((str(file), file.stat().st_mtime_ns) for file in package.rglob("*.py"))
