"""Rows sorted by the hash of their key, in memory or in a local file, found by these hashes."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamhouse.lookup.storage.key_hashes import Hashes

SEGMENT_ROWS = 1 << 19
SEGMENT_BYTES = 32 << 20
HASH = "_hash"

RowNumbers = npt.NDArray[np.int64]


class Segment:
    """Some rows, sorted by hash; immutable."""

    def __init__(self, rows: pa.Table, on_disk: bool = False) -> None:
        """`rows` are sorted by their column `HASH`, which is in one chunk."""
        self.on_disk = on_disk
        (chunk,) = rows.column(HASH).chunks
        self._hashes: Hashes = chunk.to_numpy()
        self._rows = rows.drop_columns([HASH])
        repeated = len(self._hashes) > 1 and bool((self._hashes[1:] == self._hashes[:-1]).any())
        self._unique = not repeated
        self.nbytes = rows.nbytes

    @classmethod
    def of(cls, rows: pa.Table, hashes: Hashes) -> Segment:
        """Rows in any order, with their hashes."""
        order = np.argsort(hashes)
        hashed = rows.append_column(HASH, pa.array(hashes)).take(pa.array(order))
        return cls(hashed.combine_chunks())

    def spilled(self) -> Segment:
        """The same rows in a local file, which is deleted when the process ends."""
        rows = self._rows.append_column(HASH, pa.array(self._hashes)).combine_chunks()
        return Segment(mapped(rows), on_disk=True)

    @property
    def num_rows(self) -> int:
        return len(self._hashes)

    def row_numbers(self, hashes: Hashes) -> RowNumbers:
        """The row numbers of the rows with one of these hashes (sorted, without duplicates)."""
        all_hashes = self._hashes
        if not len(all_hashes) or not len(hashes):
            return np.array([], np.int64)
        first = np.searchsorted(all_hashes, hashes)
        positions = np.minimum(first, len(all_hashes) - 1)
        found = np.asarray(all_hashes[positions] == hashes)
        if self._unique:
            return np.asarray(positions[found], np.int64)
        last = np.searchsorted(all_hashes, hashes[found], side="right")
        return _ranges(first[found], last)

    def rows(self, numbers: RowNumbers) -> pa.Table:
        """The rows with these numbers."""
        return self._rows.take(pa.array(numbers))

    @property
    def table(self) -> pa.Table:
        """All rows, in the order of their hashes."""
        return self._rows


def _ranges(first: Any, last: Any) -> RowNumbers:
    """All numbers of the ranges [first, last), one after the other."""
    counts = last - first
    starts = np.repeat(first - np.concatenate(([0], np.cumsum(counts)[:-1])), counts)
    return np.asarray(starts + np.arange(int(counts.sum())), np.int64)


def segment_tables(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.Table]:
    """Batches combined into tables for segments.

    A table is complete once it has `SEGMENT_ROWS` or `SEGMENT_BYTES`.
    """
    buffered: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        buffered.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= SEGMENT_ROWS or size >= SEGMENT_BYTES:
            yield pa.Table.from_batches(buffered, schema)
            buffered, rows, size = [], 0, 0
    if buffered:
        yield pa.Table.from_batches(buffered, schema)


def found_in(segments: Sequence[Segment], hashes: Hashes, schema: pa.Schema) -> pa.Table:
    """The rows of all segments that have one of these hashes (sorted, without duplicates)."""
    tables = [segment.rows(segment.row_numbers(hashes)) for segment in segments]
    return pa.concat_tables([schema.empty_table(), *tables])


def mapped(rows: pa.Table) -> pa.Table:
    """The same rows in a local file, which is deleted when the process ends."""
    file, path = tempfile.mkstemp(prefix="streamhouse-lookup-")
    try:
        with os.fdopen(file, "wb") as out, pa.ipc.new_file(out, rows.schema) as writer:
            writer.write_table(rows)
        memory = pa.memory_map(path)
    finally:
        # The mapping keeps the file alive; without a name it cannot be left behind.
        os.unlink(path)
    return pa.ipc.open_file(memory).read_all()
