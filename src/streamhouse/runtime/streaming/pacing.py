"""Waits of queries between two micro-batches, and pauses in a pipeline with many queries.

Queries that read from outside the pipeline set its rhythm: they pause, so that all batches together
use only a part of the processors. Queries that read a table of the pipeline do not pause: their
next batch starts as soon as an upstream query has committed. Then few batches run at a time, each
is short, and a change does not wait at every layer for a batch that began before it.
"""

import enum
import os
import threading
import time
from collections.abc import Callable

_FEW_QUERIES = 4
_POLL_S = 0.01
_WOKEN_POLL_S = 0.05
_BATCHES_PER_PROCESSOR = 0.75
"""How many batches run per processor on average; compaction and Spark's own work need the rest."""
_LONGEST_PAUSE_S = 0.125
"""Longest pause between two batches, in seconds per query of the pipeline."""
_LONGEST_REFRESH_PAUSE_S = 10.0
_FLUSH_S = 1.25
"""Least time between two lineage commits, in seconds per query of the pipeline."""
_NEW_WEIGHT = 0.3
_IDLE_S = 10.0
"""After this time without a batch a query no longer counts as running."""


class Role(enum.Enum):
    """What depends on the next batch of a query."""

    SOURCE = 1
    """It reads from outside the pipeline."""
    DOWNSTREAM = 0
    """It reads a table that another query of the pipeline writes."""
    LOOKUP = 2
    """Its target is only joined by lookup: no stream waits for its changes."""


class Pacing:
    """Decides how long the queries of one driver pause after a batch; thread-safe.

    `queries` is their number. With few queries nothing pauses. `clock` returns monotonic seconds.
    No micro-batch is planned in a pause: rows that arrive are in the next one.
    """

    def __init__(
        self,
        queries: int,
        processors: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._queries = queries
        self._processors = processors or len(os.sched_getaffinity(0))
        self._clock = clock
        self._lock = threading.Lock()
        self._took: dict[str, tuple[float, float]] = {}
        """For each query the smoothed duration of its batches, and when the last one ended."""

    @property
    def flush_s(self) -> float:
        """Least seconds between two lineage commits of a query; each costs as much as a batch."""
        return _FLUSH_S * self._queries

    def poll_s(self, role: Role) -> float:
        """Seconds between two polls of a source that has nothing new.

        Commits of this process wake the queries that read the table.
        """
        few = _POLL_S * max(1.0, self._queries / _FEW_QUERIES)
        return few if role is Role.SOURCE else _WOKEN_POLL_S

    def refresh_pause_s(self, took_s: float) -> float:
        """Seconds that a view pauses after a refresh: it leaves half of the time to the others."""
        return 0.0 if self._queries <= 1 else min(took_s, _LONGEST_REFRESH_PAUSE_S)

    def pause_s(self, query: str, role: Role, took_s: float) -> float:
        """Seconds that a query pauses after a batch of `took_s` seconds."""
        if self._queries <= _FEW_QUERIES:
            return 0.0
        now = self._clock()
        with self._lock:
            smooth, _ = self._took.get(query, (took_s, now))
            self._took[query] = (smooth + _NEW_WEIGHT * (took_s - smooth), now)
            busy_s = sum(took for took, at in self._took.values() if now - at < _IDLE_S)
        interval_s = role.value * busy_s / (_BATCHES_PER_PROCESSOR * self._processors)
        longest_s = role.value * _LONGEST_PAUSE_S * self._queries
        return max(0.0, min(interval_s - took_s, longest_s))
