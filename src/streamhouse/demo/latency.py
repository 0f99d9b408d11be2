"""Measures latency: when snapshots could be read, and percentiles of ages."""

import contextlib
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from streamhouse.background import RepeatedStep
from streamhouse.errors import StreamhouseError, TableError
from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.paimon.read.table import Table

_POLL_S = 0.005
_ABSENT_POLL_S = 0.1
"""For a table that does not exist: opening it lists all names of the catalog, which is slow."""


Committed: TypeAlias = Callable[[Table, int, float], None]
"""Called with a table, a new snapshot of it, and when this could be read (epoch seconds)."""


class SnapshotClock(RepeatedStep):
    """Records when each snapshot of a table could first be read, by polling every 5 ms.

    `committed` is called for the newest snapshot of each poll, in a thread of the clock.
    """

    def __init__(self, address: TableAddress, committed: Committed) -> None:
        self._address = address
        self._committed = committed
        self._lock = threading.Lock()
        self._seen: dict[tuple[str, int], float] = {}
        """When each commit could be read (epoch seconds), in their order."""
        super().__init__(self._polls().__next__, "snapshot-clock", _POLL_S)

    def seen_ms(self, user: str, identifier: int) -> float | None:
        """When the commit could be read (epoch ms); None if it was not seen."""
        with self._lock:
            seen_s = self._seen.get((user, identifier))
        return None if seen_s is None else seen_s * 1000

    def first_after(self, time_s: float) -> float | None:
        """When the first commit after a time could be read (both epoch seconds); None if none."""
        with self._lock:
            return next((at for at in self._seen.values() if at > time_s), None)

    def _polls(self) -> Iterator[float]:
        """Poll again and again; yields the pauses between the polls (s)."""
        last = 0
        while True:
            try:
                table = self._address.open()
            except TableError:
                yield _ABSENT_POLL_S
                continue
            latest = table.latest_snapshot_id() or 0
            now = time.time()
            for number in range(last + 1, latest + 1):
                snapshot = table.snapshots.find(number)
                if snapshot is not None and snapshot.commit_kind == "APPEND":
                    with self._lock:
                        self._seen[snapshot.commit_user, snapshot.commit_identifier] = now
            if latest > last:
                # An expired snapshot, or a failing store: the next snapshot shows the same rows.
                with contextlib.suppress(StreamhouseError):
                    self._committed(table, latest, now)
            last = max(last, latest)
            yield _POLL_S


class Latencies:
    """The ages of rows when they could be read; thread-safe.

    Rows made in the first `skip_s` seconds after the first one count as recent only. `portions`:
    how many of the last calls of `add` count as recent.
    """

    def __init__(self, skip_s: float, portions: int) -> None:
        self._skip_ms = skip_s * 1000
        self._first_made = self._end_ms = math.inf
        self._all: list[npt.NDArray[np.float32]] = []
        self._window: list[npt.NDArray[np.float32]] = []
        self._recent: deque[npt.NDArray[np.float32]] = deque(maxlen=portions)
        self._lock = threading.Lock()

    def add(self, made_ms: npt.NDArray[np.float64], seen_ms: float) -> None:
        """Add rows by the times at which they were made, and when they could be read."""
        with self._lock:
            if seen_ms > self._end_ms:
                return
            self._first_made = min(self._first_made, float(made_ms.min()))
            ages = np.maximum(seen_ms - made_ms, 0).astype(np.float32)
            self._recent.append(ages)
            counted = ages[made_ms >= self._first_made + self._skip_ms]
            self._all.append(counted)
            self._window.append(counted)

    def end(self) -> None:
        """Ignore what can be read from now on: the pipeline is about to be stopped."""
        self._end_ms = time.time() * 1000

    def percentiles(self) -> dict[str, float] | None:
        """Milliseconds `p50`, `p99` and `max` over all rows that count; None if there are none."""
        with self._lock:
            return _percentiles(self._all)

    def recent(self) -> dict[str, float] | None:
        """The same over the last rows."""
        with self._lock:
            return _percentiles(self._recent)

    def window(self) -> dict[str, float] | None:
        """The same over the rows since the last call."""
        with self._lock:
            window, self._window = self._window, []
        return _percentiles(window)


def _percentiles(portions: Iterable[npt.NDArray[np.float32]]) -> dict[str, float] | None:
    ages = np.concatenate([np.empty(0, np.float32), *portions])
    if not len(ages):
        return None
    p50, p99 = np.percentile(ages, [50, 99])
    return {
        name: float(round(age)) for name, age in (("p50", p50), ("p99", p99), ("max", ages.max()))
    }


def ages_text(ages: dict[str, float] | None) -> str:
    """The percentiles of ages for people."""
    if ages is None:
        return "no result yet"
    return f"p50 {ages['p50']:,.0f} ms, p99 {ages['p99']:,.0f} ms"
