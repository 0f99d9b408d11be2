"""A process that answers questions with a client's SQL in it: `python -m streamhouse.serve.worker`.

What a text of a client's can use up in time and memory is not foreseen by any parser: a process of
its own is killed for it, and the server is not. It reads pickled questions from its standard input,
each after its length, and writes pickled answers to its standard output; it ends with its input.
"""

from __future__ import annotations

import os
import pickle
import re
import resource
import signal
import struct
import sys
from pathlib import Path
from typing import Any, BinaryIO

from streamhouse.errors import StreamhouseError
from streamhouse.paimon.catalog import Warehouse
from streamhouse.serve.answers import answer

LENGTH = struct.Struct("!Q")
_BESIDES = 512 << 20
"""What a query may take besides the engine's memory: rows on their way, thread stacks."""


def main() -> None:
    """Answer until the standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    source = sys.stdin.buffer
    # Whatever prints must not come between the answers.
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    options, memory = _read(source)
    warehouse = Warehouse(options)
    _load()
    _limit(memory)
    _write(out, None)
    while True:
        question = _read(source)
        if question is None:
            return
        try:
            _write(out, answer(warehouse, question))
        except StreamhouseError as error:
            _write(out, error)


def _load() -> None:
    """Load now what every question needs, before memory is counted."""
    import duckdb
    import pyarrow.parquet

    from streamhouse.serve import ask, rows

    assert ask and rows and pyarrow.parquet
    duckdb.connect(":memory:").close()


def _limit(memory: int) -> None:
    """Have the system refuse memory beyond what a query may take."""
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
