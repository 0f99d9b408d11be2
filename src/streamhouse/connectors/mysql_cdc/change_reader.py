"""Reads the changes of one table between two positions of the binlog."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

import pymysql

from streamhouse.connectors.mysql_cdc.binlog.captured import CapturedTable
from streamhouse.connectors.mysql_cdc.binlog.changes import Change, ChangeDecoder
from streamhouse.connectors.mysql_cdc.binlog.dump import Dump
from streamhouse.connectors.mysql_cdc.binlog.events import HEADER, Track
from streamhouse.connectors.mysql_cdc.relay.files import RelayView
from streamhouse.connectors.mysql_cdc.relay.reader import RelayReader
from streamhouse.connectors.mysql_cdc.server.connection import is_lost, readable
from streamhouse.connectors.mysql_cdc.server.position import Position
from streamhouse.connectors.mysql_cdc.server.table import TableDefinition
from streamhouse.errors import DataLossError

_STALLED_SECONDS = 20.0
_ATTEMPTS = 8


class BinlogReader:
    """Reads changes over one binlog connection, from `position` on up to a known end.

    It never reconnects: a stream that is resumed inside a transaction would silently lose rows.
    """

    def __init__(
        self, captured: CapturedTable, start: Position, known: TableDefinition | None = None
    ) -> None:
        self._captured = captured
        self._decoder = ChangeDecoder(captured, known)
        self._dump = Dump(captured.options, start)
        self._track = Track(start, self._dump.checksums)
        self._block = b""
        self._at = 0

    @property
    def position(self) -> Position:
        return self._track.position

    def know(self, table: TableDefinition | None) -> None:
        """Set the table's columns at `position`."""
        self._decoder.know(table)

    def changes(self, end: Position) -> Iterator[Change]:
        """The table's changes from `position` to `end`, which must be the end of an event."""
        advanced, last = time.monotonic(), self.position
        while self.position < end:
            if self._at >= len(self._block):
                if self.position != last:
                    advanced, last = time.monotonic(), self.position
                elif time.monotonic() - advanced > _STALLED_SECONDS:
                    raise DataLossError(
                        f"the binlog of MySQL at {self._captured.options.address} ends at {last}, "
                        f"before {end}: it was reset; start again with a new checkpoint"
                    )
                self._block, self._at = self._dump.block(), 0
            yield from self._next_event()

    def close(self) -> None:
        self._dump.close()

    def _next_event(self) -> Iterator[Change]:
        block, at = self._block, self._at
        _, kind, _, size, _, _ = HEADER.unpack_from(block, at)
        self._at = at + size
        self._track.take(block, at)
        yield from self._decoder.take(
            kind, block, at, at + size - self._track.trailer, self.position
        )


Reader: TypeAlias = BinlogReader | RelayReader

_READERS: dict[tuple[int, CapturedTable], Reader] = {}
_VIEWS: dict[tuple[int, Path], RelayView] = {}


def relay_view(captured: CapturedTable) -> RelayView | None:
    """This process's view of the table's relay log; None if the table has none."""
    if captured.relay is None:
        return None
    key = (os.getpid(), captured.relay)
    if key not in _VIEWS:
        _VIEWS[key] = RelayView(captured.relay)
    return _VIEWS[key]


def open_reader(
    captured: CapturedTable,
    start: Position,
    relayed: bool = True,
    known: TableDefinition | None = None,
) -> Reader:
    """A reader from `start` on.

    It reads the relay log, if that has `start` and `relayed` is True; else the server's binlog.
    """
    view = relay_view(captured) if relayed else None
    if view is not None and view.state() is not None:
        with contextlib.suppress(OSError):
            return RelayReader(captured, view, start, known)
    return BinlogReader(captured, start, known)


def read_changes(
    captured: CapturedTable,
    start: Position,
    end: Position,
    known: TableDefinition | None = None,
) -> Iterator[Change]:
    """The table's changes in a range that starts and ends between transactions.

    `known`: the table's columns at `start`, if they are known.

    The reader is kept for the next range in the same process. If the relay log lacks the range, it
    is read from the server. After a lost connection the range is read again from its start, without
    the changes that were already yielded.
    """
    yielded, attempt, relayed = 0, 0, True
    while start < end:
        reader: Reader | None = None
        try:
            reader = _take_cached(captured, start, relayed) or open_reader(captured, start, relayed)
            reader.know(known)
            for number, change in enumerate(reader.changes(end)):
                if number >= yielded:
                    yielded += 1
                    yield change
            _cache(captured, reader, end)
            return
        except (pymysql.err.MySQLError, OSError) as error:
            if isinstance(reader, RelayReader):
                relayed = False
                continue
            attempt += 1
            if not is_lost(error) or attempt >= _ATTEMPTS:
                raise readable(error, captured.options) from None
            time.sleep(min(0.1 * 2**attempt, 5.0))
        finally:
            if reader is not None and reader not in _READERS.values():
                reader.close()


def _take_cached(captured: CapturedTable, start: Position, relayed: bool) -> Reader | None:
    """Take the cached reader, if it is at `start` and reads from where it should."""
    # The process id: a forked worker must not share its parent's connection.
    reader = _READERS.pop((os.getpid(), captured), None)
    if reader is None:
        return None
    view = relay_view(captured)
    begin = None if view is None or view.state() is None else view.begin()
    in_relay = relayed and begin is not None and begin <= start
    if reader.position == start and in_relay == isinstance(reader, RelayReader):
        return reader
    reader.close()
    return None


def _cache(captured: CapturedTable, reader: Reader, end: Position) -> None:
    key = (os.getpid(), captured)
    if reader.position == end and key not in _READERS:
        _READERS[key] = reader


def close_readers(captured: CapturedTable) -> None:
    """Close the reader that this process keeps for the table, if any."""
    reader = _READERS.pop((os.getpid(), captured), None)
    if reader is not None:
        reader.close()
