"""How long commits take, for who measures: lines in a file that the environment names."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

VARIABLE = "STREAMHOUSE_COMMIT_TIMES"
"""A file to which each commit of a batch adds a line: its end (epoch ms), the table, and how long
it took (ms), its wait for the table's lock included."""


@contextmanager
def timed(table: str) -> Iterator[None]:
    """Measure a commit to a table, if somebody asked for it."""
    path = os.environ.get(VARIABLE)
    started = time.monotonic()
    yield
    if path:
        took = (time.monotonic() - started) * 1000
        with open(path, "a", encoding="utf-8") as file:
            file.write(f"{time.time() * 1000:.0f} {table} {took:.1f}\n")
