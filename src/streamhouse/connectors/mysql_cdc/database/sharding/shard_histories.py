"""The columns of all shards at the positions of offsets, and the statements that alter them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from streamhouse.connectors.mysql_cdc.binlog.captured_table import CapturedTable
from streamhouse.connectors.mysql_cdc.database.progress import DatabaseProgress
from streamhouse.connectors.mysql_cdc.database.tables.followed_table import FollowedTable
from streamhouse.connectors.mysql_cdc.database.tables.table_sets import TableSet
from streamhouse.connectors.mysql_cdc.relay.state import RelayView
from streamhouse.connectors.mysql_cdc.schema_history import SchemaHistory
from streamhouse.connectors.mysql_cdc.server.connection import Session
from streamhouse.connectors.mysql_cdc.server.position import BinlogPosition
from streamhouse.connectors.mysql_cdc.server.table import Server, TableDefinition
from streamhouse.connectors.mysql_cdc.statement_scan import StatementScan


class ShardHistories:
    """A `SchemaHistory` for each shard; on the driver.

    `captured_of` returns what the binlog's readers need of a table. Methods with a `relay`, the log
    of all shards, find statements in it; without one, they scan the server's binlog.
    """

    def __init__(
        self,
        session: Session,
        server: Server,
        captured_of: Callable[[FollowedTable], CapturedTable],
    ) -> None:
        self._session, self._server, self._captured_of = session, server, captured_of
        self._histories: dict[str, SchemaHistory] = {}
        self._scan: tuple[list[str], StatementScan] | None = None

    def now(self, position: BinlogPosition, tables: TableSet) -> dict[str, Any]:
        """The columns of all tables, for an offset at a startup position."""
        return {id: self._of(table).now(position) for id, table in tables.tables.items()}

    def at(self, progress: DatabaseProgress, table: FollowedTable) -> TableDefinition | None:
        """The table as of an offset; None if that is not known."""
        return self._of(table).at(progress.columns.get(table.id, {}), progress.position)

    def cut(
        self,
        before: DatabaseProgress,
        tables: TableSet,
        end: BinlogPosition,
        relay: RelayView | None,
    ) -> tuple[BinlogPosition, Mapping[str, Any]]:
        """The end of a batch up to `end`, and the columns of all tables there.

        The batch ends before a statement about a table. A batch that starts with such a statement
        contains nothing else.
        """
        altered = self._altered(before, tables, end, relay)
        for table in altered:
            columns = before.columns.get(table.id, {})
            cut, _ = self._of(table).next(columns, before.position, end)
            end = min(end, cut)
        return end, self._columns(before, tables, end, altered)

    def columns(
        self,
        before: DatabaseProgress,
        tables: TableSet,
        end: BinlogPosition,
        relay: RelayView | None,
    ) -> dict[str, Any]:
        """The columns of all tables at the end of a batch that may contain statements."""
        return self._columns(before, tables, end, self._altered(before, tables, end, relay))

    def close(self) -> None:
        for history in self._histories.values():
            history.close()
        if self._scan is not None:
            self._scan[1].close()

    def _columns(
        self,
        before: DatabaseProgress,
        tables: TableSet,
        end: BinlogPosition,
        altered: Sequence[FollowedTable],
    ) -> dict[str, Any]:
        columns = {id: part for id, part in before.columns.items() if id in tables.tables}
        for table in altered:
            part = before.columns.get(table.id, {})
            _, columns[table.id] = self._of(table).next(part, before.position, end, cut=False)
        for id, table in tables.tables.items():
            if not columns.get(id):
                columns[id] = self._of(table).now(end)
        return columns

    def _altered(
        self,
        before: DatabaseProgress,
        tables: TableSet,
        end: BinlogPosition,
        relay: RelayView | None,
    ) -> list[FollowedTable]:
        """The tables about which there may be statements in a batch."""
        start = before.position
        if relay is not None:
            relay.reaches(end)
        state = None if relay is None else relay.state()
        if state is None or state.end < end:
            return self._scanned(start, end, tables)
        return [
            table
            for table in tables.tables.values()
            if state.may_have_statements(table.full_name, start, end)
        ]

    def _scanned(
        self, start: BinlogPosition, end: BinlogPosition, tables: TableSet
    ) -> list[FollowedTable]:
        """As `_altered`, from the server's binlog."""
        by_name = {table.full_name: table for table in tables.tables.values()}
        if self._scan is None or self._scan[0] != list(by_name):
            if self._scan is not None:
                self._scan[1].close()
            captured = [self._captured_of(table) for table in by_name.values()]
            self._scan = list(by_name), StatementScan(captured)
        found = {event.table.table.full_name for event in self._scan[1].between(start, end)}
        return [table for name, table in by_name.items() if name in found]

    def _of(self, table: FollowedTable) -> SchemaHistory:
        if table.id not in self._histories:
            captured = self._captured_of(table)
            self._histories[table.id] = SchemaHistory(captured, self._session, self._server)
        return self._histories[table.id]
