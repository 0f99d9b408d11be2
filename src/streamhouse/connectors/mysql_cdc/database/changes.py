"""Reads the changes of many tables in one pass over the relay log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from streamhouse.connectors.mysql_cdc.binlog.captured import CapturedTable
from streamhouse.connectors.mysql_cdc.binlog.changes import (
    Change,
    ChangeDecoder,
    names_of,
    table_names,
    table_number,
)
from streamhouse.connectors.mysql_cdc.binlog.format.events import HEADER, ROWS, TABLE_MAP
from streamhouse.connectors.mysql_cdc.change_reader import StartPoint, read_changes, relay_view
from streamhouse.connectors.mysql_cdc.relay.files import FrameReader, RelayView
from streamhouse.connectors.mysql_cdc.relay.reader import event_bounds
from streamhouse.connectors.mysql_cdc.server.position import Position

_WAIT_S = 10.0

TableChange: TypeAlias = tuple[int, Change]
"""A change, and the index of its table."""


@dataclass(frozen=True)
class TableRange:
    """A table whose changes are read; `start`: where, and its columns there."""

    captured: CapturedTable
    start: StartPoint


def read_many(tables: Sequence[TableRange], end: Position) -> Iterator[TableChange]:
    """The changes of the tables up to `end`, those of one table in order.

    All begin at the same position. They are read in one pass over the relay log. If that lacks the
    range, or if tasks run on another host, each table is read from the server.
    """
    yielded = [0] * len(tables)
    view = relay_view(tables[0].captured)
    start = tables[0].start
    if view is not None and view.continues(start.known.binlog, start.position):
        try:
            for index, change in _relayed(tables, view, end):
                yielded[index] += 1
                yield index, change
            return
        except OSError:
            # The log lacks the range, or has ended: what was not read yet is on the server.
            pass
    for index, table in enumerate(tables):
        for number, change in enumerate(read_changes(table.captured, table.start, end)):
            if number >= yielded[index]:
                yield index, change


class _Decoders:
    """The decoders of the tables; finds the one that an event is for."""

    def __init__(self, tables: Sequence[TableRange]) -> None:
        self._all = [ChangeDecoder(one.captured, one.start.table) for one in tables]
        self._ignores_case = tables[0].captured.ignores_case
        self._by_names = {
            self._folded(names_of(one.captured.table.database, one.captured.table.name)): index
            for index, one in enumerate(tables)
        }
        self._by_table_id: dict[bytes, int] = {}

    def take(
        self, kind: int, data: bytes, at: int, end: int, where: Position
    ) -> Iterator[TableChange]:
        """The changes in the event at bytes `at` to `end`."""
        if kind in ROWS:
            index = self._by_table_id.get(table_number(data, at))
        elif kind == TABLE_MAP:
            index = self._by_names.get(self._folded(table_names(data, at)))
            if index is None:
                self._by_table_id.pop(table_number(data, at), None)
            else:
                self._by_table_id[table_number(data, at)] = index
        else:
            for number, decoder in enumerate(self._all):
                for change in decoder.take(kind, data, at, end, where):
                    yield number, change
            return
        if index is not None:
            for change in self._all[index].take(kind, data, at, end, where):
                yield index, change

    def _folded(self, names: bytes) -> bytes:
        if not self._ignores_case:
            return names
        return names.decode("utf-8", "replace").lower().encode()


def _relayed(tables: Sequence[TableRange], view: RelayView, end: Position) -> Iterator[TableChange]:
    start = tables[0].start.position
    if not view.reaches(end, _WAIT_S):
        raise FileNotFoundError(f"the relay log in {view.folder} does not reach {end}")
    decoders = _Decoders(tables)
    frames = FrameReader(view.folder, start)
    try:
        for frame in frames.upto(end):
            after, until = event_bounds(frame.end, start, end)
            at, data = 0, frame.events
            while at < len(data):
                _, kind, _, size, pos, _ = HEADER.unpack_from(data, at)
                if after < pos <= until:
                    stop = at + size - frame.trailer
                    yield from decoders.take(kind, data, at, stop, Position(frame.end.file, pos))
                at += size
    finally:
        frames.close()
