"""The process from which Spark's Python workers are forked, with their libraries imported.

Spark starts them with the first tasks. This process imports the libraries before, while Spark's JVM
starts, which takes a second of processor time. `python -m
streamhouse.runtime.spark.worker_parent LISTENER` serves `worker_request` at an inherited socket,
until its standard input ends, which it does however the driver ends.
"""

import atexit
import contextlib
import ctypes
import fcntl
import gc
import io
import marshal
import os
import runpy
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from importlib import import_module
from typing import NoReturn

from streamhouse.runtime.spark.worker_request import CODE, LENGTH, PARENT, STARTED

TASK_LIBRARIES = (
    "duckdb",
    "pyarrow",
    "pypaimon_rust.datafusion",
    "pyspark.worker",
    "streamhouse.runtime.streaming.tasks.task",
    # PyArrow imports pandas in each process that makes an array of Python values.
    "pandas",
    # What tasks import for their first rows.
    "pyarrow.pandas_compat",
    "sqlglot.dialects.duckdb",
    "streamhouse.connectors.paimon.connector",
)
"""The libraries of tasks, which the parents of Python workers import before they fork."""
_LIBRARIES = (
    *TASK_LIBRARIES,
    "pyspark.daemon",
    "streamhouse.runtime.streaming.spark_job",
    # The connectors that take long to import.
    "streamhouse.connectors.kafka.connector",
    "streamhouse.connectors.mysql_cdc.connector",
)
"""Without the modules that forks run as `__main__`: Python warns if those are imported already."""
_STANDARD_FILES = 3
_REQUEST_S = 10.0
_PR_SET_CHILD_SUBREAPER = 36


def serve(listener: socket.socket) -> socket.socket | None:
    """Fork for each request until the driver has ended; in a fork, return the requester."""
    # Neither forks nor what they leave behind become zombies.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        ready, _, _ = select.select([sys.stdin, listener], [], [])
        if sys.stdin in ready:
            return None
        requester, _ = listener.accept()
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            listener.close()
            return requester
        requester.close()


def run_request(requester: socket.socket) -> None:
    """Run a module as `python -m` does, in the requester's environment and folder, with its stdio.

    SIGTERM ends this process when the requester has ended.
    """
    requester.settimeout(_REQUEST_S)
    head, files, _, _ = socket.recv_fds(requester, LENGTH, _STANDARD_FILES)
    with requester.makefile("rb") as body:
        arguments, environment, folder = marshal.loads(body.read(int.from_bytes(head)))
    fcntl.fcntl(requester, fcntl.F_SETSIG, signal.SIGTERM)
    fcntl.fcntl(requester, fcntl.F_SETOWN, os.getpid())
    flags = fcntl.fcntl(requester, fcntl.F_GETFL)
    fcntl.fcntl(requester, fcntl.F_SETFL, flags | os.O_ASYNC)
    requester.sendall(STARTED)
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.environb.clear()
    os.environb.update(environment)
    # Processes that the fork starts must not request forks.
    os.environ.pop(PARENT, None)
    time.tzset()
    os.chdir(folder)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)
    sys.argv = arguments
    runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)


def main() -> NoReturn:
    listener = socket.socket(fileno=int(sys.argv[1]))
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
    requester = serve(listener)
    if requester is None:
        _exit(0)
    code = _exit_code(lambda: run_request(requester)) & 0xFF
    _exit(code, lambda: requester.sendall(code.to_bytes(CODE, "big")))


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


def _exit(code: int, report: Callable[[], None] = lambda: None) -> NoReturn:
    """End this process as `multiprocessing` ends its forks: handlers run, but no memory is freed.

    To free the objects of all libraries takes 0.3 s of processor time.
    """
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    with contextlib.suppress(OSError):
        report()
    os._exit(code)


if __name__ == "__main__":
    main()
