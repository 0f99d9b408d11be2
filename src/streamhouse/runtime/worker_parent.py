"""The process that Spark's Python processes are forked from, with all loaded that they need.

Spark starts a Python process for each query, for its tasks and for each kind of planning. Each
would load PySpark and our libraries anew, which takes more than half a second of a processor. Here
they are loaded once. `python -m streamhouse.runtime.worker_parent LISTENER` serves `worker_request`
at a socket that it has inherited, until its standard input ends: with the driver, however that
ends.
"""

from __future__ import annotations

import contextlib
import io
import marshal
import os
import runpy
import selectors
import signal
import socket
import sys
import time
from dataclasses import dataclass
from importlib import import_module

from streamhouse.runtime.worker_request import CODE, LENGTH, STARTED

_LIBRARIES = (
    "duckdb",
    "pyarrow",
    "pypaimon_rust.datafusion",
    "pyspark.daemon",
    "pyspark.worker",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.plan_data_source_read",
    "streamhouse.runtime.fused",
    "streamhouse.runtime.planner",
    "streamhouse.runtime.task",
    # PyArrow imports it in each process that makes an array of Python values.
    "pandas",
)
"""Not the modules that are run: Python warns of those that are there already."""
_STANDARD_FILES = 3
_ASK_S = 10.0
_KILLED = 128


@dataclass(frozen=True)
class Request:
    """A module to be run as `python -m` would, in this environment, folder and with these files."""

    arguments: list[str]
    environment: dict[bytes, bytes]
    folder: str
    files: list[int]

    @classmethod
    def received(cls, client: socket.socket) -> Request:
        """Raises `OSError` if it does not come as a whole."""
        head, files, _, _ = socket.recv_fds(client, LENGTH, _STANDARD_FILES)
        try:
            if len(head) != LENGTH or len(files) != _STANDARD_FILES:
                raise OSError("not a request")
            left = int.from_bytes(head, "big")
            parts = []
            while left:
                parts.append(client.recv(left))
                if not parts[-1]:
                    raise OSError("the request has been cut off")
                left -= len(parts[-1])
            arguments, environment, folder = marshal.loads(b"".join(parts))
        except BaseException:
            _close(files)
            raise
        return cls(arguments, environment, folder, files)

    def run(self) -> None:
        """Become what was asked for."""
        for number, file in enumerate(self.files):
            os.dup2(file, number)
        _close(self.files)
        os.environb.clear()
        os.environb.update(self.environment)
        time.tzset()
        os.chdir(self.folder)
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(line_buffering=True)
        sys.argv = list(self.arguments)
        runpy.run_module(self.arguments[0], run_name="__main__", alter_sys=True)


class Parent:
    """Forks for whoever asks, and tells them how their forks end; a fork ends with its asker."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._selector = selectors.PollSelector()
        self._askers: dict[int, socket.socket] = {}
        self._woken, self._wake = os.pipe()
        os.set_blocking(self._wake, False)

    def serve(self) -> Request | None:
        """In a fork, what it is to run; None once standard input has ended."""
        # Only what wakes the loop: children are waited for there.
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        for file in (sys.stdin.fileno(), self._listener.fileno(), self._woken):
            self._selector.register(file, selectors.EVENT_READ)
        while True:
            ready = {key.fd for key, _ in self._selector.select()}
            if sys.stdin.fileno() in ready:
                return None
            # Those that are gone first: their numbers may be those of others after the rest.
            for process, asker in self._askers.items():
                if asker.fileno() in ready:
                    self._end(process, asker)
            if self._listener.fileno() in ready:
                request = self._fork()
                if request is not None:
                    return request
            if self._woken in ready:
                os.read(self._woken, 4096)
                self._tell_ends()

    def _fork(self) -> Request | None:
        """Fork for the next that asks; gives the request in the fork."""
        asker, _ = self._listener.accept()
        asker.settimeout(_ASK_S)
        try:
            request = Request.received(asker)
        except (OSError, ValueError, EOFError):
            asker.close()
            return None
        process = os.fork()
        if process == 0:
            self._leave(asker)
            return request
        _close(request.files)
        self._askers[process] = asker
        self._selector.register(asker.fileno(), selectors.EVENT_READ)
        with contextlib.suppress(OSError):
            asker.sendall(STARTED)
        return None

    def _leave(self, asker: socket.socket) -> None:
        """Keep nothing of the parent's, in a fork."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._selector.close()
        for each in (self._listener, asker, *self._askers.values()):
            each.close()
        _close([self._woken, self._wake])

    def _tell_ends(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while True:
                process, status = os.waitpid(-1, os.WNOHANG)
                if process == 0:
                    return
                code = os.waitstatus_to_exitcode(status)
                asker = self._askers.pop(process)
                with contextlib.suppress(KeyError):
                    self._selector.unregister(asker.fileno())
                with contextlib.suppress(OSError):
                    asker.sendall((code if code >= 0 else _KILLED - code).to_bytes(CODE, "big"))
                asker.close()

    def _end(self, process: int, asker: socket.socket) -> None:
        """End the fork of an asker that is gone."""
        self._selector.unregister(asker.fileno())
        os.kill(process, signal.SIGTERM)


def _close(files: list[int]) -> None:
    for file in files:
        os.close(file)


def main() -> None:
    listener = socket.socket(fileno=int(sys.argv[1]))
    # As of the JVM, which Spark's own would be children of.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for name in _LIBRARIES:
        import_module(name)
    request = Parent(listener).serve()
    if request is not None:
        request.run()


if __name__ == "__main__":
    main()
