"""The columns of all shards at the positions of offsets, and the statements that alter them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from streamhouse.connectors.mysql_cdc.binlog.alter_table import UNKNOWN
from streamhouse.connectors.mysql_cdc.binlog.captured_table import CapturedTable
from streamhouse.connectors.mysql_cdc.binlog.query import Statement
from streamhouse.connectors.mysql_cdc.binlog.statements import ParsedStatement, StatementCheck
from streamhouse.connectors.mysql_cdc.change_reader import relay_view
from streamhouse.connectors.mysql_cdc.database.progress import DatabaseProgress
from streamhouse.connectors.mysql_cdc.database.tables.followed_table import (
    FollowedTable,
    offset_part,
    table_at,
)
from streamhouse.connectors.mysql_cdc.database.tables.table_sets import TableSet
from streamhouse.connectors.mysql_cdc.relay.state import RelayView
from streamhouse.connectors.mysql_cdc.statement_scan import FoundStatement, StatementScan
from streamhouse.errors import DataLossError, SchemaChangeError, TableError
from streamhouse.mysql.connection import Session
from streamhouse.mysql.position import START_AGAIN, BinlogPosition
from streamhouse.mysql.table import Server, TableDefinition, load_table


class ShardHistories:
    """Knows the tables' columns at the positions of offsets; on the driver.

    `captured_of` returns what the binlog's readers need of a table.
    docs/decisions/140-statements-in-the-binlog.md says why.
    """

    def __init__(
        self,
        session: Session,
        server: Server,
        captured_of: Callable[[FollowedTable], CapturedTable],
    ) -> None:
        self._session, self._server, self._captured_of = session, server, captured_of
        self._checks: dict[str, StatementCheck] = {}
        self._scan: tuple[list[CapturedTable], StatementScan] | None = None

    def now(self, position: BinlogPosition, tables: Iterable[FollowedTable]) -> dict[str, Any]:
        """The columns of tables for an offset at a position; {} for those that are not known."""
        captured = {table.id: self._captured_of(table) for table in tables}
        found = self._current_if_unaltered(list(captured.values()), position)
        return {id: offset_part(found.get(own.options.name), own) for id, own in captured.items()}

    def at(self, progress: DatabaseProgress, table: FollowedTable) -> TableDefinition | None:
        """The table as of an offset; None if that is not known.

        An offset has no columns if the stream began before a statement about the table. Then these
        are the table's current ones, if it was not altered since. If it was, and the server logs no
        names of columns, raises `SchemaChangeError`.
        """
        captured = self._captured_of(table)
        known = table_at(progress.columns.get(table.id, {}), captured.table)
        if known is not None or not captured.columns_by_index:
            return known
        known = self._current_if_unaltered([captured], progress.position).get(table.full_name)
        if known is None:
            raise SchemaChangeError(
                f"MySQL table {captured.table.full_name} was altered after {progress.position}, "
                "and the server logs no names of columns; set binlog_row_metadata = FULL, and "
                f"{START_AGAIN}"
            )
        return known

    def cut(
        self,
        before: DatabaseProgress,
        tables: TableSet,
        end: BinlogPosition,
        relay: RelayView | None,
    ) -> tuple[BinlogPosition, dict[str, Any]]:
        """The end of a batch up to `end`, and the columns of all tables there.

        The batch ends before a statement about a table. A batch that starts with such a statement
        contains nothing else. `relay`: the log of all tables, if it has the batch.
        """
        start = before.position
        found = self._found(tables, start, end, relay)
        if found:
            end = found[0].before if start < found[0].before else found[0].after
        found = [event for event in found if event.after <= end]
        return end, self._columns(before, tables, end, found)

    def columns(
        self,
        before: DatabaseProgress,
        tables: TableSet,
        end: BinlogPosition,
        relay: RelayView | None,
    ) -> dict[str, Any]:
        """The columns of all tables at the end of a batch that may contain statements."""
        found = self._found(tables, before.position, end, relay)
        return self._columns(before, tables, end, found)

    def close(self) -> None:
        if self._scan is not None:
            self._scan[1].close()

    def _found(
        self, tables: TableSet, start: BinlogPosition, end: BinlogPosition, relay: RelayView | None
    ) -> list[FoundStatement]:
        altered: Iterable[FollowedTable] = tables.tables.values()
        state = relay.state() if relay is not None and relay.reaches(end) else None
        if state is not None:
            altered = [
                one for one in altered if state.may_have_statements(one.full_name, start, end)
            ]
        return self._statements([self._captured_of(table) for table in altered], start, end)

    def _columns(
        self,
        before: DatabaseProgress,
        tables: TableSet,
        end: BinlogPosition,
        found: Sequence[FoundStatement],
    ) -> dict[str, Any]:
        columns = {id: part for id, part in before.columns.items() if id in tables.tables}
        by_table: dict[str, list[FoundStatement]] = {}
        for event in found:
            by_table.setdefault(event.table.options.name, []).append(event)
        for id, table in tables.tables.items():
            if table.full_name in by_table:
                captured = self._captured_of(table)
                known = self._after(captured, self.at(before, table), by_table[table.full_name])
                if known is not None and any(one.data_type == UNKNOWN for one in known.columns):
                    current = self._current_if_unaltered([captured], end).get(table.full_name)
                    known = (
                        known if current is None else replace(current, hidden_in=known.hidden_in)
                    )
                columns[id] = offset_part(known, captured)
        missing = [table for id, table in tables.tables.items() if not columns.get(id)]
        return columns | (self.now(end, missing) if missing else {})

    def _statements(
        self, tables: Sequence[CapturedTable], start: BinlogPosition, end: BinlogPosition
    ) -> list[FoundStatement]:
        """The statements about tables between two ends of transactions, in order."""
        if not tables:
            return []
        view = relay_view(tables[0])
        state = None if view is None else view.state()
        begin = None if view is None or state is None else view.begin()
        if state is not None and begin is not None and begin <= start and end <= state.end:
            tables = [
                table
                for table in tables
                if state.may_have_statements(table.options.name, start, end)
            ]
            if not tables:
                return []
        if self._scan is None or self._scan[0] != list(tables):
            self.close()
            self._scan = list(tables), StatementScan(tables)
        found = self._scan[1].between(start, end)
        if tables[0].relay is not None:
            self._scan[1].close()  # The pipeline has one connection for all tables.
        return found

    def _after(
        self, captured: CapturedTable, known: TableDefinition | None, found: list[FoundStatement]
    ) -> TableDefinition | None:
        name = captured.options.name
        if name not in self._checks:
            self._checks[name] = StatementCheck(captured, None)
        check = self._checks[name]
        check.resume(known)
        for event in found:
            try:
                check.take(event.statement, event.after)
            except (SchemaChangeError, DataLossError):
                return known  # The reader of this batch raises it, too.
        return check.known

    def _current_if_unaltered(
        self, tables: Sequence[CapturedTable], position: BinlogPosition
    ) -> Mapping[str, TableDefinition]:
        """The current columns, by names, of tables that no statement altered after `position`."""
        current: dict[str, TableDefinition] = {}
        found: list[CapturedTable] = []
        for table in tables:
            try:
                current[table.options.name] = load_table(self._session, table.options)
                found.append(table)
            except TableError:
                continue
        end = self._server.position(self._session)
        for event in self._statements(found, position, end):
            if not _creates(event.statement, event.table):
                current.pop(event.table.options.name, None)
        return current


def _creates(statement: Statement, captured: CapturedTable) -> bool:
    """Whether a statement creates the table, or a temporary one that hides it."""
    parsed, name = ParsedStatement(statement, captured.ignores_case), captured.parsed_name
    return parsed.creates(name) or (parsed.hides(name) and not parsed.concerns(name))
