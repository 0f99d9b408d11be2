"""Keeps the snapshots that a view reads, and those in which it finds its commits, from expiring.

They are those from the last batch in Spark's commit log on, since a batch that was interrupted runs
again: it must find its commit, and, without kept rows, needs all rows from before it.
"""

from __future__ import annotations

import contextlib
import threading
import time

from streamhouse.paimon.changelog.consumers import Consumers, query_consumer
from streamhouse.runtime.query_description import QueryProgress
from streamhouse.runtime.state.checkpoint import Checkpoint
from streamhouse.runtime.state.retention_holds import EVERY_S, first_position
from streamhouse.runtime.views.spec import ViewSpec
from streamhouse.source import Offset


class ViewHolds:
    """The consumers of one view at its inputs and its table; driver only, thread-safe."""

    def __init__(self, spec: ViewSpec, checkpoint: Checkpoint, progress: QueryProgress) -> None:
        self._spec, self._checkpoint, self._progress = spec, checkpoint, progress
        self._id = query_consumer(spec.query_id)
        self._lock = threading.Lock()
        self._held_at = float("-inf")
        self._kept: Offset | None = None
        self._before = 1

    def keep(self, offset: Offset | None) -> None:
        """Keep the snapshots of an earlier refresh, too, as a build reads them; None: no more."""
        self._kept = offset

    def prepare(self) -> None:
        """Create the consumers, before the query starts.

        Raises the `DataLossError` of `first_position` for a table without a key.
        """
        spec, target = self._spec, self._spec.target.open()
        replayed = self._progress.replayed
        if spec.plan.keyless and Consumers(target).get(self._id) is None:
            first_position(target, spec.query_id, self._checkpoint, replayed)
        self.tick()

    def batch_begins(self) -> None:
        """Note the newest snapshot of a table without a key before a batch's commit."""
        if self._spec.plan.keyless and self._progress.replayed:
            self._before = self._spec.target.follow().latest_snapshot_id() or 1

    def tick(self) -> bool:
        """Refresh the consumers, and move them forward, if that is due; returns whether it was."""
        if time.monotonic() - self._held_at < EVERY_S:
            return False
        with self._lock:
            self._held_at = time.monotonic()
            target, logs = self._spec.target.follow(), self._checkpoint.logs
            newest = target.latest_snapshot_id() or 1
            vector = (self._kept or logs.last_offset()).get("vector", {})
            for key, address in self._spec.tables.items():
                snapshot = int(vector.get(key, {}).get("snapshot", 1))
                # A table that cannot be written is read without a consumer.
                with contextlib.suppress(OSError):
                    self._hold(Consumers(address.follow()), snapshot)
            done = logs.last_logged() <= logs.last_committed()
            keeps = self._spec.plan.keyless and not done
            self._hold(Consumers(target), self._before if keeps else newest)
        return True

    def _hold(self, consumers: Consumers, snapshot: int) -> None:
        consumers.hold(self._id, snapshot, self._checkpoint.path)
