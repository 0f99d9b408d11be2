"""Measures for every order how old it is when the view shows it."""

from __future__ import annotations

import math
import time
from collections import deque
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamhouse.demo.latency import AgeHistogram, SnapshotClock
from streamhouse.errors import TableError
from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.runtime.audit.recompute import Batch, Recomputation
from streamhouse.runtime.state.lineage import SUFFIX, LineageFeed

_RECENT_BATCHES = 20
"""How many of the last batches `recent` includes."""


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
        self._lineage = LineageFeed(address.auxiliary_table(SUFFIX))
        self._definitions: dict[str, str] = {}
        self._done: dict[str, int] = {}
        self._past: dict[str, Recomputation] = {}
        self.rows = 0
        """How many rows the view includes according to its lineage; each has been recomputed."""
        self._first_made = math.inf
        self._end_ms = math.inf
        self._all = AgeHistogram()
        self._recent: deque[npt.NDArray[np.float64]] = deque(maxlen=_RECENT_BATCHES)
        self._window = AgeHistogram()

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
        """The same over the last batches, also those of the first `skip_s` seconds."""
        ages = AgeHistogram()
        for batch_ages in self._recent:
            ages.add(batch_ages)
        return ages.percentiles()

    def window(self) -> dict[str, float] | None:
        """The same over the rows since the last call."""
        window, self._window = self._window, AgeHistogram()
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
