"""Waits and pauses of a query between two micro-batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from streamhouse.paimon.maintenance.backpressure import Backpressure
from streamhouse.runtime.streaming.pacing import Pacing, Role


@dataclass(frozen=True)
class Throttle:
    """Waits for compaction that is behind (`pressure`), and pauses as `pacing` decides.

    No micro-batch is planned meanwhile: rows that arrive are in the next one, and no planned one
    becomes stale. Without `pressure` or `pacing` a query does not wait for that.
    """

    pressure: Backpressure | None = None
    pacing: Pacing | None = None
    role: Role = Role.SOURCE

    @property
    def flush_s(self) -> float:
        """Least seconds between two lineage commits of a query."""
        return 0.0 if self.pacing is None else self.pacing.flush_s

    def wait_for_compaction(self, files: Mapping[str, int], stopped: Callable[[], bool]) -> None:
        """Wait while a table has too many level-0 files, or until `stopped()`.

        `files`: at most how many files the last batch added to a bucket of each table.
        """
        if self.pressure is None:
            return
        for table, count in files.items():
            self.pressure.added(table, count)
        for table in files:
            self.pressure.wait(table, stopped)

    def refresh_pause_s(self, took_s: float) -> float:
        """Seconds that a view pauses after a refresh of `took_s` seconds."""
        return 0.0 if self.pacing is None else self.pacing.refresh_pause_s(took_s)

    def pause_s(self, query: str, took_s: float) -> float:
        """Seconds that the query pauses after a batch of `took_s` seconds."""
        return 0.0 if self.pacing is None else self.pacing.pause_s(query, self.role, took_s)
