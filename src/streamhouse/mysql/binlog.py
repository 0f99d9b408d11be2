"""The binlog as changes of one table, from one position to another."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pymysql

from streamhouse.errors import DataLossError
from streamhouse.mysql.changes import Change, ChangeDecoder, Following
from streamhouse.mysql.connection import is_lost, readable
from streamhouse.mysql.dump import Dump
from streamhouse.mysql.events import HEADER, Track
from streamhouse.mysql.position import Position

_STALLED_SECONDS = 20.0
_ATTEMPTS = 8


class BinlogReader:
    """One binlog connection, at `position`; reads on to a known end.

    It never reconnects by itself: a stream taken up in the middle of a transaction would lose
    rows without a word.
    """

    def __init__(self, following: Following, start: Position) -> None:
        self._following = following
        self._decoder = ChangeDecoder(following)
        self._dump = Dump(following.options, start)
        self._track = Track(start, self._dump.checksums)
        self._block = b""
        self._at = 0

    @property
    def position(self) -> Position:
        return self._track.position

    def changes(self, end: Position) -> Iterator[Change]:
        """The table's changes from `position` to `end`, which must be an event's end."""
        progress, last = time.monotonic(), self.position
        while self.position < end:
            if self._at >= len(self._block):
                if self.position != last:
                    progress, last = time.monotonic(), self.position
                elif time.monotonic() - progress > _STALLED_SECONDS:
                    raise DataLossError(
                        f"the binlog of MySQL at {self._following.options.address} ends at {last}, "
                        f"before {end}: it was reset; start anew with a new checkpoint"
                    )
                self._block, self._at = self._dump.block(), 0
            yield from self._next_event()

    def close(self) -> None:
        """Drop the connection."""
        self._dump.close()

    def _next_event(self) -> Iterator[Change]:
        block, at = self._block, self._at
        _, kind, _, size, _, _ = HEADER.unpack_from(block, at)
        self._at = at + size
        self._track.take(block, at)
        yield from self._decoder.take(
            kind, block, at, at + size - self._track.trailer, self.position
        )


_READERS: dict[tuple[int, Following], BinlogReader] = {}


def read_changes(following: Following, start: Position, end: Position) -> Iterator[Change]:
    """The table's changes of a range that starts and ends between transactions.

    The connection is kept for the range that follows in the same process. A lost connection is
    opened again at the start, past the changes that were given already.
    """
    given, attempt = 0, 0
    while True:
        try:
            for number, change in enumerate(_read_once(following, start, end)):
                if number >= given:
                    given += 1
                    yield change
            return
        except (pymysql.err.MySQLError, OSError) as error:
            attempt += 1
            if not is_lost(error) or attempt >= _ATTEMPTS:
                raise readable(error, following.options) from None
            time.sleep(min(0.1 * 2**attempt, 5.0))


def _read_once(following: Following, start: Position, end: Position) -> Iterator[Change]:
    if not start < end:
        return
    # The process id: a forked worker must not share its parent's connection.
    key = (os.getpid(), following)
    reader = _READERS.pop(key, None)
    if reader is not None and reader.position != start:
        reader.close()
        reader = None
    if reader is None:
        reader = BinlogReader(following, start)
    done = False
    try:
        yield from reader.changes(end)
        done = reader.position == end
    finally:
        if done and key not in _READERS:
            _READERS[key] = reader
        else:
            reader.close()


def close_readers(following: Following) -> None:
    """Close the kept connection of this process."""
    reader = _READERS.pop((os.getpid(), following), None)
    if reader is not None:
        reader.close()
