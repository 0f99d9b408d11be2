"""Keeps the snapshots from expiring in which a sync finds its own commits again.

As `runtime.state.retention_holds`, for many tables: the consumer of a table moves before a batch
commits to it, and is refreshed now and then, a few tables at a time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable

from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.paimon.changelog.consumers import Consumers, query_consumer
from streamhouse.runtime.state.checkpoint import Checkpoint
from streamhouse.runtime.state.retention_holds import first_position
from streamhouse.runtime.sync.micro_batch.spec import SyncSpec

MOVE_S = 5.0
"""How often the consumer of a busy table moves."""
REFRESH_S = 60.0
"""How often an idle table's consumer is refreshed, which shows that the sync is alive."""


class SyncHolds:
    """The consumers of one sync; driver only, thread-safe."""

    def __init__(self, spec: SyncSpec, checkpoint: Checkpoint) -> None:
        self._spec, self._checkpoint = spec, checkpoint
        self._id = query_consumer(spec.query_id)
        self._lock = threading.Lock()
        self._moved: dict[str, float] = {}
        self._position: dict[str, int] = {}

    def add(self, targets: Iterable[str], replayed: bool = True) -> None:
        """Create the consumers of tables before the sync commits to them.

        `replayed`: no batch is left that an earlier run may have committed to them. Raises the
        `DataLossError` of `first_position`.
        """
        for target in targets:
            known = self._consumers(target).get(self._id) is not None
            self._hold(target, 0 if known else self._first(target, replayed))

    def _first(self, target: str, replayed: bool) -> int:
        table = self._address(target).open()
        if replayed:
            return table.latest_snapshot_id() or 1
        return first_position(table, self._spec.query_id, self._checkpoint)

    def before_commit(self, targets: Iterable[str]) -> None:
        """Move the consumers of tables to which a batch is about to commit.

        Call it only while Spark's commit log has all earlier batches.
        """
        now = time.monotonic()
        for target in targets:
            if now - self._moved.get(target, 0.0) < MOVE_S:
                continue
            latest = self._address(target).follow().latest_snapshot_id() or 1
            if latest != self._position.get(target):
                self._hold(target, latest)

    def tick(self, most: int = 2) -> None:
        """Refresh up to `most` consumers that are due."""
        now = time.monotonic()
        due = [name for name, moved in self._moved.items() if now - moved >= REFRESH_S]
        for target in due[:most]:
            self._hold(target, 0)

    def _hold(self, target: str, snapshot: int) -> None:
        with self._lock:
            position = self._consumers(target).hold(self._id, snapshot, self._checkpoint.path)
            self._position[target] = position
            self._moved[target] = time.monotonic()

    def _consumers(self, target: str) -> Consumers:
        return Consumers(self._address(target).follow())

    def _address(self, target: str) -> TableAddress:
        return self._spec.address(target)
