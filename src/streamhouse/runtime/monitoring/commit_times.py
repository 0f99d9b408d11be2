"""Measures commits, for metrics and for benchmarks: those set a variable that names a file."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from streamhouse.paimon.storage.data_files import NewFiles

VARIABLE = "STREAMHOUSE_COMMIT_TIMES"
"""Names a file to which each commit of a batch appends a line: its end (epoch ms), the table, and
its duration (ms) including the wait for the table's commit lock."""


@dataclass(frozen=True)
class Commit:
    """What a commit took and added: data files, rows in them, partitions and buckets with files."""

    took_ms: float
    files: int
    rows: int
    partitions: int
    buckets: int

    @classmethod
    def of(cls, messages: Mapping[str, Sequence[bytes]], took_ms: float) -> Commit | None:
        """A commit of these messages of tables; None if there are none."""
        added = [
            (table, NewFiles.parse(message)) for table, own in messages.items() for message in own
        ]
        if not added:
            return None
        files = [file for _, message in added for file in message.files]
        return cls(
            round(took_ms, 1),
            len(files),
            sum(file.rows for file in files),
            len({(table, message.partition) for table, message in added}),
            len({(table, *message.bucket_id) for table, message in added}),
        )


@contextmanager
def timed(table: str, took_ms: list[float] | None = None) -> Iterator[None]:
    """Measure a commit to a table; its duration is appended to `took_ms`."""
    path = os.environ.get(VARIABLE)
    started = time.monotonic()
    yield
    took = (time.monotonic() - started) * 1000
    if took_ms is not None:
        took_ms.append(took)
    if path:
        with open(path, "a", encoding="utf-8") as file:
            file.write(f"{time.time() * 1000:.0f} {table} {took:.1f}\n")
