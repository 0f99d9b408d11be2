"""The files of a relay log: binlog events of followed tables, on the local disk of the driver.

A folder contains

- `machine`: the machine of the writer (`machine.machine`);
- `state`: how far the log goes, and where each table last changed;
- segments, named `<binlog file>@<position>`, of frames: a position in the server's binlog, and the
  events of followed tables up to that position;
- an `.index` of each segment: the frames that end between two transactions.

One process writes; any process on the same machine may read. On another machine, with the folder on
shared storage, a read could return old contents of a file: readers there behave as if there were no
log. Events between the start of the first segment and the end in `state` are final, and stay until
their segment is dropped.
"""

from __future__ import annotations

import bisect
import os
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from streamhouse.connectors.mysql_cdc.binlog.format.events import CHECKSUM_BYTES
from streamhouse.mysql.position import BinlogPosition

FRAME = struct.Struct("<QIB3x")
"""A frame's header: its end in the server's binlog file, the bytes of its events, its kind."""
_PLAIN, _SUMS, _LAST = 0, 1, 2
"""Kinds of frames: events, events with checksums, or the name of the next segment."""
INDEX = struct.Struct("<QQ")
"""An entry of an index: where a frame ends in the server's binlog file, and in the segment."""


@dataclass(frozen=True)
class Segment:
    """Events of one of the server's binlog files, from `start` on."""

    folder: Path
    start: BinlogPosition

    @property
    def name(self) -> str:
        return f"{self.start.file}@{self.start.pos:012d}"

    @property
    def frames(self) -> Path:
        return self.folder / f"{self.name}.frames"

    @property
    def index(self) -> Path:
        return self.folder / f"{self.name}.index"

    def drop(self) -> None:
        self.frames.unlink(missing_ok=True)
        self.index.unlink(missing_ok=True)


def segments(folder: Path) -> list[Segment]:
    """All segments, oldest first."""
    names = [name for name in os.listdir(folder) if name.endswith(".frames")]
    parsed = [_segment(folder, name.removesuffix(".frames")) for name in names]
    return sorted(parsed, key=lambda segment: segment.start)


def _segment(folder: Path, name: str) -> Segment:
    file, _, pos = name.rpartition("@")
    return Segment(folder, BinlogPosition(file, int(pos)))


class _Index:
    """An index file as a sequence of entries (position in the binlog, byte in the segment)."""

    def __init__(self, handle: int) -> None:
        self._handle = handle
        self._count = os.fstat(handle).st_size // INDEX.size

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, at: int) -> tuple[int, int]:
        at = at + self._count if at < 0 else at
        pos, byte = INDEX.unpack(os.pread(self._handle, INDEX.size, at * INDEX.size))
        return int(pos), int(byte)

    def after(self, pos: int) -> int:
        """The index of the first entry that ends after a position."""
        return bisect.bisect_right(self, pos, key=lambda entry: entry[0])


def _segments_from(ordered: list[Segment], start: BinlogPosition) -> list[Segment]:
    """The segments from the one that contains `start` on."""
    at = bisect.bisect_right(ordered, start, key=lambda segment: segment.start)
    return ordered[max(0, at - 1) :]


def bounded(
    folder: Path, start: BinlogPosition, end: BinlogPosition, most_bytes: int
) -> BinlogPosition:
    """The end of a transaction after `start`, about `most_bytes` later, and at most `end`."""
    remaining = most_bytes
    for segment in _segments_from(segments(folder), start):
        if not segment.start < end:
            break
        try:
            index = segment.index.open("rb")
        except FileNotFoundError:
            # It has just been dropped: tasks read its range from the server.
            continue
        with index:
            entries = _Index(index.fileno())
            start_pos = start.pos if segment.start.file == start.file else 0
            at = entries.after(start_pos)
            if at >= len(entries):
                continue
            begun = entries[at - 1][1] if at else 0
            stop = bisect.bisect_left(entries, begun + remaining, at, key=lambda entry: entry[1])
            if stop < len(entries):
                return min(end, BinlogPosition(segment.start.file, entries[stop][0]))
            remaining -= entries[-1][1] - begun
    return end


class Frame(NamedTuple):
    """Events up to a position, as the server sent them; `trailer`: the bytes of a checksum."""

    end: BinlogPosition
    events: bytes
    trailer: int


class FrameReader:
    """Reads frames in order, from one that contains `start` on.

    Raises `FileNotFoundError` if the log begins after `start`.
    """

    def __init__(self, folder: Path, start: BinlogPosition) -> None:
        self._folder = folder
        self._handle = -1
        remaining = _segments_from(segments(folder), start)
        if not remaining or start < remaining[0].start:
            raise FileNotFoundError(f"the relay log in {folder} begins after {start}")
        self._enter(remaining[0], start)

    def up_to(self, end: BinlogPosition) -> Iterator[Frame]:
        """Yield frames up to the one that contains `end`.

        The next call yields a frame again that ends after `end`.

        The log must reach `end`. Raises `OSError` if the requested part has been dropped.
        """
        while True:
            head = os.pread(self._handle, FRAME.size, self._byte)
            if len(head) < FRAME.size:
                return
            pos, size, kind = FRAME.unpack(head)
            data = os.pread(self._handle, size, self._byte + FRAME.size)
            if kind == _LAST:
                following = _segment(self._folder, data.decode())
                if not following.start < end:
                    return
                self._enter(following, None)
                continue
            frame_end = BinlogPosition(self._segment.start.file, pos)
            if not frame_end > end:
                self._byte += FRAME.size + size
            yield Frame(frame_end, data, CHECKSUM_BYTES if kind == _SUMS else 0)
            if frame_end >= end:
                return

    def close(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def _enter(self, segment: Segment, start: BinlogPosition | None) -> None:
        byte = 0
        if start is not None and start.file == segment.start.file:
            with segment.index.open("rb") as index:
                entries = _Index(index.fileno())
                at = entries.after(start.pos)
                byte = entries[at - 1][1] if at else 0
        handle = os.open(segment.frames, os.O_RDONLY)
        self.close()
        self._handle, self._segment, self._byte = handle, segment, byte


class FrameWriter:
    """Appends frames; starts a new segment after `segment_bytes`."""

    def __init__(self, folder: Path, segment_bytes: int) -> None:
        self._folder = folder
        self._segment_bytes = segment_bytes
        self._segment: Segment | None = None
        self._frames = self._index = -1
        self._written = self._committed = 0

    def append(self, end: BinlogPosition, events: Iterable[bytes], checksums: bool) -> None:
        """Append a frame of the events up to `end`, which may be inside a transaction."""
        data = b"".join(events)
        self._frame(end.pos, data, _SUMS if checksums else _PLAIN)

    def commit(self, end: BinlogPosition) -> None:
        """Make the written frames visible in the index; `end` must be between two transactions."""
        if self._written > self._committed:
            _write(self._index, INDEX.pack(end.pos, self._written))
            self._committed = self._written
        if self._written >= self._segment_bytes:
            self.begin(end)

    def undo(self) -> None:
        """Remove the frames that were written since the last commit."""
        if self._segment is not None:
            os.ftruncate(self._frames, self._committed)
            self._written = self._committed

    def begin(self, start: BinlogPosition) -> None:
        """Continue in a new segment, which starts at `start`."""
        if self._segment is not None and self._segment.start == start:
            return
        following = Segment(self._folder, start)
        if self._segment is not None:
            self.undo()
            self._frame(0, following.name.encode(), _LAST)
        self.close()
        self._segment = following
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        self._index = os.open(self._segment.index, flags, 0o600)
        self._frames = os.open(self._segment.frames, flags, 0o600)
        self._written = self._committed = 0

    def close(self) -> None:
        for handle in (self._frames, self._index):
            if handle >= 0:
                os.close(handle)
        self._frames = self._index = -1

    def _frame(self, pos: int, data: bytes, kind: int) -> None:
        _write(self._frames, FRAME.pack(pos, len(data), kind) + data)
        self._written += FRAME.size + len(data)


def _write(handle: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]


def held_bytes(folder: Path) -> int:
    """The bytes of a log's frames."""
    return sum(segment.frames.stat().st_size for segment in segments(folder))


def drop_old(folder: Path, needed: BinlogPosition | None, most_bytes: int | None) -> None:
    """Drop segments before `needed`, and the oldest ones while all exceed `most_bytes` together.

    The newest segment always stays. `most_bytes` None: any size.
    """
    ordered = segments(folder)
    sizes = [segment.frames.stat().st_size for segment in ordered]
    total = sum(sizes)
    for segment, size, after in zip(ordered, sizes, ordered[1:], strict=False):
        fits = most_bytes is None or total <= most_bytes
        if fits and (needed is None or after.start > needed):
            break
        segment.drop()
        total -= size
