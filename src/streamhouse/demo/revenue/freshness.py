"""Measures for every order how old it is when the view shows it."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamhouse.errors import TableError
from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.runtime.audit.recompute import Batch, Recomputation
from streamhouse.runtime.state.lineage import SUFFIX, LineageFeed

_POLL_S = 0.005
_ABSENT_POLL_S = 0.1
"""For a table that does not exist: opening it lists all names of the catalog, which is slow."""
_RECENT_BATCHES = 20
"""How many of the last batches `recent` includes."""


class SnapshotClock:
    """Records when each snapshot of a table could first be read, by polling every 5 ms."""

    def __init__(self, address: TableAddress) -> None:
        self._address = address
        self._lock = threading.Lock()
        self._seen: dict[tuple[str, int], float] = {}
        self._order: list[tuple[float, str]] = []
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="snapshot-clock", daemon=True)
        self._thread.start()

    def seen_ms(self, user: str, identifier: int) -> float | None:
        """When the commit could be read (epoch ms); None if it was not seen."""
        with self._lock:
            return self._seen.get((user, identifier))

    def first_after(self, time_s: float) -> float | None:
        """When the first commit after a time could be read (both epoch seconds); None if none."""
        with self._lock:
            return next((at for at, user in self._order if at > time_s), None)

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(5)

    def _run(self) -> None:
        last = 0
        pause = _POLL_S
        while not self._stopped.wait(pause):
            pause = _POLL_S
            try:
                table = self._address.open()
            except TableError:
                pause = _ABSENT_POLL_S
                continue
            latest = table.latest_snapshot_id() or 0
            now = time.time()
            for number in range(last + 1, latest + 1):
                snapshot = table.snapshots.find(number)
                if snapshot is not None and snapshot.commit_kind == "APPEND":
                    with self._lock:
                        key = (snapshot.commit_user, snapshot.commit_identifier)
                        self._seen[key] = now * 1000
                        self._order.append((now, snapshot.commit_user))
            last = max(last, latest)


class Ages:
    """A histogram of ages in whole milliseconds; its size does not depend on their number."""

    def __init__(self) -> None:
        self._counts = np.zeros(1, np.int64)

    def add(self, ages_ms: npt.NDArray[np.float64]) -> None:
        """Add ages; negative ones count as 0."""
        if not len(ages_ms):
            return
        more = np.bincount(np.maximum(ages_ms, 0).round().astype(np.int64))
        size = max(len(more), len(self._counts))
        counts = np.zeros(size, np.int64)
        counts[: len(self._counts)] = self._counts
        counts[: len(more)] += more
        self._counts = counts

    def percentiles(self) -> dict[str, float] | None:
        """Milliseconds `p50`, `p99` and `max`; None without any age."""
        total = self._counts.sum()
        if not total:
            return None
        below = np.cumsum(self._counts)
        p50, p99 = (float(np.searchsorted(below, total * share)) for share in (0.5, 0.99))
        return {"p50": p50, "p99": p99, "max": float(np.flatnonzero(self._counts)[-1])}


class Freshness:
    """The ages of orders when the view shows them, from its lineage and a `SnapshotClock`.

    `time_column` of the source is the time at which a row was made (UTC). Rows that waited for
    their lookup count when they are joined; rows made in the first `skip_s` seconds do not count.
    """

    def __init__(
        self, address: TableAddress, clock: SnapshotClock, time_column: str, skip_s: float = 0.0
    ) -> None:
        self._address = address
        self._clock = clock
        self._column = time_column
        self._skip_ms = skip_s * 1000
        self._lineage = LineageFeed(address.side_table(SUFFIX))
        self._definitions: dict[str, str] = {}
        self._done: dict[str, int] = {}
        self._past: dict[str, Recomputation] = {}
        self.rows = 0
        """How many rows the view includes according to its lineage; each has been recomputed."""
        self._first_made = math.inf
        self._end_ms = math.inf
        self._all = Ages()
        self._recent: deque[npt.NDArray[np.float64]] = deque(maxlen=_RECENT_BATCHES)
        self._window = Ages()

    def update(self) -> int:
        """Add the lineage's new batches; returns how many rows they brought into the view."""
        try:
            rows = self._lineage.fresh()
        except TableError:
            return 0
        self._definitions.update(
            {r["fingerprint"]: r["definition"] for r in rows if r["definition"]}
        )
        fresh: dict[str, list[Batch]] = {}
        for row in rows:
            if row["batch_id"] > self._done.get(row["query_id"], -1):
                fresh.setdefault(row["query_id"], []).append(Batch.of(row))
        return sum(self._take(user, batches) for user, batches in fresh.items())

    def end(self) -> None:
        """Ignore what the view shows from now on: the pipeline is about to be stopped."""
        self._end_ms = time.time() * 1000

    def percentiles(self) -> dict[str, float] | None:
        """Milliseconds `p50`, `p99`, `max` over all rows after `skip_s` seconds; None if none."""
        return self._all.percentiles()

    def recent(self) -> dict[str, float] | None:
        """The same over the last batches."""
        ages = Ages()
        for batch_ages in self._recent:
            ages.add(batch_ages)
        return ages.percentiles()

    def window(self) -> dict[str, float] | None:
        """The same over the rows since the last call."""
        window, self._window = self._window, Ages()
        return window.percentiles()

    def _take(self, user: str, batches: list[Batch]) -> int:
        past = self._past.setdefault(user, Recomputation(self._address, self._definitions))
        displayed = 0
        for step in past.steps(batches, grouped=False):
            self._done[user] = step.last.number
            displayed += step.hits.num_rows
            self.rows += step.hits.num_rows
            seen = self._clock.seen_ms(user, step.last.number)
            if seen is not None and step.hits.num_rows:
                times = step.hits.column(self._column).cast(pa.timestamp("ms")).cast(pa.int64())
                made: Any = times.to_numpy()
                self._count(made.astype(np.float64), seen)
        return displayed

    def _count(self, made: npt.NDArray[np.float64], seen_ms: float) -> None:
        self._first_made = min(self._first_made, float(made.min()))
        if seen_ms > self._end_ms:
            return
        ages = seen_ms - made
        self._recent.append(ages)
        counted = ages[made >= self._first_made + self._skip_ms]
        self._all.add(counted)
        self._window.add(counted)
