"""Spark's JVM outlives a driver that is killed, for the driver that is started again.

The start of the JVM and of its session is most of a restart. So the process that Spark's Python
workers are forked from (`worker_parent`) holds the JVM's standard input, whose end would end it.
When the driver ends without having said so, that process kills all Python workers at once, so that
nothing of the old run can read or write any more, starts no other, and keeps the JVM for some
seconds. The same command, started again meanwhile by the same user in the same environment, claims
the JVM at a socket. See docs/decisions/135-the-jvm-outlives-its-driver.md.
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
"""Seconds for which the JVM waits for its driver to be started again; 0: it ends with it."""
_LINGER_S = 10.0
_PASSING = ("_", "SHLVL", "OLDPWD", "INVOCATION_ID", "JOURNAL_STREAM", "SYSTEMD_EXEC_PID")
"""Variables that differ from one start of a command to the next, and say nothing to it."""
_LONGEST_PATH = 100
_MOST_FILES = 3
_CLAIM_S = 5.0
_THREADS = Path("/proc/self/task")


@dataclass(frozen=True)
class Jvm:
    """A JVM that runs; the files are numbers of this process.

    `port` and `secret` are of its py4j gateway, `folders` temporary ones that go with it.
    `process` is its pidfd, `stdin` the writing end of its standard input, `stderr` what it writes.
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
        """What a message says of it, beside its files."""
        return self.port, self.secret, self.folders

    @classmethod
    def received(cls, sent: tuple[int, str, tuple[str, ...]], files: list[int]) -> Jvm:
        port, secret, folders = sent
        process, stdin, *rest = files
        return cls(port, secret, folders, process, stdin, rest[0] if rest else None)

    def close(self) -> None:
        """Let go of it: it ends, unless somebody else has its standard input, too."""
        close_files(self.files)


class JvmProcess:
    """A JVM that is no child of this process, as a `subprocess.Popen` of it would be used."""

    def __init__(self, jvm: Jvm) -> None:
        self._process = jvm.process
        self._ended = select.poll()
        self._ended.register(jvm.process, select.POLLIN)
        self.stdin = os.fdopen(jvm.stdin, "wb", buffering=0)

    def poll(self) -> int | None:
        """None while it runs; its exit code is its new parent's to know."""
        return 1 if self._ended.poll(0) else None

    def wait(self, timeout: float) -> int:
        """Raises `subprocess.TimeoutExpired` if it still runs after so many seconds."""
        if not self._ended.poll(timeout * 1000):
            raise subprocess.TimeoutExpired("java", timeout)
        return 1

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._process, signal.SIGKILL)


def linger_s(environment: Mapping[str, str] = os.environ) -> float:
    """Seconds for which a JVM waits for its driver; raises `OptionError`."""
    text = environment.get(VARIABLE, "")
    try:
        return float(text or _LINGER_S)
    except ValueError:
        raise OptionError(f"{VARIABLE} is '{text}'; it takes a number of seconds") from None


def claim_path(*what: object) -> Path | None:
    """The socket at which the JVM of this very command can be claimed after its driver's end.

    `what` else must be equal. None where JVMs end with their drivers: by the user's wish, or as
    the system lacks what it takes.
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
    """The JVM that is kept there, if any: the process that keeps it, and that one's address."""
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
    """Whether the process at the other end is of this user."""
    size = struct.calcsize("3i")
    peer = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    return bool(struct.unpack("3i", peer)[1] == os.getuid())


def send(to: socket.socket, message: Any, files: Iterable[int] = ()) -> None:
    """Send what `marshal` takes, and open files. Raises `OSError`."""
    body = marshal.dumps(message)
    socket.send_fds(to, [len(body).to_bytes(LENGTH, "big")], list(files))
    to.sendall(body)


def receive(sender: socket.socket) -> tuple[Any, list[int]]:
    """A message and the files that came with it. Raises `EOFError` at the end, `OSError`."""
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
    """SIGKILL all processes below this one, which is the reaper of all of them, and reap them."""
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
    """When each module of ours was changed: an upgrade starts with a JVM and workers of its own."""
    package = Path(streamhouse.__file__).parent
    return sorted((str(file), file.stat().st_mtime_ns) for file in package.rglob("*.py"))
