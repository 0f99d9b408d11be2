"""Reads row events from the relay log."""

from __future__ import annotations

from collections.abc import Iterator

from streamhouse.connectors.mysql_cdc.binlog.change_decoder import TableEvent, TablesDecoder
from streamhouse.connectors.mysql_cdc.binlog.format.events import HEADER, ROWS
from streamhouse.connectors.mysql_cdc.relay.files import FrameReader
from streamhouse.connectors.mysql_cdc.relay.state import RelayView
from streamhouse.mysql.position import BinlogPosition

_NO_END = 1 << 32
"""Greater than any position in a binlog file, since an event's header has 32 bits for it."""


class RelayReader:
    """Reads row events from a relay log, from `start` on.

    Raises `OSError` if the log lacks the requested range, or does not reach its end within 10 s.
    """

    def __init__(self, view: RelayView, decoder: TablesDecoder, start: BinlogPosition) -> None:
        self.position = start
        self.decoder = decoder
        self._view = view
        self._frames = FrameReader(view.folder, start)

    def row_events(self, end: BinlogPosition) -> Iterator[TableEvent]:
        """The row events from `position` to `end`; both must be between transactions."""
        if not self._view.reaches(end):
            raise FileNotFoundError(f"the relay log in {self._view.folder} does not reach {end}")
        start, decoder, header = self.position, self.decoder, HEADER.unpack_from
        for frame in self._frames.up_to(end):
            after, until = _event_bounds(frame.end, start, end)
            at, data, trailer = 0, frame.events, frame.trailer
            while at < len(data):
                _, kind, _, size, pos, _ = header(data, at)
                if after < pos <= until:
                    if kind in ROWS:
                        event = decoder.row_event(kind, data, at, at + size - trailer)
                        if event is not None:
                            yield event
                    else:
                        decoder.process(kind, data, at, at + size - trailer, frame.end.file, pos)
                at += size
        self.position = max(start, end)

    def close(self) -> None:
        self._frames.close()


def _event_bounds(
    frame: BinlogPosition, start: BinlogPosition, end: BinlogPosition
) -> tuple[int, int]:
    """The positions (after, up to] in a frame's binlog file whose events are in the range."""
    return _within(start, frame), _within(end, frame)


def _within(position: BinlogPosition, frame: BinlogPosition) -> int:
    """A position within a frame's binlog file; 0 or `_NO_END` if in an earlier or later file."""
    if position.file == frame.file:
        return position.pos
    return 0 if position < frame else _NO_END
