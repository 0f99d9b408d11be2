"""Metrics of a running query: batches, rows and rows per second, and its commits."""

import os
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Self

from streamhouse.paimon.storage.data_files import NewFiles

WINDOW_S = 10.0
"""The sliding window, in seconds, over which rows per second are computed."""
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
    def of(cls, messages: Mapping[str, Sequence[bytes]], took_ms: float) -> Self | None:
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


@dataclass(frozen=True, kw_only=True)
class QueryCounts:
    """What a query has done since its start, as of one time.

    Times are epoch ms: `last_batch_ms` is when the last batch ended, `last_rows_ms` when the last
    one with rows did; `took_ms` is the duration of the last batch. `bad_records` were left out, see
    the option `bad-records` of a source; `late_rows` came after their windows were closed.
    `changes` are counted by row kind; None if the source does not count them. `commit`: the last
    one with rows. `view_rows`: those of the view that the query keeps, if they are known.
    """

    batches: int = 0
    rows: int = 0
    rows_per_second: float = 0.0
    last_batch_ms: int | None = None
    took_ms: float | None = None
    last_rows_ms: int | None = None
    bad_records: int = 0
    late_rows: int = 0
    changes: Mapping[str, int] | None = None
    commit: Commit | None = None
    view_rows: int | None = None


class QueryMetrics:
    """The metrics of one run of a query; thread-safe.

    `clock` returns monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._recent: deque[tuple[float, int]] = deque()
        self._counts = QueryCounts()
        self._changes: Counter[str] | None = Counter()
        self._began = clock()

    def count_view(self, rows: int) -> None:
        """Note how many rows the query's view has before its first batch."""
        self._counts = replace(self._counts, view_rows=rows)

    def begin(self) -> None:
        """Note the start of the query, for the first rates."""
        with self._lock:
            self._began = self._clock()

    def count_batch(
        self,
        rows: int,
        took_s: float,
        bad: int = 0,
        changes: Mapping[str, int] | None = None,
        commit: Commit | None = None,
        late: int = 0,
    ) -> None:
        """Count a committed batch of `rows` rows and `bad` records that took `took_s` seconds.

        `changes`: rows by row kind, those of a snapshot aside; None: not known, so that all are
        unknown from now on. `commit`: None if it had no rows.
        """
        now = self._clock()
        with self._lock:
            if changes is None or self._changes is None:
                self._changes = None
            else:
                self._changes.update(changes)
            counts, ended = self._counts, time.time_ns() // 1_000_000
            view_rows = counts.view_rows
            if view_rows is not None and changes is not None:
                view_rows += changes.get("+I", 0) - changes.get("-D", 0)
            self._counts = replace(
                counts,
                batches=counts.batches + 1,
                rows=counts.rows + rows,
                last_batch_ms=ended,
                took_ms=round(took_s * 1000, 1),
                last_rows_ms=ended if rows else counts.last_rows_ms,
                bad_records=counts.bad_records + bad,
                late_rows=counts.late_rows + late,
                commit=commit or counts.commit,
                view_rows=view_rows,
            )
            self._recent.append((now, rows))
            self._forget(now)

    def read(self) -> QueryCounts:
        """The current metrics.

        The rate is over the last `WINDOW_S` seconds, or since the start (at least 1 s) if that is
        less.
        """
        now = self._clock()
        with self._lock:
            self._forget(now)
            seconds = min(WINDOW_S, max(1.0, now - self._began))
            rate = sum(rows for _, rows in self._recent) / seconds
            return replace(
                self._counts,
                rows_per_second=round(rate, 1),
                changes=dict(self._changes or {}) or None,
            )

    def _forget(self, now: float) -> None:
        while self._recent and self._recent[0][0] <= now - WINDOW_S:
            self._recent.popleft()


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
