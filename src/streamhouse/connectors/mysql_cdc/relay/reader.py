"""Reads row events from the relay log."""

from __future__ import annotations

from collections.abc import Iterator

from streamhouse.connectors.mysql_cdc.binlog.captured_table import CapturedTable
from streamhouse.connectors.mysql_cdc.binlog.change_decoder import (
    ChangeDecoder,
    Decoded_co,
    Decoder,
)
from streamhouse.connectors.mysql_cdc.binlog.format.events import HEADER, ROWS
from streamhouse.connectors.mysql_cdc.binlog.rows.event import RowEvent
from streamhouse.connectors.mysql_cdc.relay.files import FrameReader
from streamhouse.connectors.mysql_cdc.relay.state import RelayView
from streamhouse.connectors.mysql_cdc.server.position import BinlogPosition
from streamhouse.connectors.mysql_cdc.server.table import TableDefinition

_NO_END = 1 << 32
"""Greater than any position in a binlog file, since an event's header has 32 bits for it."""


class RelayReader:
    """Reads the table's row events from a relay log, from `start` on.

    Raises `OSError` if the log lacks the requested range, or does not reach its end within 10 s.
    """

    def __init__(
        self,
        captured: CapturedTable,
        view: RelayView,
        start: BinlogPosition,
        table: TableDefinition | None = None,
    ) -> None:
        self.position = start
        self._view = view
        self._decoder = ChangeDecoder(captured, table)
        self._frames = FrameReader(view.folder, start)

    def set_table(self, table: TableDefinition | None) -> None:
        """Set the table's columns at `position`."""
        self._decoder.set_table(table)

    def row_events(self, end: BinlogPosition) -> Iterator[RowEvent]:
        """The table's row events from `position` to `end`; both must be between transactions."""
        yield from relayed_events(self._view, self._frames, self._decoder, self.position, end)
        self.position = max(self.position, end)

    def close(self) -> None:
        self._frames.close()


def relayed_events(
    view: RelayView,
    frames: FrameReader,
    decoder: Decoder[Decoded_co],
    start: BinlogPosition,
    end: BinlogPosition,
) -> Iterator[Decoded_co]:
    """The row events between two positions, which must be between transactions.

    Raises `OSError` if the log lacks the range, or does not reach its end within 10 s.
    """
    if not view.reaches(end):
        raise FileNotFoundError(f"the relay log in {view.folder} does not reach {end}")
    header = HEADER.unpack_from
    for frame in frames.up_to(end):
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
