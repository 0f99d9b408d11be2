"""The changes of each snapshot of a followed table: their number, and the units to read."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Literal, TypeAlias

from streamhouse.errors import DataLossError, StreamhouseError
from streamhouse.paimon.changelog.differences.snapshot_changes import (
    SnapshotStates,
    StateDifference,
)
from streamhouse.paimon.changelog.scan_options import ScanOptions
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.storage.snapshots import ANEW, EXPIRY_USER, Snapshot
from streamhouse.paimon.storage.split_files import SplitFrame
from streamhouse.paimon.storage.split_groups import Bound, ScanPartition, scan_partitions
from streamhouse.source import Offset

ReadUnit: TypeAlias = bytes | StateDifference
"""A serialised split, or a difference of states."""
_MAX_SNAPSHOTS = 500
"""Reading and planning a snapshot takes 1.5 ms, in an object store about 10 ms more."""
_KEEP_ROWS = ("APPEND", "COMPACT", "ANALYZE")


def partitions_of(units: Sequence[ReadUnit], parallelism: int) -> list[ScanPartition]:
    """The units as partitions for several tasks; differences stay in one, in their order."""
    splits = [unit for unit in units if isinstance(unit, bytes)]
    return scan_partitions(splits, parallelism) if len(splits) == len(units) else in_order(units)


def in_order(units: Sequence[ReadUnit]) -> list[ScanPartition]:
    """All units as one partition, in which consecutive splits are read together."""
    groups = ordered_groups(units)
    return [ScanPartition(tuple(groups))] if groups else []


def ordered_groups(units: Sequence[ReadUnit]) -> list[tuple[bytes, ...] | StateDifference]:
    """The differences, and the groups of consecutive splits, in order."""
    groups: list[tuple[bytes, ...] | StateDifference] = []
    for computed, run in groupby(units, lambda unit: isinstance(unit, StateDifference)):
        if computed:
            groups += [unit for unit in run if isinstance(unit, StateDifference)]
        else:
            groups.append(tuple(unit for unit in run if isinstance(unit, bytes)))
    return groups


def as_inserts(units: Sequence[ReadUnit], snapshot: int, parallelism: int) -> list[ScanPartition]:
    """The state of a keyed table: merged rows are inserts, whatever row kinds their files have."""
    return [
        ScanPartition(
            tuple(
                StateDifference(snapshot, written=(), old=(), new=group)
                for group in partition.groups
                if isinstance(group, tuple)
            )
        )
        for partition in partitions_of(units, parallelism)
    ]


def bounded_offset(
    snapshot: int,
    units: Sequence[ReadUnit],
    first: int,
    bound: Bound,
    changes: bool,
) -> Offset:
    """The offset after as many units from `first` on as are within the bound, at least one."""
    used, last = 0, first
    for unit in units[first:]:
        used += bound.weigh(unit)
        if used > bound.most and last > first:
            break
        last += 1
    if last >= len(units):
        return {"snapshot": snapshot}
    offset: Offset = {"snapshot": snapshot, "split": last, "splits": len(units)}
    return {**offset, "changes": True} if changes else offset


@dataclass
class SnapshotUnits:
    """The changes of each snapshot, and the units (`ReadUnit`) that have them; driver only.

    `mode`: whether splits are those of the `changelog` files or of the data files (`delta`).
    `computed`: changes are the differences of two states instead. `hidden`: rows become visible by
    a compaction, so only COMPACT snapshots have changes. `purged`: those that drop records have
    changes, too. `overwrite` is the option `scan.overwrite`. Keeps the units of one snapshot, for
    the batches that divide it.
    """

    identifier: str
    mode: Literal["changelog", "delta"]
    computed: bool
    hidden: bool
    purged: bool
    overwrite: str
    _units: dict[int, list[ReadUnit]] = field(default_factory=dict, init=False)
    _states: SnapshotStates = field(default_factory=SnapshotStates, init=False)

    def forget(self) -> None:
        """Forget the units of the snapshot that was planned last."""
        self._units.clear()

    def close(self) -> None:
        """Free all that was planned."""
        self._units.clear()
        self._states.clear()

    def change_count(self, snapshot: Snapshot) -> int:
        """How many changes a snapshot has, 1 where that is unknown; 0 if there are none to read."""
        if snapshot.commit_user == EXPIRY_USER:
            return 0
        if snapshot.commit_kind == "OVERWRITE":
            return 0 if self.overwrite == "skip" else 1
        if self.mode == "changelog":
            return snapshot.changelog_record_count or 0
        if self.hidden:
            return 1 if snapshot.commit_kind == "COMPACT" else 0
        if self.purged and snapshot.purges:
            return 1
        if snapshot.commit_kind != "APPEND":
            return 0
        count = snapshot.delta_record_count
        return 1 if count is None else count

    def has_changes(self, snapshot: Snapshot) -> bool:
        """Whether there is anything to read; `StreamhouseError` for a refused overwrite."""
        overwrite = snapshot.commit_kind == "OVERWRITE" and snapshot.commit_user != EXPIRY_USER
        if overwrite and self.overwrite == "error":
            raise StreamhouseError(
                f"table {self.identifier}: snapshot {snapshot.id} is an overwrite, and the option "
                "'scan.overwrite' is 'error'; set it to 'difference' to read what it changed, to "
                "'skip' to keep what it removed and miss what it added, or start from a fresh "
                "checkpoint to read the table anew"
            )
        return self.change_count(snapshot) > 0

    def weight(self, table: Table, snapshot: Snapshot, rows: int, bound: Bound) -> int:
        """How much of a bound a snapshot's changes use.

        The number of rows that an APPEND wrote is known without planning.
        """
        if bound.what == "rows" and snapshot.commit_kind == "APPEND":
            return rows
        return sum(bound.weigh(unit) for unit in self.changes(table, snapshot.id))

    def state(self, table: Table, snapshot: int) -> list[bytes]:
        """The splits of all rows at a snapshot."""
        return self._states.splits(table, snapshot)

    def changes(self, table: Table, snapshot: int) -> list[ReadUnit]:
        """The units of the changes of one snapshot, in order; each must be read as a whole."""
        if snapshot not in self._units:
            metadata = table.snapshot(snapshot)
            if not self.has_changes(metadata):
                return []
            units: list[ReadUnit] = []
            if self.computed or metadata.commit_kind == "OVERWRITE":
                written = metadata.commit_kind == "APPEND"
                units += self._states.differences(table, snapshot, written)
            else:
                units += sorted(table.changes(snapshot - 1, snapshot, self.mode))
            self._units = {snapshot: units}
        return self._units[snapshot]

    def appended(self, table: Table, snapshots: Sequence[int]) -> list[bytes]:
        """The rows that snapshots appended, in the order of the commits."""
        splits = table.changes(snapshots[0] - 1, snapshots[-1])
        if not has_several_buckets(table) or min(len(splits), len(snapshots)) < 2:
            return splits
        # The core plans a range partition by partition and bucket by bucket.
        return [split for snapshot in snapshots for split in table.changes(snapshot - 1, snapshot)]

    def at(self, table: Table, offset: Offset) -> Sequence[ReadUnit]:
        """The units that an offset in the middle of a snapshot counts."""
        load = self.changes if offset.get("changes") else self.state
        return load(table, int(offset["snapshot"]))

    def range(self, table: Table, start: Offset, end: Offset) -> Sequence[ReadUnit]:
        """The units from an offset in the middle of a snapshot to another one, or to its end."""
        first = self.position(table, start)
        if end["snapshot"] != start["snapshot"]:
            raise StreamhouseError(
                f"table {self.identifier}: cannot read from {start} to {end}; this checkpoint "
                "was written by another query"
            )
        units = self.at(table, start)
        return units[first : end.get("split", len(units))]

    def position(self, table: Table, offset: Offset) -> int:
        """How many units of its snapshot are before an offset.

        Raises `DataLossError` if the snapshot is divided in another way than when it was read.
        """
        units = self.at(table, offset)
        if len(units) != offset["splits"]:
            raise DataLossError(
                f"table {self.identifier}: snapshot {offset['snapshot']} was read in "
                f"{offset['splits']} splits and now has {len(units)}; set "
                f"source.split.target-size back to its earlier value, or {ANEW}"
            )
        return int(offset["split"])


def snapshots_between(table: Table, after: int, until: int) -> Iterator[Snapshot]:
    """The snapshots from `after` (exclusive) to `until`."""
    for snapshot_id in range(after + 1, until + 1):
        yield table.snapshot(snapshot_id)


def has_several_buckets(table: Table) -> bool:
    """Whether rows of different partitions or buckets have no order but that of their commits."""
    return bool(table.partition_keys) or table.bucket > 1


def has_compacted_files(splits: Iterable[bytes]) -> bool:
    """Whether a compaction wrote a file of the splits: it merges files by size, not by age."""
    return any(file.is_compacted for split in splits for file in SplitFrame.parse(split).files)


def follows_commits(
    table: Table, scan: ScanOptions, snapshot_id: int, splits: Callable[[], Iterable[bytes]]
) -> bool:
    """Whether the first read of an append table reads its commits one by one, to keep their order.

    Otherwise it reads the files of `snapshot_id`, whose `splits` it needs only for some tables.
    """
    if table.primary_key or scan.start != "full" or snapshot_id == 1:
        return False
    mixed = has_several_buckets(table) or has_compacted_files(splits())
    return mixed and is_replayable(table, snapshot_id)


def is_replayable(table: Table, snapshot_id: int) -> bool:
    """Whether all rows of the table are those that the snapshots up to `snapshot_id` appended.

    That is so if no snapshot has expired and none has removed rows. False for more than 500
    snapshots: planning each of them would take seconds.
    """
    if snapshot_id > _MAX_SNAPSHOTS:
        return False
    snapshots = (table.snapshots.find(number) for number in range(1, snapshot_id + 1))
    return all(
        snapshot is not None
        and snapshot.commit_kind in _KEEP_ROWS
        and (snapshot.delta_record_count or 0) >= 0
        for snapshot in snapshots
    )
