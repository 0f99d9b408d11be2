"""What a query counts of itself while it runs: batches, rows, how fast they come."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

WINDOW_S = 10.0
"""Over how many of the last seconds rows a second are told."""


class Counted(NamedTuple):
    """The figures of a moment; `last_batch_ms` is when the last batch ended (epoch ms)."""

    batches: int = 0
    rows: int = 0
    rows_per_second: float = 0.0
    last_batch_ms: int | None = None
    took_ms: float | None = None


class Figures:
    """The figures of one run of a query; one thread counts, another may read.

    `clock` gives seconds that only grow.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._recent: deque[tuple[float, int]] = deque()
        self._batches = self._rows = 0
        self._last_ms: int | None = None
        self._took_ms: float | None = None
        self._began = clock()

    def begin(self) -> None:
        """From now on rows can come."""
        with self._lock:
            self._began = self._clock()

    def batch(self, rows: int, took_s: float) -> None:
        """A batch of so many rows has been committed, after so many seconds."""
        now = self._clock()
        with self._lock:
            self._batches += 1
            self._rows += rows
            self._last_ms, self._took_ms = time.time_ns() // 1_000_000, took_s * 1000
            self._recent.append((now, rows))
            self._forget(now)

    def read(self) -> Counted:
        """The figures of now; a rate is over `WINDOW_S`, or since the start if that is less."""
        now = self._clock()
        with self._lock:
            self._forget(now)
            over = min(WINDOW_S, max(1.0, now - self._began))
            rate = sum(rows for _, rows in self._recent) / over
            return Counted(self._batches, self._rows, rate, self._last_ms, self._took_ms)

    def _forget(self, now: float) -> None:
        while self._recent and self._recent[0][0] <= now - WINDOW_S:
            self._recent.popleft()
