"""Worker processes that run clients' queries and check their scripts.

No parser can predict how much time and memory a client's SQL takes, so it runs in a process that
can be killed without harm to the server: a fork of a process that has all modules loaded. A worker
reads pickled requests from a socket, each after its length, and writes pickled responses; it exits
when the socket closes, and with its parent.

docs/decisions/064-client-sql-runs-in-its-own-process.md says why.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pickle
import re
import resource
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO

from streamhouse.errors import StreamhouseError
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.serve.queries.fork_server import LENGTH, LONG_S
from streamhouse.serve.queries.read_execution import run_request
from streamhouse.serve.queries.read_request import ReadRequest, ScriptRequest

_SCRIPTS = "streamhouse.graph.script_check"
"""Known by its name only: servers do not load what plans scripts."""
_NICE = 10
_PR_SET_PDEATHSIG = 1
_OVERHEAD_BYTES = 512 << 20
"""Memory that a query may take besides the engine's: batches in flight, thread stacks."""


def serve(client: socket.socket, options: Mapping[str, str], memory: int, folder: str) -> None:
    """Run requests until the socket closes.

    `options` are those of the warehouse's catalog, `memory` the bytes that a query may take, and
    `folder` is that of temporary files. The first response tells that it is ready.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    # Libraries that print must not write to the server's standard output.
    os.dup2(2, 1)
    source, out = client.makefile("rb"), client.makefile("wb")
    os.environ["TMPDIR"] = tempfile.tempdir = folder
    warehouse = Warehouse(options)
    _limit(memory)
    _write(out, None)
    while True:
        request = _read(source)
        if request is None:
            return
        timer = threading.Timer(LONG_S, _lower_priority)
        timer.start()
        try:
            reply = _answer(warehouse, request)
        except StreamhouseError as error:
            reply = error
        timer.cancel()
        _write(out, reply)


def _answer(warehouse: Warehouse, request: ReadRequest | ScriptRequest) -> object:
    if isinstance(request, ScriptRequest):
        return import_module(_SCRIPTS).check_alone(request.values)
    return run_request(warehouse, request)


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


def _read(source: BinaryIO) -> Any:
    head = source.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    return pickle.loads(source.read(LENGTH.unpack(head)[0]))


def _write(out: BinaryIO, value: object) -> None:
    text = pickle.dumps(value)
    out.write(LENGTH.pack(len(text)) + text)
    out.flush()
