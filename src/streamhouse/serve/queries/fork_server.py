"""Forks worker processes for clients' queries from a process that has all modules loaded.

Starting a fresh process takes more than a second of CPU time, and each query that is killed costs
a process. The parent of the forks is that of `multiprocessing`: it starts on first use, again after
it died, and exits when this process ends, also if this is killed.
"""

from __future__ import annotations

import multiprocessing
import os
import struct
import sys
import threading
from collections.abc import Callable
from multiprocessing import forkserver
from multiprocessing.process import BaseProcess
from types import ModuleType

LENGTH = struct.Struct("!Q")
"""Length prefix of the messages between the server and a worker."""
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
    "streamhouse.serve.queries.client_select",
    "streamhouse.serve.queries.view_rows",
    "streamhouse.serve.queries.worker",
]
"""What the parent of the forks imports; must start no thread, since forks would lack it."""
_CONTEXT = multiprocessing.get_context("forkserver")
_TOKEN = "STREAMHOUSE_TOKEN"
_start_lock = threading.Lock()


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
