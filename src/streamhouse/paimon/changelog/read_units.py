"""The units of a snapshot: splits, or computed differences, each read as a whole by one task."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TypeAlias

from streamhouse.paimon.changelog.differences.snapshot_changes import StateDifference
from streamhouse.paimon.storage.split_groups import Bound, ScanPartition, scan_partitions
from streamhouse.source import Offset

ReadUnit: TypeAlias = bytes | StateDifference
"""A serialised split, or a difference of states."""


def partitions_of(units: Sequence[ReadUnit], parallelism: int) -> list[ScanPartition]:
    """The units as partitions for several tasks; differences stay in one, in their order."""
    splits = [unit for unit in units if isinstance(unit, bytes)]
    return scan_partitions(splits, parallelism) if len(splits) == len(units) else in_order(units)


def in_order(units: Sequence[ReadUnit]) -> list[ScanPartition]:
    """All units as one partition, in which consecutive splits are read together."""
    groups: list[tuple[bytes, ...] | StateDifference] = []
    for computed, run in groupby(units, lambda unit: isinstance(unit, StateDifference)):
        if computed:
            groups += [unit for unit in run if isinstance(unit, StateDifference)]
        else:
            groups.append(tuple(unit for unit in run if isinstance(unit, bytes)))
    return [ScanPartition(tuple(groups))] if groups else []


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
