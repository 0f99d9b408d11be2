"""Plans the batches of a declared table: of one MySQL table, or of several that are its shards."""

from collections.abc import Collection, Iterable
from dataclasses import replace
from pathlib import Path

from streamhouse.connectors.mysql_cdc.binlog.alter_table import UNKNOWN
from streamhouse.connectors.mysql_cdc.binlog.captured_table import CapturedTable
from streamhouse.connectors.mysql_cdc.binlog.startup import startup_position
from streamhouse.connectors.mysql_cdc.binlog.statements import StatementCheck
from streamhouse.connectors.mysql_cdc.change_reader import TablePosition
from streamhouse.connectors.mysql_cdc.database.discovery import FoundTable
from streamhouse.connectors.mysql_cdc.database.followed_table import FollowedTable
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
        tables = _by_id(self._shards.selected(one.names for one in progress.shards.values()))
        for id, table in tables.items():
            before, now = progress.shards[id].key, table.definition.index
            if before != now and progress.snapshot.get(id) is not None:
                raise DataLossError(
                    f"the snapshot of MySQL table {table.full_name} was read in the order of its "
                    f"key '{before}', but its key is now '{now}'; {START_AGAIN}"
                )
        return tables

    def first_tables(self) -> Collection[FoundTable]:
        return self._shards.found.values()

    def _of_newest(self, before: DatabaseProgress) -> tuple[DatabaseProgress, Collection[str]]:
        tables = self.tables_of(before)
        added = _by_id(self._shards.new(tables.values()))
        newest = {**tables, **added}
        snapshot = {id: key for id, key in before.snapshot.items() if id in newest}
        shards = {id: Shard(*one.names, one.definition.index) for id, one in newest.items()}
        for id in tables:
            shards[id] = shards[id]._replace(schema=before.shards[id].schema)
        return replace(
            before,
            snapshot={**snapshot, **dict.fromkeys(added)},
            rows={id: count for id, count in before.rows.items() if id in snapshot},
            shards=shards,
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
            past = DatabaseProgress(0, *startup_position(self._binlog))
            return past.with_shards(tables.values(), {})
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
            known = self._current_if_unaltered(tables.values(), position)
            if len(known) == len(tables):
                break
        return DatabaseProgress(0, position, state).with_shards(tables.values(), known)

    # -- batches

    def _next_rows(
        self, before: DatabaseProgress, added: Collection[str], max_rows: int | None
    ) -> DatabaseProgress:
        after = at(before, *self._binlog.snapshot_position(self._current))
        after = self._with_columns(before, after)
        if added and self._options.startup_mode != "snapshot":
            self._binlog.check_prepared(after.position)
        return self._chunked(after, max_rows)

    def _advanced(self, before: DatabaseProgress, end: BinlogPosition) -> DatabaseProgress:
        return self._with_columns(before, super()._advanced(before, end))

    def _position(self, progress: DatabaseProgress, table: FollowedTable) -> TablePosition:
        return replace(super()._position(progress, table), table=self._known(progress, table))

    # -- columns; docs/decisions/140-statements-in-the-binlog.md says why

    def _known(self, progress: DatabaseProgress, table: FollowedTable) -> TableDefinition | None:
        """The table as of an offset; None if that is not known.

        An offset has no columns if the stream began before a statement about the table. Then these
        are the table's current ones, if it was not altered since. If it was, and the server logs no
        names of columns, raises `SchemaChangeError`.
        """
        known = progress.definition(table)
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

    def _with_columns(self, before: DatabaseProgress, after: DatabaseProgress) -> DatabaseProgress:
        """The end of a batch, which may contain statements, with the columns of all tables."""
        tables, found = self.tables_of(before), dict[str, list[FoundStatement]]()
        start, end = before.position, after.position
        for event in self._statements.between(tables.values(), start, end, wait=True):
            found.setdefault(event.name, []).append(event)
        known: dict[str, TableDefinition] = {}
        uncertain: list[FollowedTable] = []
        for id, table in tables.items():
            definition = before.definition(table)
            if table.full_name in found:
                captured = self._captured_table(table)
                definition = self._after(
                    captured, self._known(before, table), found[table.full_name]
                )
            if definition is not None:
                known[id] = definition
            if definition is None or any(one.data_type == UNKNOWN for one in definition.columns):
                uncertain.append(table)
        for id, current in self._current_if_unaltered(uncertain, end).items():
            hidden_in = known[id].hidden_in if id in known else ()
            known[id] = replace(current, hidden_in=hidden_in)
        return after.with_shards(tables.values(), known)

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
