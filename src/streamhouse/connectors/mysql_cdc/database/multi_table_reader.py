"""Reads the changes of many tables in one pass over the binlog, in its order."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import pymysql

from streamhouse.connectors.mysql_cdc.binlog.captured_table import CapturedTable
from streamhouse.connectors.mysql_cdc.binlog.change_decoder import (
    ChangeDecoder,
    folded_names,
    names_of,
    table_id,
    table_names,
)
from streamhouse.connectors.mysql_cdc.binlog.format.events import TABLE_MAP
from streamhouse.connectors.mysql_cdc.binlog.rows.event import RowEvent
from streamhouse.connectors.mysql_cdc.change_reader import BinlogReader, TablePosition, relay_view
from streamhouse.connectors.mysql_cdc.relay.files import FrameReader
from streamhouse.connectors.mysql_cdc.relay.reader import relayed_events
from streamhouse.connectors.mysql_cdc.relay.state import RelayView
from streamhouse.connectors.mysql_cdc.server.connection import Backoff, is_lost, readable
from streamhouse.connectors.mysql_cdc.server.position import BinlogPosition

TableEvent: TypeAlias = tuple[int, RowEvent]
"""A row event, and the index of its table."""


@dataclass(frozen=True)
class TableRange:
    """A table whose changes are read, from `start` on."""

    captured: CapturedTable
    start: TablePosition


def read_tables(tables: Sequence[TableRange], end: BinlogPosition) -> Iterator[TableEvent]:
    """The row events of the tables up to `end`, in the order of the binlog.

    All begin at the same position. They are read in one pass over the relay log, or over the
    server's binlog if there is no relay log, or it lacks the range.
    """
    yielded = 0
    view, start = relay_view(tables[0].captured), tables[0].start
    binlog_state = start.binlog_state
    if (
        view is not None
        and binlog_state.skip is None
        and view.continues(binlog_state.identity, start.position)
    ):
        try:
            for event in _relayed(tables, view, end):
                yielded += 1
                yield event
            return
        except OSError:
            # The log lacks the range, or has ended: read the rest from the server.
            pass
    yield from _from_server(tables, end, yielded)


class _TableDecoders:
    """The decoders of several tables, as one decoder."""

    def __init__(self, tables: Sequence[TableRange]) -> None:
        self._all = [ChangeDecoder(table.captured, table.start.table) for table in tables]
        self._ignores_case = tables[0].captured.ignores_case
        self._by_names = {
            self._names(names_of(table.captured.table.database, table.captured.table.name)): index
            for index, table in enumerate(tables)
        }
        self._by_table_id: dict[bytes, int] = {}

    def selects(self, kind: int, data: bytes, at: int, end: int) -> bool:
        """Whether `process` needs this event, which is not a row event."""
        return kind != TABLE_MAP or self._names(table_names(data, at)) in self._by_names

    def row_event(
        self, kind: int, data: bytes, at: int, end: int, skipped: int = 0
    ) -> TableEvent | None:
        """A row event with the index of its table; None for other tables."""
        index = self._by_table_id.get(table_id(data, at))
        if index is None:
            return None
        event = self._all[index].row_event(kind, data, at, end, skipped)
        return None if event is None else (index, event)

    def process(self, kind: int, data: bytes, at: int, end: int, file: str, pos: int) -> None:
        """Take an event that is not a row event; `file` and `pos`: its end, for messages."""
        if kind != TABLE_MAP:
            for decoder in self._all:
                decoder.process(kind, data, at, end, file, pos)
            return
        number = table_id(data, at)
        index = self._by_names.get(self._names(table_names(data, at)))
        if index is None:
            self._by_table_id.pop(number, None)
        else:
            self._by_table_id[number] = index
            self._all[index].process(kind, data, at, end, file, pos)

    def set_table(self, tables: Sequence[TableRange]) -> None:
        """Set the tables' columns at the position of the next event."""
        for decoder, table in zip(self._all, tables, strict=True):
            decoder.set_table(table.start.table)

    def _names(self, names: bytes) -> bytes:
        return folded_names(names, self._ignores_case)


def _relayed(
    tables: Sequence[TableRange], view: RelayView, end: BinlogPosition
) -> Iterator[TableEvent]:
    start = tables[0].start.position
    frames = FrameReader(view.folder, start)
    try:
        yield from relayed_events(view, frames, _TableDecoders(tables), start, end)
    finally:
        frames.close()


class _ServerReader(BinlogReader[TableEvent]):
    """Reads the row events of several tables from the server's binlog."""

    def __init__(self, tables: Sequence[TableRange]) -> None:
        first = tables[0]
        self.decoders = _TableDecoders(tables)
        super().__init__(
            first.captured.options, self.decoders, first.start.position, first.start.binlog_state
        )


_ReaderKey: TypeAlias = tuple[int, tuple[CapturedTable, ...]]
_READERS: dict[_ReaderKey, _ServerReader] = {}


def _key(captured: Iterable[CapturedTable]) -> _ReaderKey:
    # The process id: a forked worker must not share its parent's connection.
    return os.getpid(), tuple(captured)


def _from_server(
    tables: Sequence[TableRange], end: BinlogPosition, skip: int
) -> Iterator[TableEvent]:
    """The row events without the first `skip`; keeps the reader for the next range."""
    start, options = tables[0].start, tables[0].captured.options
    key, backoff, yielded = _key(table.captured for table in tables), Backoff(options), skip
    while start.position < end:
        reader = _READERS.pop(key, None)
        if reader is not None and not (
            reader.position == start.position and reader.continues(start.binlog_state)
        ):
            reader.close()
            reader = None
        try:
            if reader is None:
                close_readers(key[1])
                reader = _ServerReader(tables)
            reader.decoders.set_table(tables)
            for number, event in enumerate(reader.row_events(end)):
                if number >= yielded:
                    yielded += 1
                    yield event
            if reader.position == end:
                _READERS[key] = reader
            return
        except (pymysql.err.MySQLError, OSError) as error:
            if not is_lost(error) or not backoff.wait(error):
                raise readable(error, options) from None
        finally:
            if reader is not None and _READERS.get(key) is not reader:
                reader.close()


def close_readers(captured: Iterable[CapturedTable]) -> None:
    """Close the readers that this process keeps for any of the tables."""
    wanted = set(captured)
    own = [key for key in _READERS if key[0] == os.getpid()]
    for key in [key for key in own if wanted.intersection(key[1])]:
        _READERS.pop(key).close()
