"""Processes that answer questions with a client's SQL in them, and the parent that forks them.

What a text of a client's can use up in time and memory is not foreseen by any parser: a process of
its own is killed for it, and the server is not. `python -m streamhouse.serve.queries.worker` is the
parent, which has all loaded that they need: it forks and ends them as the server says at its
standard input, a socket, and ends with that. A fork reads pickled questions from a socket, each
after its length, and writes pickled answers; it ends with the socket.
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
from streamhouse.serve.queries.answers import answer
from streamhouse.serve.queries.fork_messages import FORK, LENGTH, LONG_S, MESSAGE, NUMBER

_LIBRARIES = (
    "duckdb",
    "pandas",  # pyarrow loads it with the first value that it makes
    "pyarrow.compute",
    "pyarrow.parquet",
    "sqlglot.dialects.duckdb",
    "streamhouse.paimon.read.system_tables",
    "streamhouse.serve.queries.client_select",
    "streamhouse.serve.queries.view_rows",
    "streamhouse.serve.queries.flink_types",
)
_NICE = 10
_BESIDES = 512 << 20
"""What a query may take besides the engine's memory: rows on their way, thread stacks."""


def main() -> None:
    """Fork and end processes until the standard input ends, then end all."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Whatever prints must not come where others read.
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
    # Only here are forks waited for, so no number is another's by now.
    if process in forks:
        forks.remove(process)
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)


def _serve(client: socket.socket) -> None:
    """Answer until the socket ends."""
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    source, out = client.makefile("rb"), client.makefile("wb")
    options, memory, folder = _read(source)
    os.environ["TMPDIR"] = tempfile.tempdir = folder
    warehouse = Warehouse(options)
    _limit(memory)
    _write(out, None)
    while True:
        question = _read(source)
        if question is None:
            return
        waiting = threading.Timer(LONG_S, _give_way)
        waiting.start()
        try:
            found: object = answer(warehouse, question)
        except StreamhouseError as error:
            found = error
        waiting.cancel()
        _write(out, found)


def _give_way() -> None:
    """Have short queries, and the server, go before one that is long."""
    with contextlib.suppress(OSError):
        for thread in os.listdir("/proc/self/task"):
            os.setpriority(os.PRIO_PROCESS, int(thread), _NICE)


def _load() -> None:
    """Load what every question needs; no thread is started, since none would be in the forks."""
    for name in _LIBRARIES:
        import_module(name)


def _limit(memory: int) -> None:
    """Have the system refuse memory beyond what a query may take."""
    import duckdb

    # What the engine always takes is not the query's.
    duckdb.connect(":memory:").close()
    status = Path("/proc/self/status")
    if not status.exists():
        return
    found = re.search(r"^VmData:\s+(\d+) kB$", status.read_text(), re.MULTILINE)
    if found is None:
        return
    most = (int(found[1]) << 10) + memory + _BESIDES
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if hard == resource.RLIM_INFINITY or most < hard:
        resource.setrlimit(resource.RLIMIT_DATA, (most, hard))


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
