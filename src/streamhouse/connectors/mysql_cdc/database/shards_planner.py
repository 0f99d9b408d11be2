"""Plans the batches of a declared table: of one MySQL table, or of several that are its shards."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from streamhouse.connectors.mysql_cdc.binlog.alter_table import UNKNOWN
from streamhouse.connectors.mysql_cdc.binlog.captured_table import CapturedTable
from streamhouse.connectors.mysql_cdc.binlog.statements import StatementCheck
from streamhouse.connectors.mysql_cdc.change_reader import TablePosition
from streamhouse.connectors.mysql_cdc.database.discovery import FoundTable
from streamhouse.connectors.mysql_cdc.database.followed_table import FollowedTable
from streamhouse.connectors.mysql_cdc.database.progress import DatabaseProgress, described_table
from streamhouse.connectors.mysql_cdc.database.shards import ShardTables
from streamhouse.connectors.mysql_cdc.database.statement_scan import FoundStatement
from streamhouse.connectors.mysql_cdc.database.tables_planner import Tables, TablesPlanner
from streamhouse.errors import DataLossError, SchemaChangeError, TableError
from streamhouse.mysql.connection import Session
from streamhouse.mysql.options import MySqlOptions
from streamhouse.mysql.position import START_AGAIN, BinlogPosition, BinlogState
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
        super().__init__(options, session, server, relay)
        self._shards = shards

    def captured_tables(self) -> list[CapturedTable]:
        """The tables of the batches planned so far."""
        return [self._captured_table(table) for table in self._shards.followed.values()]

    def tables_of(self, progress: DatabaseProgress) -> Tables:
        tables = _by_id(self._shards.selected(one.names for one in progress.versions.values()))
        for id, table in tables.items():
            before, now = progress.versions[id].definition.index, table.definition.index
            if before != now and progress.snapshot.get(id) is not None:
                raise DataLossError(
                    f"the snapshot of MySQL table {table.full_name} was read in the order of its "
                    f"key '{before}', but its key is now '{now}'; {START_AGAIN}"
                )
        return tables

    def first_tables(self) -> Collection[FoundTable]:
        return self._shards.found.values()

    def _newest(self, before: DatabaseProgress) -> tuple[DatabaseProgress, Tables, Collection[str]]:
        tables = self.tables_of(before)
        added = _by_id(self._shards.new(tables.values()))
        newest = {**tables, **added}
        versions = {
            id: before.versions.get(id, described_table(table, None))
            for id, table in newest.items()
        }
        return replace(before, versions=versions), newest, added

    # -- startup

    def whole(self) -> Offset:
        """The end of a batch, from the initial offset on, that has the tables' current rows."""
        return self._first_now().to_offset()

    def _first(self, position: BinlogPosition, state: BinlogState) -> DatabaseProgress:
        tables = self._shards.all()
        versions = {table.id: described_table(table, None) for table in tables}
        return DatabaseProgress(0, position, state, versions=versions)

    def _first_now(self) -> DatabaseProgress:
        """The progress at a current position, with the tables' columns there.

        A concurrent ALTER TABLE can make it impossible to describe the columns at a position: then
        this takes a later one. Without the types of columns, no ALTER TABLE that changes one could
        be followed.
        """
        for _ in range(_ATTEMPTS):
            begin = self._described(super()._first_now())
            if all(one.definition.columns for one in begin.versions.values()):
                break
        return begin

    # -- columns; docs/decisions/140-statements-in-the-binlog.md says why

    def _changed_up_to(
        self,
        before: DatabaseProgress,
        end: BinlogPosition,
        added: Collection[str] = (),
        state: BinlogState | None = None,
    ) -> DatabaseProgress:
        return self._described(super()._changed_up_to(before, end, added, state))

    def _followed(
        self, before: DatabaseProgress, group: Sequence[FoundStatement]
    ) -> DatabaseProgress:
        tables = {table.full_name: table for table in self.tables_of(before).values()}
        after = before
        for event in group:
            table = tables[event.name]
            check = StatementCheck(self._captured_table(table), self._known(after, table))
            try:
                check.take(event.statement, event.after)
                known = check.known
            except (SchemaChangeError, DataLossError):
                # If rows of the table have been read, the reader of this batch raises it, too.
                known = None
            versions = {**after.versions, table.id: described_table(table, known)}
            after = replace(after, versions=versions)
        return self._changed_up_to(after, group[0].after)

    def _position(self, progress: DatabaseProgress, table: FollowedTable) -> TablePosition:
        return replace(super()._position(progress, table), table=self._known(progress, table))

    def _known(self, progress: DatabaseProgress, table: FollowedTable) -> TableDefinition | None:
        """The table as of an offset; None if that is not known.

        An offset has no columns if the stream began before a statement about the table. Then these
        are the table's current ones, if it was not altered since. If it was, and the server logs no
        names of columns, raises `SchemaChangeError`.
        """
        definition = progress.versions[table.id].definition
        known = definition if definition.columns else None
        if known is not None or self._server.logs_names:
            return known
        known = self._current_if_unaltered([table], progress.position).get(table.id)
        if known is None:
            raise SchemaChangeError(
                f"MySQL table {table.full_name} was altered after {progress.position}, "
                "and the server logs no names of columns; set binlog_row_metadata = FULL, and "
                f"{START_AGAIN}"
            )
        return known

    def _described(self, progress: DatabaseProgress) -> DatabaseProgress:
        """The progress with the present columns of tables whose columns are not certain.

        A table that a later statement alters stays as it is.
        """
        tables, versions = self.tables_of(progress), dict(progress.versions)
        uncertain = [
            table
            for id, table in tables.items()
            if not (columns := versions[id].definition.columns)
            or any(column.data_type == UNKNOWN for column in columns)
        ]
        for id, current in self._current_if_unaltered(uncertain, progress.position).items():
            known = replace(current, hidden_in=versions[id].definition.hidden_in)
            versions[id] = described_table(tables[id], known)
        return replace(progress, versions=versions)

    def _current_if_unaltered(
        self, tables: Iterable[FollowedTable], position: BinlogPosition
    ) -> dict[str, TableDefinition]:
        """The current definitions, by id, of tables that no statement altered after `position`."""
        current: dict[str, TableDefinition] = {}
        found: dict[str, FollowedTable] = {}
        for table in tables:
            try:
                current[table.id] = load_table(self._session, self._options.of(*table.names))
                found[table.full_name] = table
            except TableError:
                continue
        if not found:
            return current
        end = self._server.position(self._session)
        for event in self._statements.between(found.values(), position, end):
            statement, name = event.statement, event.table.parsed_name
            # One that creates the table, or a temporary one that hides it, alters no columns.
            if not statement.creates(name) and (
                statement.concerns(name) or not statement.hides(name)
            ):
                current.pop(found[event.name].id, None)
        return current


def _by_id(tables: Iterable[FollowedTable]) -> dict[str, FollowedTable]:
    return {table.id: table for table in tables}
