"""Worker processes that run clients' queries and check their scripts, and the parent process.

No parser can predict how much time and memory a client's SQL takes, so it runs in a process that
can be killed without harm to the server. `python -m streamhouse.serve.queries.worker` is the
parent, which has all modules loaded. It forks and kills workers on commands of the server, read
from a socket at standard input, and exits when that closes. A worker reads pickled requests from a
socket, each after its length, and writes pickled responses; it exits when the socket closes.

docs/decisions/064-client-sql-runs-in-its-own-process.md says why.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import re
import resource
import signal
import socket
import tempfile
import threading
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO

from streamhouse.errors import StreamhouseError
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.serve.queries.fork_server import FORK, LENGTH, LONG_S, MESSAGE, NUMBER
from streamhouse.serve.queries.read_execution import run_request
from streamhouse.serve.queries.read_request import ReadRequest, ScriptRequest

_SCRIPTS = "streamhouse.graph.script_check"
"""Known by its name only: servers do not load what plans scripts."""
_LIBRARIES = (
    _SCRIPTS,
    "duckdb",
    "pandas",  # pyarrow loads it with the first value that it makes
    "pyarrow.compute",
    "pyarrow.parquet",
    "sqlglot.dialects.duckdb",
    "streamhouse.paimon.read.system_tables",
    "streamhouse.serve.queries.client_select",
    "streamhouse.serve.queries.view_rows",
)
_NICE = 10
_OVERHEAD_BYTES = 512 << 20
"""Memory that a query may take besides the engine's: batches in flight, thread stacks."""


def main() -> None:
    """Fork and kill workers until standard input closes, then kill all."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Libraries that print must not write to the server's standard output.
    os.dup2(2, 1)
    _load()
    control = socket.socket(fileno=os.dup(0))
    forks: set[int] = set()
    while True:
        message, files, _, _ = socket.recv_fds(control, MESSAGE.size, 1)
        if len(message) < MESSAGE.size:
            break
        kind, process = MESSAGE.unpack(message)
        if kind == FORK:
            process = os.fork()
            if process == 0:
                control.close()
                _serve(socket.socket(fileno=files[0]))
                return
            os.close(files[0])
            forks.add(process)
        else:
            _end(forks, process)
        with contextlib.suppress(BrokenPipeError):
            control.sendall(NUMBER.pack(process))
    for process in list(forks):
        _end(forks, process)


def _end(forks: set[int], process: int) -> None:
    # ForkServer are reaped here only, so their pids cannot have been reused.
    if process in forks:
        forks.remove(process)
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)


def _serve(client: socket.socket) -> None:
    """Run requests until the socket closes."""
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    source, out = client.makefile("rb"), client.makefile("wb")
    options, memory, folder = _read(source)
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


def _load() -> None:
    """Import what every request needs; must start no thread, since forks would lack it."""
    for name in _LIBRARIES:
        import_module(name)


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


if __name__ == "__main__":
    main()
