"""Metrics of a running query: batches, rows and rows per second, and its commits."""

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

from streamhouse.paimon.storage.split_files import SplitFrame

WINDOW_S = 10.0
"""The sliding window, in seconds, over which rows per second are computed."""


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
            (table, SplitFrame.added(message)) for table, own in messages.items() for message in own
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


@dataclass(frozen=True)
class CountedBatch:
    """What metrics and waits for compaction need of a committed batch.

    `bad` records were left out, `late` rows came after their windows were closed. `changes`: rows
    by row kind, those of a snapshot aside; None: not known. `commit`: None if it had no rows.
    `files`: at most how many level-0 files it added to a bucket of each table.
    """

    rows: int
    changes: Mapping[str, int] | None = None
    commit: Commit | None = None
    files: Mapping[str, int] = field(default_factory=dict)
    bad: int = 0
    late: int = 0


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

    def count_batch(self, batch: CountedBatch, took_s: float) -> None:
        """Count a committed batch that took `took_s` seconds.

        Once the changes of a batch are not known, all are unknown from then on.
        """
        now, changes = self._clock(), batch.changes
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
                rows=counts.rows + batch.rows,
                last_batch_ms=ended,
                took_ms=round(took_s * 1000, 1),
                last_rows_ms=ended if batch.rows else counts.last_rows_ms,
                bad_records=counts.bad_records + batch.bad,
                late_rows=counts.late_rows + batch.late,
                commit=batch.commit or counts.commit,
                view_rows=view_rows,
            )
            self._recent.append((now, batch.rows))
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
