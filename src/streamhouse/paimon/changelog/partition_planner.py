"""Plans the partitions of a batch of a stream over a table: which task reads which units."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from streamhouse.paimon.changelog.offset_planner import OffsetPlanner
from streamhouse.paimon.changelog.scan_options import ScanOptions
from streamhouse.paimon.changelog.snapshot_units import (
    ReadUnit,
    SnapshotUnits,
    as_inserts,
    in_order,
    partitions_of,
    snapshots_between,
)
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.storage.split_groups import ScanPartition, scan_partitions
from streamhouse.source import Offset


class PartitionPlanner:
    """Divides the ranges between the offsets of an `OffsetPlanner` among tasks; driver only.

    The changes of a table with a primary key (`keyed`) are one partition, in commit order.
    """

    def __init__(
        self, scan: ScanOptions, units: SnapshotUnits, offsets: OffsetPlanner, keyed: bool
    ) -> None:
        self._scan, self._units, self._offsets, self._keyed = scan, units, offsets, keyed

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
        after = start["snapshot"] if start else self._offsets.before_first(end)
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
            by_snapshot = [
                in_order(self._units.changes(table, snapshot.id)) for snapshot in snapshots
            ]
            groups = tuple(
                group
                for snapshot_partitions in by_snapshot
                for partition in snapshot_partitions
                for group in partition.groups
            )
            return [ScanPartition(groups)] if groups else []
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
