"""Scans the server's binlog for statements about tables."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from streamhouse.connectors.mysql_cdc.binlog.captured_table import CapturedTable
from streamhouse.connectors.mysql_cdc.binlog.change_decoder import TRANSACTION_CONTROL
from streamhouse.connectors.mysql_cdc.binlog.dump import BinlogDump, RawEvent
from streamhouse.connectors.mysql_cdc.binlog.format.events import QUERY, PositionTracker, query_of
from streamhouse.connectors.mysql_cdc.binlog.limits import reset_error
from streamhouse.connectors.mysql_cdc.binlog.query import Statement, statement_of
from streamhouse.connectors.mysql_cdc.binlog.statements import ParsedStatement
from streamhouse.mysql.connection import retried
from streamhouse.mysql.position import BinlogPosition

_STALLED_SECONDS = 20.0
_NOWHERE = BinlogPosition("none.0", 0)


class FoundStatement(NamedTuple):
    """A statement that concerns a table, with the ends of transactions before and after it."""

    before: BinlogPosition
    statement: Statement
    after: BinlogPosition
    table: CapturedTable


class StatementScan:
    """Finds statements about tables; keeps its binlog connection for the next range."""

    def __init__(self, tables: Sequence[CapturedTable]) -> None:
        self._tables, self._options = tuple(tables), tables[0].options
        self._mariadb, self._ignores_case = tables[0].mariadb, tables[0].ignores_case
        self._dump: BinlogDump | None = None
        self._track = PositionTracker(_NOWHERE, True)
        self._events: Iterator[RawEvent] = iter(())

    def between(self, start: BinlogPosition, end: BinlogPosition) -> list[FoundStatement]:
        """The statements between two ends of transactions."""
        if not start < end:
            return []
        return retried(self._options, lambda: self._read(start, end), self.close)

    def group(self, start: BinlogPosition) -> tuple[list[FoundStatement], BinlogPosition]:
        """The statements of the group of events at a position, and the end of the group."""
        try:
            found = retried(self._options, lambda: self._read(start, None), self.close)
            return found, self._track.position
        finally:
            self.close()

    def close(self) -> None:
        dump, self._dump = self._dump, None
        if dump is not None:
            dump.close()

    def _read(self, start: BinlogPosition, end: BinlogPosition | None) -> list[FoundStatement]:
        """The statements up to `end`; None: up to the end of the first group."""
        if self._dump is None or self._track.position != start:
            self.close()
            self._dump = BinlogDump(self._options, start)
            self._track = PositionTracker(start, self._dump.checksums)
            self._events = self._dump.events()
        found: list[FoundStatement] = []
        opened: list[tuple[BinlogPosition, Statement, CapturedTable]] = []
        before, moved = start, time.monotonic()
        while self._track.position < end if end is not None else before == start:
            if time.monotonic() - moved > _STALLED_SECONDS:
                raise reset_error(self._options.address, self._track.position, end or start)
            position = self._track.position
            opened += [(before, *following) for following in self._next()]
            if position != self._track.position:
                moved = time.monotonic()
            if self._track.between:
                before = self._track.position
                found += [FoundStatement(one, text, before, table) for one, text, table in opened]
                opened = []
        return found

    def _next(self) -> list[tuple[Statement, CapturedTable]]:
        """Read one event; returns its statement with each table that the statement concerns."""
        _, kind, size, _, data, at = next(self._events)
        self._track.take(data, at)
        end = at + size - self._track.trailer
        if kind != QUERY or query_of(data, at, end)[1] in TRANSACTION_CONTROL:
            return []
        statement = statement_of(kind, data, at, end, self._mariadb)
        parsed = ParsedStatement(statement, self._ignores_case)
        found = []
        for table in self._tables:
            name = table.parsed_name
            if parsed.concerns(name) or parsed.hides(name):
                found.append((statement, table))
        return found
