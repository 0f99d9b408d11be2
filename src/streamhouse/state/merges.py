"""Merges of segments, size-tiered, and their records: segments that may take the place of others.

A batch merges few rows itself. Many rows are merged beside the batches: the merge leaves a record
beside the segments, and the next batch uses its segment instead of those it was made from.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import pyarrow as pa

from streamhouse.state.manifest import Segments
from streamhouse.state.segment import Segment, SegmentFile, StateError

TIER = 8
"""So many segments of a tier are merged into one; each tier is so many times the one below."""
PART_ROWS = 1 << 18
"""About so many rows are merged at once."""


@dataclass(frozen=True)
class Merge:
    """A segment `output` with the rows of others; `inputs` are their names, the oldest first."""

    inputs: tuple[str, ...]
    output: SegmentFile

    def applied(self, files: Segments) -> Segments:
        """The files with the inputs replaced by the output, if they have all inputs in a row."""
        names, count = [file.name for file in files], len(self.inputs)
        for first in range(len(names) - count + 1):
            if tuple(names[first : first + count]) == self.inputs:
                return (*files[:first], self.output, *files[first + count :])
        return files

    def to_json(self) -> str:
        """The text of the record."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Merge:
        """Parse the text of a record; `StateError` for a damaged one."""
        try:
            record = json.loads(text)
            return cls(tuple(record["inputs"]), SegmentFile(**record["output"]))
        except (ValueError, KeyError, TypeError) as error:
            raise StateError(f"the record of a merge is damaged: {error}") from error


def mergeable(rows: Sequence[int]) -> int:
    """From which segment on they are to be merged; the last one if none are."""
    rows = list(rows)
    first, tier, start = len(rows) - 1, TIER, len(rows)
    while start:
        start = len(rows)
        while start and rows[start - 1] <= tier:
            start -= 1
        # The rows that are written again are at most twice the new ones.
        same = rows[start:]
        if len(same) >= TIER and sum(same) >= 2 * max(same):
            rows, first = [*rows[:start], sum(same)], start
        tier *= TIER
    return first


def parts(segments: Sequence[Segment]) -> Iterator[pa.Table]:
    """The rows of segments in parts, each with all rows of a range of hashes, in their order."""
    count = max(1, sum(each.num_rows for each in segments) // PART_ROWS)
    bounds = np.array([number * (1 << 64) // count for number in range(1, count)], np.uint64)
    ranges = [[0, *each.positions(bounds), each.num_rows] for each in segments]
    for number in range(count):
        tables = [
            each.table.slice(at[number], at[number + 1] - at[number])
            for each, at in zip(segments, ranges, strict=True)
        ]
        yield pa.concat_tables(tables)
