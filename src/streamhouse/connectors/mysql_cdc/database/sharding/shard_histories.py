"""The columns of all shards at the positions of offsets, and the statements that alter them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from streamhouse.connectors.mysql_cdc.binlog.alter_table import UNKNOWN
from streamhouse.connectors.mysql_cdc.binlog.captured_table import CapturedTable
from streamhouse.connectors.mysql_cdc.binlog.query import Statement
from streamhouse.connectors.mysql_cdc.binlog.statements import ParsedStatement, StatementCheck
from streamhouse.connectors.mysql_cdc.database.progress import DatabaseProgress
from streamhouse.connectors.mysql_cdc.database.statement_scan import FoundStatement, StatementLog
from streamhouse.connectors.mysql_cdc.database.tables.followed_table import (
    FollowedTable,
    offset_part,
    table_at,
)
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
        statements: StatementLog,
    ) -> None:
        self._session, self._server, self._captured_of = session, server, captured_of
        self._statements = statements

    def now(self, position: BinlogPosition, tables: Iterable[FollowedTable]) -> dict[str, Any]:
        """The columns of tables for an offset at a position; {} for those that are not known."""
        tables = list(tables)
        found = self._current_if_unaltered(tables, position)
        return {
            table.id: offset_part(found.get(table.full_name), self._captured_of(table))
            for table in tables
        }

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
        known = self._current_if_unaltered([table], progress.position).get(table.full_name)
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
        tables: Mapping[str, FollowedTable],
        end: BinlogPosition,
    ) -> tuple[BinlogPosition, dict[str, Any]]:
        """The end of a batch up to `end`, and the columns of all tables there.

        The batch ends before a statement about a table. A batch that starts with such a statement
        contains nothing else.
        """
        start = before.position
        found = self._statements.between(tables.values(), start, end, wait=True)
        if found:
            end = found[0].before if start < found[0].before else found[0].after
        return end, self.columns(before, tables, end)

    def columns(
        self,
        before: DatabaseProgress,
        tables: Mapping[str, FollowedTable],
        end: BinlogPosition,
    ) -> dict[str, Any]:
        """The columns of all tables at the end of a batch that may contain statements."""
        columns = {id: part for id, part in before.columns.items() if id in tables}
        by_table: dict[str, list[FoundStatement]] = {}
        for event in self._statements.between(tables.values(), before.position, end, wait=True):
            by_table.setdefault(event.name, []).append(event)
        for id, table in tables.items():
            if table.full_name in by_table:
                captured = self._captured_of(table)
                known = self._after(captured, self.at(before, table), by_table[table.full_name])
                if known is not None and any(one.data_type == UNKNOWN for one in known.columns):
                    current = self._current_if_unaltered([table], end).get(table.full_name)
                    known = (
                        known if current is None else replace(current, hidden_in=known.hidden_in)
                    )
                columns[id] = offset_part(known, captured)
        missing = [table for id, table in tables.items() if not columns.get(id)]
        return columns | (self.now(end, missing) if missing else {})

    def _after(
        self, captured: CapturedTable, known: TableDefinition | None, found: list[FoundStatement]
    ) -> TableDefinition | None:
        check = StatementCheck(captured, known)
        for event in found:
            try:
                check.take(event.statement, event.after)
            except (SchemaChangeError, DataLossError):
                return known  # The reader of this batch raises it, too.
        return check.known

    def _current_if_unaltered(
        self, tables: Iterable[FollowedTable], position: BinlogPosition
    ) -> Mapping[str, TableDefinition]:
        """The current columns, by names, of tables that no statement altered after `position`."""
        current: dict[str, TableDefinition] = {}
        found: list[FollowedTable] = []
        for table in tables:
            try:
                current[table.full_name] = load_table(
                    self._session, self._captured_of(table).options
                )
                found.append(table)
            except TableError:
                continue
        end = self._server.position(self._session)
        for event in self._statements.between(found, position, end):
            if not _creates(event.statement, event.table):
                current.pop(event.name, None)
        return current


def _creates(statement: Statement, captured: CapturedTable) -> bool:
    """Whether a statement creates the table, or a temporary one that hides it."""
    parsed, name = ParsedStatement(statement, captured.ignores_case), captured.parsed_name
    return parsed.creates(name) or (parsed.hides(name) and not parsed.concerns(name))
