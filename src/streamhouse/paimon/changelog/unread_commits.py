"""Commits to a table after some snapshot, and those whose rows no reader can see yet."""

import time
from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.paimon.changelog.invisible_rows import InvisibleRowsCounter
from streamhouse.paimon.changelog.offset_planner import IDLE_SNAPSHOTS
from streamhouse.paimon.changelog.snapshot_units import SnapshotUnits
from streamhouse.paimon.read.references import files_of_snapshot
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.read.visibility import VisibleAt
from streamhouse.paimon.storage.split_groups import file_ids
from streamhouse.source import Lag, Offset


class StreamLag:
    """Computes the lag of one reader; driver only."""

    def __init__(self, units: SnapshotUnits) -> None:
        self._units = units
        self._counter = InvisibleRowsCounter()
        self._waiting_since: float | None = None

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


_IDLE = ("COMPACT", "ANALYZE")


def written_since(table: Table, after: int, until: int) -> list[int] | None:
    """The snapshots in (`after`, `until`] that wrote rows.

    None if one of them is an overwrite or has expired.
    """
    numbers = []
    for number in range(after + 1, until + 1):
        snapshot = table.snapshots.find(number)
        if snapshot is None or snapshot.commit_kind == "OVERWRITE":
            return None
        if snapshot.commit_kind not in _IDLE:
            numbers.append(number)
    return numbers


def rows_of(table: Table, snapshots: list[int], columns: Sequence[str] | None = None) -> pa.Table:
    """The rows that snapshots wrote, with `rowkind`, in commit order."""
    batches = [
        batch
        for number in snapshots
        for batch in table.read(columns, splits=table.changes(number - 1, number), row_kind=True)
    ]
    return pa.Table.from_batches(batches, schema=table.read_schema(columns, row_kind=True))


def invisible_snapshots(table: Table, snapshot: int) -> list[int] | None:
    """The snapshots whose rows are invisible at `snapshot` because they wait for a compaction.

    None if one of them has expired.
    """
    files = files_of_snapshot(table, snapshot, ["file_path", "level"])
    paths = files.filter(pc.equal(files.column("level"), 0)).column("file_path").to_pylist()
    waiting = file_ids(*(path.encode() for path in paths))
    numbers: list[int] = []
    number = snapshot
    while waiting:
        record = table.snapshots.find(number)
        if record is None:
            return None
        if record.commit_kind != "COMPACT":
            ids = file_ids(*table.changes(number - 1, number))
            if waiting & ids:
                numbers.append(number)
                waiting -= ids
        number -= 1
    return numbers[::-1]
