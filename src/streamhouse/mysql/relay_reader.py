"""A range of changes of one table, read from the relay log."""

from __future__ import annotations

from collections.abc import Iterator

from streamhouse.mysql.changes import Change, ChangeDecoder, Following
from streamhouse.mysql.events import HEADER
from streamhouse.mysql.position import Position
from streamhouse.mysql.relay_files import FrameReader, RelayView

_WAIT_S = 10.0


class RelayReader:
    """Reads the table's changes from a relay log, on from `start`.

    `OSError` when the log does not have what is asked for, or not within some seconds.
    """

    def __init__(self, following: Following, view: RelayView, start: Position) -> None:
        self.position = start
        self._view = view
        self._decoder = ChangeDecoder(following)
        self._frames = FrameReader(view.folder, start)

    def changes(self, end: Position) -> Iterator[Change]:
        """The table's changes from `position` to `end`, both between transactions."""
        if not self._view.reaches(end, _WAIT_S):
            raise FileNotFoundError(f"the relay log in {self._view.folder} does not reach {end}")
        for frame in self._frames.upto(end):
            at = 0
            while at < len(frame.events):
                _, kind, _, size, pos, _ = HEADER.unpack_from(frame.events, at)
                where = Position(frame.end.file, pos)
                if self.position < where <= end:
                    yield from self._decoder.take(
                        kind, frame.events, at, at + size - frame.trailer, where
                    )
                at += size
        self.position = max(self.position, end)

    def close(self) -> None:
        """Close the files."""
        self._frames.close()
