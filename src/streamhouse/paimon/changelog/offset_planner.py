"""Plans a stream over a table: its offsets, and the partitions between two of them."""

from collections.abc import Sequence
from itertools import groupby

from streamhouse.errors import DataLossError
from streamhouse.paimon.changelog.consumer_progress import ConsumerProgress
from streamhouse.paimon.changelog.invisible_rows import invisible_rows
from streamhouse.paimon.changelog.scan_options import ScanOptions
from streamhouse.paimon.changelog.snapshot_units import (
    ReadUnit,
    SnapshotUnits,
    as_inserts,
    bounded_offset,
    follows_commits,
    in_order,
    ordered_groups,
    partitions_of,
    snapshots_between,
)
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.read.visibility import hides_new_rows, rows_visible_at
from streamhouse.paimon.storage.snapshots import ANEW
from streamhouse.paimon.storage.split_groups import Bound, ScanPartition, scan_partitions
from streamhouse.source import Offset

_MAX_INCOMPLETE = 100
IDLE_SNAPSHOTS = 5
"""How many snapshots without changes an offset may lag behind before it must advance, or else its
snapshot might expire (by default, Paimon retains at least ten)."""


class StreamPlanner:
    """Plans the end offsets of batches, in the form that `PaimonSource` documents; driver only.

    It also divides the ranges between them among tasks: the changes of a table with a primary key
    (`keyed`) are one partition, in commit order. Offsets here have no `of`. `progress` is that of
    the stream's `consumer-id`, if it has one.
    """

    def __init__(
        self,
        scan: ScanOptions,
        units: SnapshotUnits,
        progress: ConsumerProgress | None,
        keyed: bool,
    ) -> None:
        self._scan, self._units, self._progress = scan, units, progress
        self._keyed = keyed
        self._idle = (0, 0)
        """An offset's snapshot, and the last one of those without changes after it."""
        self._last_snapshot: int | None = None

    def stop_at(self, snapshot: int) -> None:
        """Plan no offset after this snapshot."""
        self._last_snapshot = snapshot

    def next_offset(
        self, table: Table, start: Offset, bound: Bound | None, within_s: float
    ) -> Offset:
        """The next offset after `start`, at most `bound` away; `start` if there is none.

        `within_s`: as in `Table.latest_snapshot_id`.
        """
        latest = table.latest_snapshot_id(within_s)
        if self._last_snapshot is not None and latest is not None:
            latest = max(min(latest, self._last_snapshot), start.get("snapshot", 0)) or None
        if self._progress is not None:
            self._progress.keep_alive(table)
            next_snapshot = None if start else self._progress.start(table)
            if next_snapshot is not None:
                return {"snapshot": next_snapshot - 1, "resumed": True}
        if not start:
            return self._first_offset(table, latest, bound)
        if "split" in start:
            if bound is None:
                return {"snapshot": int(start["snapshot"])}
            units, position = self._units.at(table, start), self._units.position(table, start)
            changes = bool(start.get("changes"))
            return bounded_offset(int(start["snapshot"]), units, position, bound, changes)
        if (latest or 0) < start["snapshot"]:
            raise DataLossError(
                f"table {table.identifier}: snapshot {start['snapshot']} was read, but the newest "
                f"is now {latest}: the table was rolled back or created again; {ANEW}"
            )
        return self._next_snapshots(table, start, latest or 0, bound)

    def _before_first(self, end: Offset) -> int:
        """The snapshot before the first changes of a stream without an initial full read."""
        if self._scan.start == "latest":
            return int(end["snapshot"])
        return (self._scan.snapshot_id or 1) - 1

    def _first_offset(self, table: Table, latest: int | None, bound: Bound | None) -> Offset:
        scan = self._scan
        if scan.start == "latest":
            return {"snapshot": latest or 0}
        if scan.start == "snapshot":
            first = {"snapshot": self._before_first({})}
            if latest is None or latest <= first["snapshot"]:
                return {}
            return self._next_snapshots(table, first, latest, bound)
        snapshot = latest if scan.start == "full" else scan.snapshot_id
        if snapshot is None or latest is None:
            return {}
        if scan.visible_at(table) == "commit" and hides_new_rows(table):
            # The changes to come are those of later commits, so the full read must not lack the
            # rows of an earlier one.
            complete = _complete(table, snapshot)
            if not complete:
                return {} if complete is None else {"snapshot": 0}
            snapshot = complete
        elif follows_commits(table, scan, snapshot, lambda: self._units.state(table, snapshot)):
            return {"snapshot": 0}
        if bound is None:
            return {"snapshot": snapshot}
        return bounded_offset(snapshot, self._units.state(table, snapshot), 0, bound, False)

    def _next_snapshots(
        self, table: Table, start: Offset, latest: int, bound: Bound | None
    ) -> Offset:
        position, used, end = int(start["snapshot"]), 0, 0
        idle_from, idle_until = self._idle
        first = max(idle_until, position) + 1 if idle_from == position else position + 1
        for snapshot in snapshots_between(table, first - 1, latest):
            count = self._units.change_count(snapshot)
            if count == 0:
                continue
            if bound is not None:
                used += self._units.weight(table, snapshot, count, bound)
                if used > bound.most and end:
                    return {"snapshot": end}
                if used > bound.most and not table.crosses_partitions:
                    splits = self._units.changes(table, snapshot.id)
                    return bounded_offset(snapshot.id, splits, 0, bound, True)
            end = snapshot.id
        if end or latest - position >= IDLE_SNAPSHOTS:
            return {"snapshot": latest}
        self._idle = (position, latest)
        return start

    def partitions(
        self, table: Table, start: Offset, end: Offset, parallelism: int
    ) -> Sequence[ScanPartition]:
        """The partitions of the range (start, end], which has some; for `parallelism` tasks."""
        if not start and self._scan.start in ("full", "snapshot-full"):
            splits = self._units.state(table, end["snapshot"])
            return self._of_state(splits[: end.get("split", len(splits))], end, parallelism)
        if "split" in start:
            units = self._units.range(table, start, end)
            if not start.get("changes"):
                return self._of_state(units, end, parallelism)
            return partitions_of(units, parallelism)
        after = start["snapshot"] if start else self._before_first(end)
        if "split" in end:
            units = self._units.changes(table, end["snapshot"])[: self._units.position(table, end)]
            return partitions_of(units, parallelism)
        return self._of_changes(table, after, end["snapshot"], parallelism)

    def _of_state(
        self, splits: Sequence[ReadUnit], end: Offset, parallelism: int
    ) -> list[ScanPartition]:
        if not self._keyed:
            return partitions_of(splits, parallelism)
        return as_inserts(splits, int(end["snapshot"]), parallelism)

    def _of_changes(
        self, table: Table, after: int, until: int, parallelism: int
    ) -> list[ScanPartition]:
        snapshots = [
            snapshot
            for snapshot in snapshots_between(table, after, until)
            if self._units.has_changes(snapshot)
        ]
        if self._keyed:
            groups = [
                group
                for snapshot in snapshots
                for group in ordered_groups(self._units.changes(table, snapshot.id))
            ]
            return [ScanPartition(tuple(groups))] if groups else []
        all_partitions: list[ScanPartition] = []
        for is_overwrite, run in groupby(
            snapshots, lambda snapshot: snapshot.commit_kind == "OVERWRITE"
        ):
            ids = [snapshot.id for snapshot in run]
            if is_overwrite:
                all_partitions += in_order(
                    [unit for changed in ids for unit in self._units.changes(table, changed)]
                )
            else:
                all_partitions += scan_partitions(self._units.appended(table, ids), parallelism)
        return all_partitions


def _complete(table: Table, snapshot: int) -> int | None:
    """The newest snapshot up to `snapshot` whose rows are all visible; 0: before the first.

    None if there is none among the last `_MAX_INCOMPLETE`, or if one of them has expired.
    """
    for number in range(snapshot, max(0, snapshot - _MAX_INCOMPLETE), -1):
        if table.snapshots.find(number) is None:
            return None
        if not invisible_rows(table, number, rows_visible_at(True, table.options)).rows:
            return number
    return 0 if snapshot <= _MAX_INCOMPLETE else None
