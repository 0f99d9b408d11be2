"""Plans the batches of a declared table: of one MySQL table, or of several that are its shards."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from streamhouse.connectors.mysql_cdc.binlog.alter_table import UNKNOWN
from streamhouse.connectors.mysql_cdc.binlog.captured_table import CapturedTable
from streamhouse.connectors.mysql_cdc.binlog.startup import startup_position
from streamhouse.connectors.mysql_cdc.binlog.statements import StatementCheck
from streamhouse.connectors.mysql_cdc.change_reader import TablePosition
from streamhouse.connectors.mysql_cdc.database.discovery import options_of
from streamhouse.connectors.mysql_cdc.database.followed_table import (
    FollowedTable,
    offset_part,
    table_at,
)
from streamhouse.connectors.mysql_cdc.database.progress import DatabaseProgress, Shard
from streamhouse.connectors.mysql_cdc.database.shards import ShardTables
from streamhouse.connectors.mysql_cdc.database.statement_scan import FoundStatement
from streamhouse.connectors.mysql_cdc.database.tables_planner import Tables, TablesPlanner, at
from streamhouse.errors import DataLossError, SchemaChangeError, TableError
from streamhouse.mysql.connection import Session
from streamhouse.mysql.options import MySqlOptions
from streamhouse.mysql.position import START_AGAIN, BinlogPosition
from streamhouse.mysql.table import Server, TableDefinition, load_table
from streamhouse.source import Offset

_ATTEMPTS = 20


class ShardsPlanner(TablesPlanner):
    """Plans batches on the driver.

    What the relay log lacks is read from the server. Offsets have the columns of all tables.
    """

    def __init__(
        self,
        options: MySqlOptions,
        session: Session,
        server: Server,
        relay: Path | None,
        shards: ShardTables,
    ) -> None:
        # Offsets say whether rows of before are read: `parts` is also asked for all of them.
        super().__init__(options, session, server, relay)
        self._shards = shards

    def captured_tables(self) -> list[CapturedTable]:
        """The tables of the batches planned so far."""
        return [self._captured_table(table) for table in self._shards.followed.values()]

    def tables_of(self, progress: DatabaseProgress) -> Tables:
        names = [(database, name) for database, name, _ in progress.shards.values()]
        tables = _by_id(self._shards.selected(names))
        for id, table in tables.items():
            before, now = progress.shards[id].key, table.definition.index
            if before != now and progress.snapshot.get(id) is not None:
                raise DataLossError(
                    f"the snapshot of MySQL table {table.full_name} was read in the order of its "
                    f"key '{before}', but its key is now '{now}'; {START_AGAIN}"
                )
        return tables

    def _of_newest(self, before: DatabaseProgress) -> tuple[DatabaseProgress, Collection[str]]:
        tables = self.tables_of(before)
        added = _by_id(self._shards.new(tables.values()))
        newest = {**tables, **added}
        snapshot = {id: key for id, key in before.snapshot.items() if id in newest}
        rows = {id: count for id, count in before.rows.items() if id in snapshot}
        columns = {id: part for id, part in before.columns.items() if id in newest}
        return replace(
            before,
            snapshot={**snapshot, **dict.fromkeys(added)},
            columns=columns,
            rows=rows,
            shards=_shards(newest),
            statements=(),
            moved=False,
        ), added

    # -- startup

    def whole(self) -> Offset:
        """The end of a batch, from the initial offset on, that has the tables' current rows."""
        return self._startup_progress(_by_id(self._shards.all())).to_offset()

    def _begin(self, start: Offset, max_rows: int | None) -> DatabaseProgress:
        tables = _by_id(self._shards.all())
        if start.get("start") not in (None, "latest-offset"):
            return DatabaseProgress(0, *startup_position(self._binlog), shards=_shards(tables))
        after = self._startup_progress(tables)
        if self._options.startup_mode != "snapshot":
            self._binlog.check_prepared(after.position)
        if not self._options.has_snapshot:
            return after
        return self._chunked(replace(after, snapshot=dict.fromkeys(tables)), max_rows)

    def _startup_progress(self, tables: Tables) -> DatabaseProgress:
        """The current startup position, with the binlog's state and the tables' columns there.

        A concurrent ALTER TABLE can make it impossible to describe the columns at a position: then
        this takes a later one. Without the types of columns, no ALTER TABLE that changes one could
        be followed.
        """
        for _ in range(_ATTEMPTS):
            position, state = self._binlog.snapshot_position(self._current)
            columns = self._columns_now(position, tables.values())
            if all(columns.values()):
                break
        return DatabaseProgress(0, position, state, columns=columns, shards=_shards(tables))

    # -- batches

    def _next_rows(
        self, before: DatabaseProgress, added: Collection[str], max_rows: int | None
    ) -> DatabaseProgress:
        after = at(before, *self._binlog.snapshot_position(self._current))
        after = replace(after, columns=self._columns_at(before, after.position))
        if added and self._options.startup_mode != "snapshot":
            self._binlog.check_prepared(after.position)
        return self._chunked(after, max_rows)

    def _advanced(self, before: DatabaseProgress, end: BinlogPosition) -> DatabaseProgress:
        return replace(super()._advanced(before, end), columns=self._columns_at(before, end))

    def _position(self, progress: DatabaseProgress, table: FollowedTable) -> TablePosition:
        return replace(super()._position(progress, table), table=self._known(progress, table))

    # -- columns; docs/decisions/140-statements-in-the-binlog.md says why

    def _columns_now(
        self, position: BinlogPosition, tables: Iterable[FollowedTable]
    ) -> dict[str, Any]:
        """The columns of tables for an offset at a position; {} for those that are not known."""
        tables = list(tables)
        found = self._current_if_unaltered(tables, position)
        return {table.id: offset_part(found.get(table.full_name)) for table in tables}

    def _known(self, progress: DatabaseProgress, table: FollowedTable) -> TableDefinition | None:
        """The table as of an offset; None if that is not known.

        An offset has no columns if the stream began before a statement about the table. Then these
        are the table's current ones, if it was not altered since. If it was, and the server logs no
        names of columns, raises `SchemaChangeError`.
        """
        known = table_at(progress.columns.get(table.id, {}), table.definition)
        if known is not None or self._server.logs_names:
            return known
        known = self._current_if_unaltered([table], progress.position).get(table.full_name)
        if known is None:
            raise SchemaChangeError(
                f"MySQL table {table.full_name} was altered after {progress.position}, "
                "and the server logs no names of columns; set binlog_row_metadata = FULL, and "
                f"{START_AGAIN}"
            )
        return known

    def _columns_at(self, before: DatabaseProgress, end: BinlogPosition) -> dict[str, Any]:
        """The columns of all tables at the end of a batch that may contain statements."""
        tables, columns = self.tables_of(before), dict(before.columns)
        by_table: dict[str, list[FoundStatement]] = {}
        for event in self._statements.between(tables.values(), before.position, end, wait=True):
            by_table.setdefault(event.name, []).append(event)
        for id, table in tables.items():
            if table.full_name in by_table:
                captured = self._captured_table(table)
                found = by_table[table.full_name]
                known = self._after(captured, self._known(before, table), found)
                if known is not None and any(one.data_type == UNKNOWN for one in known.columns):
                    current = self._current_if_unaltered([table], end).get(table.full_name)
                    known = (
                        known if current is None else replace(current, hidden_in=known.hidden_in)
                    )
                columns[id] = offset_part(known)
        missing = [table for id, table in tables.items() if not columns.get(id)]
        return columns | (self._columns_now(end, missing) if missing else {})

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
                options = options_of(self._options, table.names)
                current[table.full_name] = load_table(self._session, options)
                found.append(table)
            except TableError:
                continue
        end = self._server.position(self._session)
        for event in self._statements.between(found, position, end):
            statement, name = event.statement, event.table.parsed_name
            # One that creates the table, or a temporary one that hides it, alters no columns.
            if not statement.creates(name) and (
                statement.concerns(name) or not statement.hides(name)
            ):
                current.pop(event.name, None)
        return current


def _by_id(tables: Iterable[FollowedTable]) -> dict[str, FollowedTable]:
    return {table.id: table for table in tables}


def _shards(tables: Tables) -> dict[str, Shard]:
    return {id: Shard(*one.names, one.definition.index) for id, one in tables.items()}
