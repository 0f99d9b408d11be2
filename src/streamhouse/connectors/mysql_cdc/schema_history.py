"""The columns of a table by position of the binlog; they are part of a stream's offsets.

docs/decisions/140-statements-in-the-binlog.md says why.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, astuple, fields, replace
from typing import Any, NamedTuple

import pymysql

from streamhouse.connectors.mysql_cdc.binlog.captured_table import CapturedTable
from streamhouse.connectors.mysql_cdc.binlog.change_decoder import PASSING
from streamhouse.connectors.mysql_cdc.binlog.dump import Dump
from streamhouse.connectors.mysql_cdc.binlog.format.events import HEADER, QUERY, Track, query_of
from streamhouse.connectors.mysql_cdc.binlog.query import Statement, statement_of
from streamhouse.connectors.mysql_cdc.binlog.statements import ParsedStatement, StatementCheck
from streamhouse.connectors.mysql_cdc.change_reader import relay_view
from streamhouse.connectors.mysql_cdc.server.connection import Backoff, Session, is_lost, readable
from streamhouse.connectors.mysql_cdc.server.position import START_AGAIN, BinlogPosition
from streamhouse.connectors.mysql_cdc.server.table import Server, TableDefinition, load_table
from streamhouse.connectors.mysql_cdc.server.values.types import MySqlColumn
from streamhouse.errors import DataLossError, SchemaChangeError, TableError
from streamhouse.source import Offset

_KEY = "table"
_STALLED_SECONDS = 20.0
_NOWHERE = BinlogPosition("none.0", 0)
REMEMBERED = 16
"""How many statements about a table the relay log keeps."""
_DEFAULTS = [None if field.default is MISSING else field.default for field in fields(MySqlColumn)]


class Found(NamedTuple):
    """A statement that concerns a table, and the ends of transactions around it."""

    before: BinlogPosition
    statement: Statement
    after: BinlogPosition
    table: CapturedTable


class StatementScan:
    """Finds the statements about tables of a server in its binlog, over a connection it keeps."""

    def __init__(self, tables: Sequence[CapturedTable]) -> None:
        self._tables, self._options = tuple(tables), tables[0].options
        self._mariadb, self._ignores_case = tables[0].mariadb, tables[0].ignores_case
        self._dump: Dump | None = None
        self._track = Track(_NOWHERE, True)
        self._block, self._at = b"", 0

    def between(self, start: BinlogPosition, end: BinlogPosition) -> list[Found]:
        """The statements between two ends of transactions."""
        backoff = Backoff(self._options)
        while start < end:
            try:
                return self._read(start, end)
            except (pymysql.err.MySQLError, OSError) as error:
                self.close()
                if not is_lost(error) or not backoff.wait(error):
                    raise readable(error, self._options) from None
        return []

    def group(self, start: BinlogPosition) -> tuple[list[Found], BinlogPosition]:
        """The statements of the group of events at a position, and the group's end."""
        backoff = Backoff(self._options)
        while True:
            try:
                found = self._read(start, None)
                return found, self._track.position
            except (pymysql.err.MySQLError, OSError) as error:
                if not is_lost(error) or not backoff.wait(error):
                    raise readable(error, self._options) from None
            finally:
                self.close()

    def close(self) -> None:
        dump, self._dump = self._dump, None
        if dump is not None:
            dump.close()

    def _read(self, start: BinlogPosition, end: BinlogPosition | None) -> list[Found]:
        """The statements up to `end`; None: up to the end of the first group."""
        if self._dump is None or self._track.position != start:
            self.close()
            self._dump = Dump(self._options, start)
            self._track = Track(start, self._dump.checksums)
            self._block, self._at = b"", 0
        found: list[Found] = []
        opened: list[tuple[BinlogPosition, Statement, CapturedTable]] = []
        before, moved = start, time.monotonic()
        while self._track.position < end if end is not None else before == start:
            if self._at >= len(self._block):
                if time.monotonic() - moved > _STALLED_SECONDS:
                    raise DataLossError(
                        f"the binlog of MySQL at {self._options.address} ends at "
                        f"{self._track.position}, before {end or 'a statement'}: it was "
                        f"reset; {START_AGAIN}"
                    )
                self._block, self._at = self._dump.block(), 0
            position = self._track.position
            opened += [(before, *one) for one in self._next()]
            if position != self._track.position:
                moved = time.monotonic()
            if self._track.between:
                before = self._track.position
                found += [Found(one, text, before, table) for one, text, table in opened]
                opened = []
        return found

    def _next(self) -> list[tuple[Statement, CapturedTable]]:
        """Read one event: the statement in it, with each table that it concerns."""
        block, at = self._block, self._at
        _, kind, _, size, _, _ = HEADER.unpack_from(block, at)
        self._at = at + size
        self._track.take(block, at)
        end = at + size - self._track.trailer
        if kind != QUERY or query_of(block, at, end)[1] in PASSING:
            return []
        statement = statement_of(kind, block, at, end, self._mariadb)
        parsed = ParsedStatement(statement, self._ignores_case)
        found = []
        for one in self._tables:
            name = one.parsed_name
            if parsed.concerns(name) or parsed.hides(name):
                found.append((statement, one))
        return found


class SchemaHistory:
    """Knows the table's columns at the positions of offsets; driver only."""

    def __init__(self, captured: CapturedTable, session: Session, server: Server) -> None:
        self._captured, self._session, self._server = captured, session, server
        self._scan = StatementScan([captured])
        self._check = StatementCheck(captured, None)

    def close(self) -> None:
        self._scan.close()

    def next(
        self, start: Offset, begin: BinlogPosition, end: BinlogPosition, cut: bool = True
    ) -> tuple[BinlogPosition, dict[str, Any]]:
        """The end of a batch, and what its offset has about the columns there.

        With `cut` a batch ends before a statement about the table; the next one is the statement
        alone.
        """
        if begin == end:
            return end, {_KEY: start[_KEY]} if _KEY in start else {}
        known = self.at(start, begin)
        found = self._statements(begin, end)
        if found and cut:
            end = found[0].before if begin < found[0].before else found[0].after
            found = [one for one in found if one.after <= end]
        known = self._after(known, found)
        if known is None:
            known = self._now_as_of(end)
        return end, described(known, self._captured)

    def at(self, offset: Offset, position: BinlogPosition) -> TableDefinition | None:
        """The table as of an offset at `position`; None if that is not known.

        An offset of an earlier release has no columns: then the table's current ones are right, if
        it was not altered since. Raises `SchemaChangeError` if the server logs no names of columns,
        and it was.
        """
        known = table_at(offset, self._captured.table)
        if known is not None or not self._captured.by_place:
            return known
        known = self._now_as_of(position)
        if known is None:
            raise SchemaChangeError(
                f"MySQL table {self._captured.table.full_name} was altered after {position}, and "
                "the server logs no names of columns; set binlog_row_metadata = FULL, and "
                f"{START_AGAIN}"
            )
        return known

    def now(self, position: BinlogPosition) -> dict[str, Any]:
        """What an offset at `position`, where a stream begins, has about the columns."""
        return described(self._now_as_of(position), self._captured)

    def _statements(self, start: BinlogPosition, end: BinlogPosition) -> list[Found]:
        view = relay_view(self._captured)
        state = None if view is None else view.state()
        begin = None if view is None or state is None else view.begin()
        if state is not None and begin is not None and begin <= start and end <= state.end:
            altered = state.altered.get(self._captured.options.name, ())
            # The log keeps the last few positions: the first one may not be the first statement.
            if not any(start <= one < end for one in altered) and not (
                len(altered) >= REMEMBERED and start < altered[0]
            ):
                return []
        found = self._scan.between(start, end)
        if self._captured.relay is not None:
            self._scan.close()  # the pipeline has one connection for all tables
        return found

    def _after(self, known: TableDefinition | None, found: list[Found]) -> TableDefinition | None:
        self._check.resume(known)
        for one in found:
            try:
                self._check.take(one.statement, one.after)
            except (SchemaChangeError, DataLossError):
                return known  # the reader of this batch raises it, too
        return self._check.known

    def _now_as_of(self, position: BinlogPosition) -> TableDefinition | None:
        """The table now, if no statement about it lies between `position` and now."""
        try:
            table = load_table(self._session, self._captured.options)
        except TableError:
            return None
        found = self._statements(position, self._server.position(self._session))
        return table if all(self._creates(one.statement) for one in found) else None

    def _creates(self, statement: Statement) -> bool:
        parsed = ParsedStatement(statement, self._captured.ignores_case)
        name = self._captured.parsed_name
        return parsed.creates(name) or (parsed.hides(name) and not parsed.concerns(name))


def described(table: TableDefinition | None, captured: CapturedTable) -> dict[str, Any]:
    """The part of an offset that describes the columns: all, or those that are read."""
    if table is None:
        return {}
    read = {column.name.lower() for column in captured.columns}
    columns = [
        trimmed(column)
        for column in table.columns
        if captured.by_place or column.name.lower() in read
    ]
    part: dict[str, Any] = {"columns": columns, "charset": table.charset}
    if table.hidden_in:
        part["hidden_in"] = [list(session) for session in table.hidden_in]
    return {_KEY: part}


def table_at(offset: Mapping[str, Any], table: TableDefinition) -> TableDefinition | None:
    """The columns of `table` as of an offset; None if the offset does not have them."""
    part = offset.get(_KEY)
    if part is None:
        return None
    columns = tuple(MySqlColumn(*values) for values in part["columns"])
    names = {column.name.lower(): column for column in columns}
    key = tuple(names.get(column.name.lower(), column) for column in table.key)
    hidden = tuple((str(file), int(thread)) for file, thread in part.get("hidden_in", ()))
    return replace(table, columns=columns, key=key, charset=part["charset"], hidden_in=hidden)


def trimmed(column: MySqlColumn) -> list[Any]:
    """The column's values, in the order of its fields, up to the last that is no default."""
    values = list(astuple(column))
    while values[-1] == _DEFAULTS[len(values) - 1]:
        values.pop()
    return values
