"""Buffers the events of one transaction until it ends."""

import itertools
import struct
import tempfile
from collections.abc import Iterator
from typing import IO, NamedTuple

from streamhouse.connectors.mysql_cdc.binlog.format.events import STATEMENTS
from streamhouse.errors import DataLossError

MOST_BYTES = 32 * 1024 * 1024
"""How many bytes of one transaction to keep in memory; the rest is on the local disk."""

_SPILLED = struct.Struct("<BII")


class Event(NamedTuple):
    """An event at bytes `at` to `end` (without checksum) of `data`; `pos`: its end in the file."""

    kind: int
    data: bytes
    at: int
    end: int
    pos: int


class TransactionBuffer:
    """The kept events of one transaction, in order, with its savepoints.

    It keeps the received blocks of events, up to `most_bytes` of them, and moves events to a
    temporary file beyond that. A rollback leaves out changes of rows, but no statements, since it
    does not undo their effects on temporary tables.
    """

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._events: list[Event] = []
        self._bytes = 0
        self._last_block: bytes = b""
        self._file: IO[bytes] | None = None
        self._file_bytes = 0
        self._count = 0
        self._savepoints: list[tuple[str, int]] = []
        self._rolled_back: list[range] = []
        self._has_statements = self._statements_taken = False

    def __bool__(self) -> bool:
        return any(True for _ in self.events())

    @property
    def memory_bytes(self) -> int:
        """About how many bytes of memory it needs."""
        return self._bytes

    def add(self, kind: int, data: bytes, at: int, end: int, pos: int) -> None:
        """Keep an event."""
        if data is not self._last_block:
            self._last_block = data
            self._bytes += len(data)
            if self._bytes > self._most_bytes and self._events:
                self._spill()
                self._bytes = len(data)
        self._events.append(Event(kind, data, at, end, pos))
        self._count += 1
        if kind in STATEMENTS:
            self._has_statements = True

    def savepoint(self, name: str) -> None:
        """Set a savepoint; an earlier one of the same name is forgotten."""
        self._savepoints = [savepoint for savepoint in self._savepoints if savepoint[0] != name]
        self._savepoints.append((name, self._count))

    def rollback(self) -> None:
        """Leave out the changes of rows."""
        self._savepoints, self._rolled_back = [], [range(self._count)]

    def rollback_to(self, name: str) -> None:
        """Leave out the changes of rows since a savepoint; drop all later savepoints."""
        names = [savepoint[0] for savepoint in self._savepoints]
        if name not in names or not all(text.isascii() for text in names):
            # The server also compares names without accents: é is e.
            others = [other for other in names if other != name]
            if name not in names or others:
                raise DataLossError(
                    f"a transaction is rolled back to an unclear savepoint '{name}'"
                )
        at = names.index(name)
        self._rolled_back.append(range(self._savepoints[at][1], self._count))
        del self._savepoints[at + 1 :]

    def take_statements(self) -> "TransactionBuffer":
        """Remove the statements; returns them in a buffer of their own."""
        taken = TransactionBuffer()
        if self._has_statements:
            for event in self.events():
                if event.kind in STATEMENTS:
                    taken.add(*event)
            self._statements_taken = True
        return taken

    def events(self) -> Iterator[Event]:
        """All events that were not rolled back."""
        for number, event in enumerate(itertools.chain(self._spilled(), self._events)):
            if event.kind in STATEMENTS:
                if self._statements_taken:
                    continue
            elif any(number in some for some in self._rolled_back):
                continue
            yield event

    def close(self) -> None:
        """Release the events."""
        if self._file is not None:
            self._file.close()
            self._file = None
        self._events, self._savepoints = [], []
        self._last_block, self._bytes, self._file_bytes = b"", 0, 0

    def _spilled(self) -> Iterator[Event]:
        """The events in the file."""
        if self._file is None:
            return
        self._file.seek(0)
        remaining = self._file_bytes
        while remaining:
            kind, size, pos = _SPILLED.unpack(self._file.read(_SPILLED.size))
            data = self._file.read(size)
            remaining -= _SPILLED.size + size
            yield Event(kind, data, 0, size, pos)

    def _spill(self) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="streamhouse-mysql-")
        self._file.seek(self._file_bytes)
        for kind, data, at, end, pos in self._events:
            self._file.write(_SPILLED.pack(kind, end - at, pos))
            self._file.write(memoryview(data)[at:end])
        self._events, self._file_bytes = [], self._file.tell()
