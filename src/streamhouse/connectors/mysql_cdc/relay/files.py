"""The files of a relay log: binlog events of followed tables, on the local disk of the driver.

A folder contains

- `machine`: the machine of the writer (`machine.machine`);
- `state`: how far the log goes, and where each table last changed;
- segments, named `<binlog file>@<position>`, of frames: a position in the server's binlog, and the
  events of followed tables up to that position, without checksums.

One process writes; any process on the same machine may read. On another machine, with the folder on
shared storage, a read could return old contents of a file: readers there behave as if there were no
log. Events between the start of the first segment and the end in `state` are final, and stay until
their segment is dropped.
"""

import bisect
import contextlib
import os
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from streamhouse.mysql.position import BinlogPosition

FRAME = struct.Struct("<QIB3x")
"""A frame's header: its end in the server's binlog file, the bytes of its events, its kind."""
_WHOLE, _PART, _LAST = range(3)
"""The kinds of frames: one ends with a transaction, or within it, or has the name of the next
segment instead of events."""


@dataclass(frozen=True)
class Segment:
    """Events of one of the server's binlog files, from `start` on."""

    folder: Path
    start: BinlogPosition

    @property
    def name(self) -> str:
        return f"{self.start.file}@{self.start.pos:012d}"

    @property
    def path(self) -> Path:
        return self.folder / self.name

    @property
    def bytes(self) -> int:
        """The size; 0 if the segment has just been dropped."""
        with contextlib.suppress(FileNotFoundError):
            return self.path.stat().st_size
        return 0


def segments(folder: Path) -> list[Segment]:
    """All segments, oldest first."""
    parsed = [_segment(folder, name) for name in os.listdir(folder) if "@" in name]
    return sorted(parsed, key=lambda segment: segment.start)


def _segment(folder: Path, name: str) -> Segment:
    file, _, pos = name.rpartition("@")
    return Segment(folder, BinlogPosition(file, int(pos)))


def _heads(handle: int) -> Iterator[tuple[int, int, int, int]]:
    """The frames of a segment: where each begins and ends there, its position, and its kind."""
    byte = 0
    while len(head := os.pread(handle, FRAME.size, byte)) == FRAME.size:
        pos, size, kind = FRAME.unpack(head)
        following = byte + FRAME.size + size
        yield byte, following, pos, kind
        byte = following


def _segments_from(ordered: list[Segment], start: BinlogPosition) -> list[Segment]:
    """The segments from the one that contains `start` on."""
    at = bisect.bisect_right(ordered, start, key=lambda segment: segment.start)
    return ordered[max(0, at - 1) :]


def bounded(
    folder: Path, start: BinlogPosition, end: BinlogPosition, most_bytes: int
) -> BinlogPosition:
    """The end of a transaction after `start`, about `most_bytes` later, and at most `end`."""
    found = _segments_from(segments(folder), start)
    if sum(segment.bytes for segment in found) <= most_bytes:
        return end
    remaining = most_bytes
    for segment in found:
        if segment.start >= end:
            break
        file = segment.start.file
        low = start.pos if start.file == file else 0
        high = end.pos if end.file == file else None
        # One that has just been dropped: tasks read its range from the server.
        with contextlib.suppress(FileNotFoundError), segment.path.open("rb") as frames:
            for begin, following, pos, kind in _heads(frames.fileno()):
                if kind == _LAST or pos <= low:
                    continue
                if high is not None and pos >= high:
                    return end
                remaining -= following - begin
                if remaining <= 0 and kind != _PART:
                    return BinlogPosition(file, pos)
    return end


class Frame(NamedTuple):
    """Events up to a position."""

    end: BinlogPosition
    events: bytes


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
            yield Frame(frame_end, data)
            if frame_end >= end:
                return

    def close(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def _enter(self, segment: Segment, start: BinlogPosition | None) -> None:
        handle = os.open(segment.path, os.O_RDONLY)
        self.close()
        self._handle, self._segment, self._byte = handle, segment, 0
        if start is not None and start.file == segment.start.file:
            for begin, following, pos, kind in _heads(handle):
                self._byte = following
                if kind == _LAST or pos > start.pos:
                    self._byte = begin
                    break


class FrameWriter:
    """Appends frames; starts a new segment after `segment_bytes`."""

    def __init__(self, folder: Path, segment_bytes: int) -> None:
        self._folder = folder
        self._segment_bytes = segment_bytes
        self._segment: Segment | None = None
        self._handle = -1
        self._written = self._committed = 0
        self._partial = False

    def append(self, end: BinlogPosition, events: Iterable[bytes], partial: bool = False) -> None:
        """Append a frame of the events up to `end`; `partial`: that is inside a transaction."""
        self._frame(end.pos, b"".join(events), _PART if partial else _WHOLE)
        self._partial = partial

    def commit(self, end: BinlogPosition) -> None:
        """Keep the written frames; `end` must be between two transactions."""
        if self._partial:
            self.append(end, ())
        self._committed = self._written
        if self._written >= self._segment_bytes:
            self.begin(end)

    def undo(self) -> None:
        """Remove the frames that were written since the last commit."""
        if self._segment is not None:
            os.ftruncate(self._handle, self._committed)
            self._written, self._partial = self._committed, False

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
        self._handle = os.open(self._segment.path, flags, 0o600)
        self._written = self._committed = 0

    def close(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def _frame(self, pos: int, data: bytes, kind: int) -> None:
        rest = memoryview(FRAME.pack(pos, len(data), kind) + data)
        self._written += len(rest)
        while rest:
            rest = rest[os.write(self._handle, rest) :]


def held_bytes(folder: Path) -> int:
    """The bytes of a log's frames."""
    return sum(segment.bytes for segment in segments(folder))


def drop_old(folder: Path, needed: BinlogPosition | None, most_bytes: int | None) -> None:
    """Drop segments before `needed`, and the oldest ones while all exceed `most_bytes` together.

    The newest segment always stays. `most_bytes` None: any size.
    """
    ordered = segments(folder)
    sizes = [segment.bytes for segment in ordered]
    total = sum(sizes)
    for segment, size, after in zip(ordered, sizes, ordered[1:], strict=False):
        fits = most_bytes is None or total <= most_bytes
        if fits and (needed is None or after.start > needed):
            break
        segment.path.unlink(missing_ok=True)
        total -= size
