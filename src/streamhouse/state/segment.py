"""Segments: rows sorted by a hash, by which they are found, in memory or in mapped Arrow files.

Many segments are merged into few, size-tiered.
"""

import io
import tempfile
import uuid
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.arrow_batches import gathered

HASH, COUNT = "_hash", "_count"
"""The columns by which rows are found, and how many copies of a row there are; negative counts
take rows of other segments away. Only views keep counts."""
CHUNK_ROWS, CHUNK_BYTES = 1 << 19, 32 << 20
"""How many rows and bytes are in one part of a segment."""
_TOGETHER = 256
"""Rows of one hash are not copied if each has so many of them."""
TIER = 8
"""So many segments of a tier are merged into one; each tier is so many times the one below."""
PART_ROWS = 1 << 18
"""About so many rows are merged at once."""

Hashes: TypeAlias = npt.NDArray[np.uint64]


class StateError(Exception):
    """Kept rows are missing, damaged or wrong: they are dropped, and computed anew."""


@dataclass(frozen=True)
class SegmentFile:
    """A segment's file, as manifests record it."""

    name: str
    rows: int
    size: int
    checksum: int


class _Writer(io.FileIO):
    """A new file that computes the CRC-32 of what is written."""

    checksum = 0

    def write(self, data: Any) -> int:
        self.checksum = zlib.crc32(data, self.checksum)
        return super().write(data)


def written(folder: Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> SegmentFile:
    """Write a segment of batches that are sorted by `HASH` across all of them."""
    name = f"{uuid.uuid4().hex}.arrow"
    rows, file = 0, _Writer(folder / name, "x")
    with io.BufferedWriter(file) as out:
        with pa.ipc.new_file(out, schema) as writer:
            for chunk in chunks(batches, schema):
                writer.write_table(chunk)
                rows += chunk.num_rows
        out.flush()
        return SegmentFile(name, rows, out.tell(), file.checksum)


def chunks(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.Table]:
    """Batches combined into parts of `CHUNK_ROWS` or `CHUNK_BYTES`, or a little more."""
    for group in gathered(batches, CHUNK_ROWS, CHUNK_BYTES):
        if any(batch.num_rows for batch in group):
            yield pa.Table.from_batches(group, schema).combine_chunks()


@dataclass(frozen=True)
class AskedPart:
    """A part of a segment, whose hashes are `own`, and the hashes that are asked for."""

    batch: pa.RecordBatch
    own: Hashes
    asked: Hashes

    def found(self, columns: Sequence[str] | None = None) -> list[pa.RecordBatch]:
        """The rows with one of the hashes, in batches without copies where they lie together."""
        own, asked = self.own, self.asked
        batch = self.batch if columns is None else self.batch.select(columns)
        if len(own) < len(asked):
            last = len(asked) - 1
            near = asked[np.minimum(np.searchsorted(asked, own), last)]
            return _taken(batch, np.flatnonzero(near == own))
        first = np.searchsorted(own, asked)
        found = own[np.minimum(first, len(own) - 1)] == asked
        first, asked = first[found], asked[found]
        if not (own[np.minimum(first + 1, len(own) - 1)] == asked)[first < len(own) - 1].any():
            return _taken(batch, first)
        counts = np.searchsorted(own, asked, side="right") - first
        if counts.sum() > _TOGETHER * len(counts):
            runs = zip(first.tolist(), counts.tolist(), strict=True)
            return [batch.slice(start, length) for start, length in runs]
        return _taken(batch, _runs(first, counts))

    @cached_property
    def _bounds(self) -> tuple[Any, Any]:
        """The number of the first row of each hash, and how many rows it has."""
        first = np.searchsorted(self.own, self.asked)
        return first, np.searchsorted(self.own, self.asked, side="right") - first

    @property
    def num_rows(self) -> int:
        """How many rows have one of the hashes."""
        return int(self._bounds[1].sum())

    def first(self, most: int) -> tuple[list[pa.RecordBatch], list[pa.RecordBatch]]:
        """The first `most` rows of each hash, and the last of these of hashes with more rows."""
        first, counts = self._bounds
        taken = _taken(self.batch, _runs(first, np.minimum(counts, most)))
        return taken, _taken(self.batch, (first + most - 1)[counts > most])


class Segment:
    """Rows sorted by their column `HASH`; immutable."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table
        self.num_rows, self.nbytes = int(table.num_rows), int(table.nbytes)
        self._batches = [batch for batch in table.to_batches() if batch.num_rows]
        self._hashes: list[Hashes] = [batch.column(HASH).to_numpy() for batch in self._batches]

    @classmethod
    def of(cls, rows: pa.Table, hashes: Hashes) -> Self:
        """Rows in any order, with their hashes; in memory."""
        return cls(in_order(rows.append_column(HASH, pa.array(hashes))))

    def positions(self, bounds: Hashes) -> list[int]:
        """How many rows have a smaller hash than each of the bounds."""
        counts = np.zeros(len(bounds), np.int64)
        for own in self._hashes:
            counts += np.searchsorted(own, bounds)
        return [int(count) for count in counts]

    def parts(self, hashes: Hashes) -> Iterator[AskedPart]:
        """The parts that may have rows with one of these hashes (sorted, without duplicates)."""
        for own, batch in zip(self._hashes, self._batches, strict=True):
            first = np.searchsorted(hashes, own[0])
            last = np.searchsorted(hashes, own[-1], side="right")
            if first < last:
                yield AskedPart(batch, own, hashes[first:last])


def _runs(starts: Any, counts: Any) -> Any:
    """The numbers of runs of rows, of which each has a start and a length."""
    before = np.concatenate(([0], np.cumsum(counts)[:-1]))
    return np.repeat(starts - before, counts) + np.arange(counts.sum())


def _taken(batch: pa.RecordBatch, numbers: Any) -> list[pa.RecordBatch]:
    return [batch.take(pa.array(numbers))] if len(numbers) else []


def mapped(folder: Path, file: SegmentFile) -> pa.Table:
    """The rows of a file; raises `StateError` if it is not the one that was written."""
    path = folder / file.name
    try:
        memory = pa.memory_map(str(path))
        if memory.size() != file.size:
            raise StateError(f"{path} is damaged: it does not have {file.size} bytes")
        # It takes a quarter of a second for each gigabyte.
        if zlib.crc32(memory.read_buffer()) != file.checksum:
            raise StateError(f"{path} is damaged: its checksum is not {file.checksum}")
        table = pa.ipc.open_file(memory).read_all()
    except (OSError, pa.ArrowException) as error:
        raise StateError(f"{path} cannot be read: {error}") from error
    if table.num_rows != file.rows:
        raise StateError(f"{path} is damaged: it does not have {file.rows} rows")
    return table


def spilled(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> pa.Table:
    """Rows in a local file, which is deleted when they are, or when the process ends."""
    # The mapping keeps the file alive; without a name it cannot be left behind.
    with tempfile.TemporaryDirectory(prefix="streamhouse-kept-") as folder:
        file = written(Path(folder), schema, batches)
        return mapped(Path(folder), file)


def found_in(segments: Iterable[Segment], hashes: Hashes, schema: pa.Schema) -> pa.Table:
    """The columns `schema` of rows of all segments with one of these hashes (as for `parts`)."""
    asked = (part for each in segments for part in each.parts(hashes))
    batches = (batch for part in asked for batch in part.found(schema.names))
    return pa.Table.from_batches(batches, schema)


def in_order(rows: pa.Table, column: str = "", least: bool = False) -> pa.Table:
    """Rows sorted by their column `HASH`; those with the same by another `column`, nulls last."""
    rows = rows.combine_chunks()
    if column:
        by = [(HASH, "ascending"), (column, "ascending" if least else "descending")]
        order = pc.sort_indices(rows, sort_keys=by)
    else:
        order = pa.array(np.argsort(rows.column(HASH).to_numpy()))
    return rows.take(order).combine_chunks()


def distinct(hashes: Hashes) -> Hashes:
    """Hashes in order, each once."""
    # `np.unique` of numpy 2.3 and later takes ten times as long.
    hashes = np.sort(hashes)
    first = np.ones(len(hashes), np.bool_)
    np.not_equal(hashes[1:], hashes[:-1], out=first[1:])
    return hashes[first]


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
