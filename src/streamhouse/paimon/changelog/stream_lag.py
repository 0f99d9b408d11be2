"""How far a reader of a table's stream is behind the table."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from streamhouse.paimon.changelog.invisible_rows import InvisibleRowsCounter
from streamhouse.paimon.changelog.offset_planner import IDLE_SNAPSHOTS
from streamhouse.paimon.changelog.snapshot_units import SnapshotUnits
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.read.visibility import VisibleAt
from streamhouse.source import Lag, Offset


class StreamLag:
    """Computes the lag of one reader; driver only."""

    def __init__(self, units: SnapshotUnits) -> None:
        self._units = units
        self._counter = InvisibleRowsCounter()
        self._waiting_since: float | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_counter": InvisibleRowsCounter()}

    def at(
        self, table: Table, offset: Offset, visible_at: VisibleAt, within_s: float
    ) -> Lag | None:
        """The lag of a reader at `offset`, as `PaimonSource.lag` returns it.

        `visible_at` is when the changes that it reads become visible. `within_s`: as in
        `Table.latest_snapshot_id`.
        """
        hidden = self._counter.count(table, visible_at, within_s).rows
        self._waiting_since = (self._waiting_since or time.time()) if hidden else None
        if not offset or ("split" in offset and not offset.get("changes")):
            return Lag(waiting_rows=hidden) if hidden else None
        lag = self._unread(table, offset, within_s)
        if lag is None or self._waiting_since is None:
            return lag
        seconds = max(lag.seconds or 0.0, time.time() - self._waiting_since)
        return replace(lag, seconds=seconds, waiting_rows=hidden)

    def _unread(self, table: Table, offset: Offset, within_s: float) -> Lag | None:
        """How far `offset` is behind the visible changes; None if a snapshot has expired."""
        position = int(offset["snapshot"])
        latest = table.latest_snapshot_id(within_s) or 0
        first = position if "split" in offset else position + 1
        for number in range(first, min(latest, first + IDLE_SNAPSHOTS) + 1):
            snapshot = table.snapshots.find(number)
            if snapshot is None:
                return None
            if self._units.change_count(snapshot):
                waited = max(0.0, time.time() - snapshot.time_ms / 1000)
                return Lag(seconds=waited, snapshots=latest - number + 1)
        if latest <= first + IDLE_SNAPSHOTS:
            return Lag(seconds=0.0, snapshots=0)
        return Lag(snapshots=latest - position)
