"""Records commit durations in a file that an environment variable names, for benchmarks."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

VARIABLE = "STREAMHOUSE_COMMIT_TIMES"
"""Names a file to which each commit of a batch appends a line: its end (epoch ms), the table, and
its duration (ms) including the wait for the table's commit lock."""


@contextmanager
def timed(table: str) -> Iterator[None]:
    """Measure a commit to a table, if `VARIABLE` is set."""
    path = os.environ.get(VARIABLE)
    started = time.monotonic()
    yield
    if path:
        took = (time.monotonic() - started) * 1000
        with open(path, "a", encoding="utf-8") as file:
            file.write(f"{time.time() * 1000:.0f} {table} {took:.1f}\n")
