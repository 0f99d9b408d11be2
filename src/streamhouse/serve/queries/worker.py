"""Worker processes that run clients' queries and check their scripts.

No parser can predict how much time and memory a client's SQL takes, so it runs in a process that
can be killed without harm to the server. Starting a fresh process takes more than a second of CPU
time, so each is a fork of a process that has all modules loaded. That is the one of
`multiprocessing`: it starts on first use, again after it died, and exits when this process ends,
also if this is killed. A worker reads requests from a pipe and writes responses to it; it exits
when the pipe is closed, and with its parent.

docs/decisions/064-what-clients-of-the-server-may-do.md says why.
"""

import contextlib
import ctypes
import multiprocessing
import os
import re
import resource
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Mapping
from importlib import import_module
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import ModuleType

from streamhouse.errors import (
    LimitError,
    NoSpaceError,
    SqlError,
    StreamhouseError,
    is_full,
    is_panic,
)
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.serve.queries import client_select, view_rows
from streamhouse.serve.queries.output import ReadRequest, ReadResult, RowsRequest, SelectRequest

# How file readers report that the system refused to allocate memory.
_NO_MEMORY = re.compile(r"not enough memory|allocation (?:error|failed)|malloc|bad_alloc", re.I)


LONG_S = 1.0
"""A query that runs longer gets a lower priority, and its process is not reused."""
PRELOADED = [
    "duckdb",
    "pandas",  # pyarrow loads it with the first value that it makes
    "pyarrow.compute",
    "pyarrow.parquet",
    "sqlglot.dialects.duckdb",
    "streamhouse.graph.script_check",
    "streamhouse.paimon.read.system_tables",
    "streamhouse.serve.queries.worker",
]
"""What the parent of the forks imports; must start no thread, since forks would lack it."""
_CONTEXT = multiprocessing.get_context("forkserver")
_TOKEN = "STREAMHOUSE_TOKEN"
_start_lock = threading.Lock()
_SCRIPTS = "streamhouse.graph.script_check"
"""Known by its name only: servers do not load what plans scripts."""
_NICE = 10
_PR_SET_PDEATHSIG = 1
_OVERHEAD_BYTES = 512 << 20
"""Memory that a query may take besides the engine's: batches in flight, thread stacks."""


class UnexpectedError(StreamhouseError):
    """An unexpected error; `trace` is its traceback without the message, which may hold values."""

    def __init__(self, message: str, trace: str = "") -> None:
        super().__init__(message)
        self.trace = trace


def run_request(warehouse: Warehouse, request: ReadRequest) -> ReadResult:
    """Run a request and write its rows to the target's file; on failure the file is deleted.

    Raises errors of `streamhouse.errors` only. An unexpected exception becomes an
    `UnexpectedError`; for a request with a client's SQL text its message blames the query, else the
    server.
    """
    try:
        if isinstance(request, RowsRequest):
            return view_rows.read_rows(warehouse, request)
        return client_select.run_select(warehouse, request)
    except BaseException as error:
        request.target.delete()
        if not isinstance(error, Exception) and not is_panic(error):
            raise
        raise _intended(error, request) from None


def _intended(error: BaseException, request: ReadRequest) -> StreamhouseError:
    """The error of `streamhouse.errors` for an exception."""
    out_of_memory = not request.trusted and _NO_MEMORY.search(str(error))
    match error:
        case StreamhouseError() if not out_of_memory:
            return error
        case StreamhouseError() | MemoryError():
            return LimitError.of_memory(request.limits.memory)
        case RecursionError():
            return SqlError("the query is nested too deeply; reduce the levels of nesting")
    if is_full(error):
        return NoSpaceError()
    trace = "".join(traceback.format_tb(error.__traceback__)) + type(error).__name__
    message = "the query cannot be run; simplify it"
    if request.trusted:
        message = "internal server error; the server's log has the details"
    return UnexpectedError(message, trace)


def fork(target: Callable[..., None], *arguments: object) -> BaseProcess:
    """A process that calls the function; blocks for a second when the parent has to start."""
    with _start_lock:
        token, safe_path = os.environ.pop(_TOKEN, None), os.environ.get("PYTHONSAFEPATH")
        # The parent must not import modules of the folder in which the server was started.
        os.environ["PYTHONSAFEPATH"] = "1"
        try:
            _CONTEXT.set_forkserver_preload(PRELOADED)
            forkserver.ensure_running()
        finally:
            for name, value in ((_TOKEN, token), ("PYTHONSAFEPATH", safe_path)):
                os.environ.pop(name, None)
                if value is not None:
                    os.environ[name] = value
        # Workers need nothing of the program that started the server, which they would import.
        main, sys.modules["__main__"] = sys.modules["__main__"], ModuleType("__main__")
        try:
            process = _CONTEXT.Process(target=target, args=arguments, daemon=True)
            process.start()
        finally:
            sys.modules["__main__"] = main
    return process


def serve(client: Connection, options: Mapping[str, str], memory: int, folder: str) -> None:
    """Run requests until the pipe is closed.

    `options` are those of the warehouse's catalog, `memory` the bytes that a query may take, and
    `folder` is that of temporary files. The first response tells that it is ready.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    # Libraries that print must not write to the server's standard output.
    os.dup2(2, 1)
    os.environ["TMPDIR"] = tempfile.tempdir = folder
    warehouse = Warehouse(options)
    _limit(memory)
    client.send(None)
    while True:
        try:
            request = client.recv()
        except EOFError:
            return
        timer = threading.Timer(LONG_S, _lower_priority)
        timer.start()
        try:
            if isinstance(request, RowsRequest | SelectRequest):
                reply: object = run_request(warehouse, request)
            else:
                reply = import_module(_SCRIPTS).check_alone(request)
        except StreamhouseError as error:
            reply = error
        timer.cancel()
        client.send(reply)


def _lower_priority() -> None:
    """Lower the priority of all threads: short queries and the server go first."""
    with contextlib.suppress(OSError):
        for thread in os.listdir("/proc/self/task"):
            os.setpriority(os.PRIO_PROCESS, int(thread), _NICE)


def _limit(memory: int) -> None:
    """Set the system's limit on data memory (RLIMIT_DATA) to what a query may take."""
    import duckdb

    # Let the engine allocate its base memory first, so that it does not count.
    duckdb.connect(":memory:").close()
    status = Path("/proc/self/status")
    if not status.exists():
        return
    data_size = re.search(r"^VmData:\s+(\d+) kB$", status.read_text(), re.MULTILINE)
    if data_size is None:
        return
    limit = (int(data_size[1]) << 10) + memory + _OVERHEAD_BYTES
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if hard == resource.RLIM_INFINITY or limit < hard:
        resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))
