"""How old an order is when the view shows it: measured for every order."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamhouse.errors import TableError
from streamhouse.runtime.lineage import SUFFIX, read_lineage
from streamhouse.runtime.recompute import Batch, Recomputation
from streamhouse.runtime.spec import TableAddress

_POLL_S = 0.005


class SnapshotClock:
    """Notes when each snapshot of a table could first be read, by looking every 5 ms."""

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
        """When the first figure of a query came after a time (epoch s), if one did."""
        with self._lock:
            return next((at for at, user in self._order if at > time_s), None)

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(5)

    def _run(self) -> None:
        last = 0
        while not self._stopped.wait(_POLL_S):
            try:
                table = self._address.open()
            except TableError:
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


class Freshness:
    """Ages of orders at their showing, from the view's lineage and a `SnapshotClock`.

    `time_column` of the source says when a row was made (UTC). Rows that waited for their lookup
    count when they are joined.
    """

    def __init__(self, address: TableAddress, clock: SnapshotClock, time_column: str) -> None:
        self._address = address
        self._clock = clock
        self._column = time_column
        self._definitions: dict[str, str] = {}
        self._done: dict[str, int] = {}
        self._past: dict[str, Recomputation] = {}
        self._made: list[npt.NDArray[np.float64]] = []
        self._ages: list[npt.NDArray[np.float64]] = []

    def update(self) -> int:
        """Take in the batches that the lineage has gained; how many rows they showed."""
        try:
            rows = read_lineage(self._address.beside(SUFFIX))
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

    def figures(self, skip_s: float = 0.0) -> dict[str, float] | None:
        """Milliseconds `p50`, `p99` and `max` over all rows but those made in the first seconds."""
        if not self._ages:
            return None
        made, ages = np.concatenate(self._made), np.concatenate(self._ages)
        ages = ages[made >= made.min() + skip_s * 1000]
        return _figures(ages)

    def recent(self, batches: int = 20) -> dict[str, float] | None:
        """The same over the last batches."""
        return _figures(np.concatenate(self._ages[-batches:])) if self._ages else None

    def _take(self, user: str, batches: list[Batch]) -> int:
        past = self._past.setdefault(user, Recomputation(self._address, self._definitions))
        shown = 0
        for step in past.steps(batches, grouped=False):
            self._done[user] = step.last.number
            shown += step.hits.num_rows
            seen = self._clock.seen_ms(user, step.last.number)
            if seen is not None and step.hits.num_rows:
                times = step.hits.column(self._column).cast(pa.timestamp("ms")).cast(pa.int64())
                made: Any = times.to_numpy()
                self._made.append(made.astype(np.float64))
                self._ages.append(seen - made)
        return shown


def _figures(ages: npt.NDArray[np.float64]) -> dict[str, float] | None:
    if not len(ages):
        return None
    return {
        "p50": round(float(np.percentile(ages, 50)), 1),
        "p99": round(float(np.percentile(ages, 99)), 1),
        "max": round(float(ages.max()), 1),
    }
