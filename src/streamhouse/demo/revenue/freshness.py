"""Measures for every order how old it is when the view shows it."""

from __future__ import annotations

import math
import time

import numpy as np
import pyarrow as pa

from streamhouse.demo.latency import Latencies, SnapshotClock
from streamhouse.errors import TableError
from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.runtime.audit.recompute import Batch, Recomputation
from streamhouse.runtime.state.lineage import SUFFIX, LineageFeed

_RECENT_BATCHES = 20
_TIME = "order_time"
"""The column with the time at which an order was made (UTC)."""


class Freshness:
    """The ages of orders when the view shows them, from its lineage and a `SnapshotClock`.

    Orders that waited for their lookup count when they are joined; `skip_s`: see `Latencies`.
    """

    def __init__(self, address: TableAddress, clock: SnapshotClock, skip_s: float) -> None:
        self._address = address
        self._clock = clock
        self._lineage = LineageFeed(address.auxiliary_table(SUFFIX))
        self._definitions: dict[str, str] = {}
        self._done: dict[str, int] = {}
        self._past: dict[str, Recomputation] = {}
        self.rows = 0
        """How many rows the view includes according to its lineage; each has been recomputed."""
        self._end_ms = math.inf
        self.ages = Latencies(skip_s, _RECENT_BATCHES)

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

    def _take(self, user: str, batches: list[Batch]) -> int:
        past = self._past.setdefault(user, Recomputation(self._address, self._definitions))
        displayed = 0
        for step in past.steps(batches, grouped=False):
            self._done[user] = step.last.number
            displayed += step.hits.num_rows
            self.rows += step.hits.num_rows
            seen = self._clock.seen_ms(user, step.last.number)
            if seen is not None and seen <= self._end_ms and step.hits.num_rows:
                times = step.hits.column(_TIME).cast(pa.timestamp("ms")).cast(pa.int64())
                self.ages.add(times.to_numpy().astype(np.float64), seen)
        return displayed
