"""Segments: immutable Arrow files of rows with counts, sorted by a hash, mapped into memory."""

from __future__ import annotations

import io
import uuid
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

HASH, COUNT = "_hash", "_count"
"""The columns by which rows are found, and how many copies of a row there are; negative counts
take rows of other segments away."""
CHUNK_ROWS = 1 << 18
"""How many rows are in one record batch of a file."""

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
            for chunk in _chunks(schema, batches):
                writer.write_batch(chunk)
                rows += chunk.num_rows
        out.flush()
        return SegmentFile(name, rows, out.tell(), file.checksum)


def _chunks(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    pending: list[pa.RecordBatch] = []
    for batch in batches:
        pending.append(batch)
        if sum(each.num_rows for each in pending) >= CHUNK_ROWS:
            yield from _combined(schema, pending)
            pending = []
    yield from _combined(schema, pending)


def _combined(schema: pa.Schema, batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from pa.Table.from_batches(batches, schema).combine_chunks().to_batches()


class Segment:
    """An open segment; raises `StateError` if its file is not the one that was written."""

    def __init__(self, folder: Path, file: SegmentFile) -> None:
        self.file = file
        path = folder / file.name
        try:
            self._stamp = _stamp(path)
            if self._stamp[0] != file.size:
                raise StateError(f"{path} is damaged: it does not have {file.size} bytes")
            mapped = pa.memory_map(str(path))
            # It takes a quarter of a second for each gigabyte, once in a process.
            if zlib.crc32(mapped.read_buffer()) != file.checksum:
                raise StateError(f"{path} is damaged: its checksum is not {file.checksum}")
            self.table = pa.ipc.open_file(mapped).read_all()
        except (OSError, pa.ArrowException) as error:
            raise StateError(f"{path} cannot be read: {error}") from error
        if self.table.num_rows != file.rows:
            raise StateError(f"{path} is damaged: it does not have {file.rows} rows")
        self._batches = [batch for batch in self.table.to_batches() if batch.num_rows]
        self._hashes = [batch.column(HASH).to_numpy() for batch in self._batches]

    def is_unchanged(self, folder: Path, file: SegmentFile) -> bool:
        """Whether the file is still the one that was opened."""
        try:
            return self.file == file and self._stamp == _stamp(folder / file.name)
        except OSError:
            return False

    def found(self, hashes: Hashes) -> Iterator[pa.RecordBatch]:
        """The rows with one of these hashes (sorted, without duplicates)."""
        for own, batch in zip(self._hashes, self._batches, strict=True):
            first = np.searchsorted(hashes, own[0])
            last = np.searchsorted(hashes, own[-1], side="right")
            asked = hashes[first:last]
            if len(asked):
                numbers = _row_numbers(own, asked)
                if len(numbers):
                    yield batch.take(pa.array(numbers))


def _stamp(path: Path) -> tuple[int, int, int]:
    stat = path.stat()
    return stat.st_size, stat.st_mtime_ns, stat.st_ino


def _row_numbers(own: Hashes, asked: Hashes) -> npt.NDArray[np.int64]:
    """The numbers of the rows whose hash is among those asked for."""
    first = np.searchsorted(own, asked)
    counts = np.searchsorted(own, asked, side="right") - first
    starts = np.repeat(first - np.concatenate(([0], np.cumsum(counts)[:-1])), counts)
    numbers: Any = starts + np.arange(int(counts.sum()))
    return np.asarray(numbers, np.int64)
