"""Assigns splits to tasks, and limits how much a micro-batch reads."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pypaimon_rust.datafusion import Split

from streamhouse.paimon.storage.split_files import SplitFrame

if TYPE_CHECKING:
    from streamhouse.paimon.changelog.differences.snapshot_changes import StateDifference

_FILE_ID = re.compile(rb"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}-\d+\.")


def file_ids(*serialised: bytes) -> set[bytes]:
    """The unique parts of the data file names in serialised splits or commit messages."""
    return {match for text in serialised for match in _FILE_ID.findall(text)}


def row_count(splits: Iterable[bytes]) -> int:
    """The number of rows in the files of serialised splits, before they are merged."""
    return sum(int(Split.deserialize(split).row_count()) for split in splits)


@dataclass(frozen=True)
class ScanPartition:
    """The input of one task, in order: groups of splits to read together, and differences.

    The changes of a `StateDifference` are computed from the states before and after a snapshot.
    """

    groups: tuple[tuple[bytes, ...] | StateDifference, ...]

    @property
    def rows(self) -> int | None:
        """The number of rows of its splits; None if it has a difference, whose changes are not
        counted."""
        splits: list[bytes] = []
        for group in self.groups:
            if not isinstance(group, tuple):
                return None
            splits += group
        return row_count(splits)


@dataclass(frozen=True)
class Bound:
    """The limit of a micro-batch: at most `most` of `what`, which is rows, files or bytes."""

    what: str
    most: int

    def weigh(self, unit: bytes | StateDifference) -> int:
        """How many rows, files or bytes a serialised split or a difference counts for."""
        splits = (unit,) if isinstance(unit, bytes) else unit.splits
        if self.what == "rows":
            return row_count(splits)
        if self.what == "files":
            return sum(len(file_ids(split)) for split in splits)
        return sum(file.size for split in splits for file in SplitFrame.parse(split).files)


def scan_partitions(splits: Sequence[bytes], parallelism: int) -> list[ScanPartition]:
    """Divide splits, in order, into at most `parallelism` partitions of about as many rows each."""
    if parallelism <= 1 or len(splits) <= 1:
        return [ScanPartition((tuple(splits),))] if splits else []
    counts = [max(1, row_count([split])) for split in splits]
    target_rows, rows = sum(counts) / parallelism, 0
    partitions: list[ScanPartition] = []
    current: list[bytes] = []
    for split, count in zip(splits, counts, strict=True):
        current.append(split)
        rows += count
        if rows >= target_rows and len(partitions) < parallelism - 1:
            partitions.append(ScanPartition((tuple(current),)))
            current, rows = [], 0
    return [*partitions, ScanPartition((tuple(current),))] if current else partitions
