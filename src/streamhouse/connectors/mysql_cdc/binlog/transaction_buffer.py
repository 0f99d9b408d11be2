"""Buffers the events of one transaction until it ends."""

from __future__ import annotations

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
    temporary file beyond that. A rollback drops changes of rows, but no statements, since it does
    not undo their effects on temporary tables.
    """

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._events: list[Event] = []
        self._bytes = 0
        self._last_block: bytes = b""
        self._file: IO[bytes] | None = None
        self._file_bytes = 0
        self._savepoints: list[tuple[str, int, int]] = []
        self._has_statements = self._statements_taken = False

    def __bool__(self) -> bool:
        return bool(self._events or self._file_bytes)

    @property
    def memory_bytes(self) -> int:
        """About how many bytes of memory it needs."""
        return self._bytes

    @property
    def spilled(self) -> bool:
        """Whether a part is on the disk."""
        return self._file_bytes > 0

    def add(self, kind: int, data: bytes, at: int, end: int, pos: int) -> None:
        """Keep an event."""
        if data is not self._last_block:
            self._last_block = data
            self._bytes += len(data)
            if self._bytes > self._most_bytes and self._events:
                self._spill()
                self._bytes = len(data)
        self._events.append(Event(kind, data, at, end, pos))
        if kind in STATEMENTS:
            self._has_statements = True

    def savepoint(self, name: str) -> None:
        """Set a savepoint; an earlier one of the same name is forgotten."""
        self._savepoints = [savepoint for savepoint in self._savepoints if savepoint[0] != name]
        self._savepoints.append((name, self._file_bytes, len(self._events)))

    def rollback(self) -> None:
        """Drop the changes of rows."""
        self._savepoints = []
        self._drop_since(0, 0)

    def rollback_to(self, name: str) -> None:
        """Drop the changes of rows since a savepoint, and all later savepoints."""
        names = [savepoint[0] for savepoint in self._savepoints]
        if name not in names or not all(text.isascii() for text in names):
            # The server also compares names without accents: é is e.
            others = [other for other in names if other != name]
            if name not in names or others:
                raise DataLossError(
                    f"a transaction is rolled back to an unclear savepoint '{name}'"
                )
        at = names.index(name)
        _, file_bytes, count = self._savepoints[at]
        del self._savepoints[at + 1 :]
        self._drop_since(file_bytes, count)

    def take_statements(self) -> TransactionBuffer:
        """Remove the statements; returns them in a buffer of their own."""
        taken = TransactionBuffer()
        if self._has_statements:
            for event in self.events():
                if event.kind in STATEMENTS:
                    taken.add(*event)
            self._statements_taken = True
        return taken

    def events(self) -> Iterator[Event]:
        """All events."""
        for event in itertools.chain(self._spilled(0), self._events):
            if not self._statements_taken or event.kind not in STATEMENTS:
                yield event

    def close(self) -> None:
        """Release the events."""
        if self._file is not None:
            self._file.close()
            self._file = None
        self._events, self._savepoints = [], []
        self._last_block, self._bytes, self._file_bytes = b"", 0, 0

    def _drop_since(self, file_bytes: int, count: int) -> None:
        dropped = itertools.chain(self._spilled(file_bytes), self._events[count:])
        kept = [event for event in dropped if self._has_statements and event.kind in STATEMENTS]
        self._file_bytes = file_bytes
        self._events[count:] = kept

    def _spilled(self, begin: int) -> Iterator[Event]:
        """The events in the file, from byte `begin` on."""
        if self._file is None:
            return
        self._file.flush()
        self._file.seek(begin)
        remaining = self._file_bytes - begin
        while remaining:
            kind, size, pos = _SPILLED.unpack(self._file.read(_SPILLED.size))
            data = self._file.read(size)
            remaining -= _SPILLED.size + size
            yield Event(kind, data, 0, size, pos)

    def _spill(self) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="streamhouse-mysql-")
        self._file.seek(self._file_bytes)
        offsets = [self._file_bytes]
        for kind, data, at, end, pos in self._events:
            self._file.write(_SPILLED.pack(kind, end - at, pos))
            self._file.write(memoryview(data)[at:end])
            offsets.append(offsets[-1] + _SPILLED.size + end - at)
        self._savepoints = [
            (name, offsets[count] if count else before, 0)
            for name, before, count in self._savepoints
        ]
        self._events, self._file_bytes = [], offsets[-1]
