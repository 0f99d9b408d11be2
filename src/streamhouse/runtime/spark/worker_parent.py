"""The process from which Spark's Python processes are forked, with their libraries imported.

Spark starts a Python process for each query, for its tasks and for each kind of planning. Each
would import PySpark and our libraries again, which takes more than half a second of processor time.
This process imports them once. `python -m streamhouse.runtime.spark.worker_parent LISTENER` serves
`worker_request` at an inherited socket, until its standard input ends, which it does however the
driver ends.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import io
import marshal
import os
import runpy
import selectors
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module
from typing import NoReturn

from streamhouse.runtime.spark.worker_libraries import TASK_LIBRARIES
from streamhouse.runtime.spark.worker_request import CODE, LENGTH, PARENT, STARTED

_LIBRARIES = (
    *TASK_LIBRARIES,
    "pyspark.daemon",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.plan_data_source_read",
    "streamhouse.runtime.streaming.spark_data_source",
    "streamhouse.runtime.streaming.batch_planner",
    # The connectors that take long to import.
    "streamhouse.connectors.kafka.connector",
    "streamhouse.connectors.mysql_cdc.connector",
)
"""Without the modules that forks run as `__main__`: Python warns if those are imported already."""
_STANDARD_FILES = 3
_REQUEST_S = 10.0
_KILLED = 128
_PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True)
class ForkRequest:
    """A request to run a module as `python -m` does, in an environment and folder, with stdio."""

    arguments: list[str]
    environment: dict[bytes, bytes]
    folder: str
    files: list[int]

    @classmethod
    def received(cls, client: socket.socket) -> ForkRequest:
        """Receive a request; raises `OSError`, `EOFError` or `ValueError` if it is none."""
        head, files, _, _ = socket.recv_fds(client, LENGTH, _STANDARD_FILES)
        try:
            if len(head) != LENGTH or len(files) != _STANDARD_FILES:
                raise EOFError
            with client.makefile("rb") as body:
                arguments, environment, folder = marshal.loads(body.read(int.from_bytes(head)))
        except BaseException:
            close_files(files)
            raise
        return cls(arguments, environment, folder, files)

    def run(self) -> None:
        """Run the requested module in this process."""
        for number, file in enumerate(self.files):
            os.dup2(file, number)
        close_files(self.files)
        os.environb.clear()
        os.environb.update(self.environment)
        # Processes that the fork starts must not request forks.
        os.environ.pop(PARENT, None)
        time.tzset()
        os.chdir(self.folder)
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(line_buffering=True)
        sys.argv = list(self.arguments)
        runpy.run_module(self.arguments[0], run_name="__main__", alter_sys=True)


class Parent:
    """Forks on request and reports the exit code of each fork; ends a fork if its requester ends.

    `driver` is the end of a pipe that only the driver holds.
    """

    def __init__(self, listener: socket.socket, driver: int) -> None:
        self._listener = listener
        self._driver = driver
        self._selector = selectors.PollSelector()
        self._requesters: dict[int, socket.socket] = {}
        self._woken, self._wake = os.pipe()
        os.set_blocking(self._wake, False)

    def serve(self) -> ForkRequest | None:
        """Serve until the driver has ended, then return None; in a fork, return its request."""
        # The signal only wakes the loop, which waits for the children.
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        for file in (self._driver, self._listener.fileno(), self._woken):
            self._selector.register(file, selectors.EVENT_READ)
        while True:
            ready = {key.fd for key, _ in self._selector.select()}
            if self._driver in ready:
                return None
            # Closed connections first: the steps below may reuse their process ids and descriptors.
            for process, requester in self._requesters.items():
                if requester.fileno() in ready:
                    self._end(process, requester)
            if self._listener.fileno() in ready:
                request = self._fork()
                if request is not None:
                    return request
            if self._woken in ready:
                os.read(self._woken, 4096)
                self._report_exits()

    def _fork(self) -> ForkRequest | None:
        """Fork for the next request; returns the request in the fork, None in the parent."""
        requester, _ = self._listener.accept()
        requester.settimeout(_REQUEST_S)
        try:
            request = ForkRequest.received(requester)
        except (OSError, ValueError, EOFError):
            requester.close()
            return None
        process = os.fork()
        if process == 0:
            self._release_in_fork(requester)
            return request
        close_files(request.files)
        self._requesters[process] = requester
        self._selector.register(requester.fileno(), selectors.EVENT_READ)
        with contextlib.suppress(OSError):
            requester.sendall(STARTED)
        return None

    def _release_in_fork(self, requester: socket.socket) -> None:
        """Release the parent's resources, in a fork."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._selector.close()
        for each in (self._listener, requester, *self._requesters.values()):
            each.close()
        close_files([self._woken, self._wake])

    def _report_exits(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while True:
                process, status = os.waitpid(-1, os.WNOHANG)
                if process == 0:
                    return
                code = os.waitstatus_to_exitcode(status)
                requester = self._requesters.pop(process, None)
                if requester is None:
                    # A descendant that a fork left behind.
                    continue
                with contextlib.suppress(KeyError):
                    self._selector.unregister(requester.fileno())
                with contextlib.suppress(OSError):
                    requester.sendall((code if code >= 0 else _KILLED - code).to_bytes(CODE, "big"))
                requester.close()

    def _end(self, process: int, requester: socket.socket) -> None:
        """End the fork of a requester that has gone."""
        self._selector.unregister(requester.fileno())
        os.kill(process, signal.SIGTERM)


def main() -> None:
    listener = socket.socket(fileno=int(sys.argv[1]))
    if sys.platform == "linux":
        # Become the parent of orphaned descendants, to be able to end them.
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    # Spark's own Python processes are children of the JVM, which Ctrl-C does not reach either.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # A fork that needs a module that cannot be imported reports why.
    for name in _LIBRARIES:
        with contextlib.suppress(ImportError):
            import_module(name)
    # Spark's worker collects garbage after each task; without this it visits all library objects.
    gc.freeze()
    request = Parent(listener, sys.stdin.fileno()).serve()
    if request is not None:
        request.run()


def close_files(files: Iterable[int]) -> None:
    for file in files:
        os.close(file)


def _exit_code(run: Callable[[], None]) -> int:
    """Run the function to its end, and report its errors as the interpreter does."""
    try:
        run()
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    except BaseException:  # noqa: BLE001  # the interpreter does the same
        sys.excepthook(*sys.exc_info())
        return 1
    return 0


def _exit(code: int) -> NoReturn:
    """End this process as `multiprocessing` ends its forks: handlers run, but no memory is freed.

    To free the objects of all libraries takes 0.3 s of processor time.
    """
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(code & 0xFF)


if __name__ == "__main__":
    _exit(_exit_code(main))
