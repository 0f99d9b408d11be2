"""Keeps the snapshots that a view reads, and those in which it finds its commits, from expiring."""

from __future__ import annotations

import contextlib
import threading
import time

from streamhouse.paimon.changelog.consumers import Consumers, query_consumer
from streamhouse.runtime.state.checkpoint import Checkpoint
from streamhouse.runtime.state.retention_holds import EVERY_S
from streamhouse.runtime.views.spec import ViewSpec
from streamhouse.source import Offset


class ViewHolds:
    """The consumers of one view at its inputs and its table; driver only, thread-safe."""

    def __init__(self, spec: ViewSpec, checkpoint: Checkpoint) -> None:
        self._spec, self._checkpoint = spec, checkpoint
        self._id = query_consumer(spec.query_id)
        self._lock = threading.Lock()
        self._held_at = float("-inf")
        self._last: Offset = checkpoint.logs.last_offset()
        self._kept: Offset | None = None

    def keep(self, offset: Offset | None) -> None:
        """Keep the snapshots of an earlier refresh, too, as a build reads them; None: no more."""
        self._kept = offset

    def batch_done(self, end: Offset) -> None:
        """Note that the refresh up to `end` has been committed."""
        self._last = end

    def tick(self) -> None:
        """Refresh the consumers, and move them forward, if that is due."""
        if time.monotonic() - self._held_at < EVERY_S:
            return
        with self._lock:
            self._held_at = time.monotonic()
            vector = (self._kept or self._last).get("vector", {})
            for key, address in self._spec.tables.items():
                snapshot = int(vector.get(key, {}).get("snapshot", 1))
                # A table that cannot be written is read without a consumer.
                with contextlib.suppress(OSError):
                    self._hold(Consumers(address.follow()), snapshot)
            target = self._spec.target.follow()
            self._hold(Consumers(target), target.latest_snapshot_id() or 1)

    def _hold(self, consumers: Consumers, snapshot: int) -> None:
        consumers.hold(self._id, snapshot, self._checkpoint.path)
