"""A declared table: one MySQL table, or all that match regular expressions, read as one stream.

docs/decisions/272-sets-of-mysql-tables.md says how names are interpreted.
"""

import contextlib
import functools
import re
import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from streamhouse.connectors.mysql_cdc.binlog.alter_table import UNKNOWN
from streamhouse.connectors.mysql_cdc.binlog.captured_table import CapturedTable
from streamhouse.connectors.mysql_cdc.binlog.statements import StatementCheck
from streamhouse.connectors.mysql_cdc.change_reader import TablePosition
from streamhouse.connectors.mysql_cdc.database.discovery import (
    Discovery,
    FoundTable,
    TableFilter,
    selected_names,
)
from streamhouse.connectors.mysql_cdc.database.followed_table import FollowedTable
from streamhouse.connectors.mysql_cdc.database.progress import DatabaseProgress, described_table
from streamhouse.connectors.mysql_cdc.database.statement_scan import FoundStatement
from streamhouse.connectors.mysql_cdc.database.tables_planner import Tables, TablesPlanner
from streamhouse.errors import DataLossError, SchemaChangeError, TableError
from streamhouse.mysql.columns import check_followable, selected_columns, server_zone
from streamhouse.mysql.connection import Session
from streamhouse.mysql.metadata import TableNames
from streamhouse.mysql.options import MySqlOptions
from streamhouse.mysql.position import START_AGAIN, BinlogPosition, BinlogState
from streamhouse.mysql.table import Server, TableDefinition, load_table
from streamhouse.mysql.values.types import MySqlColumn, quote
from streamhouse.source import Offset
from streamhouse.sql.plan import Column

_SPECIAL = frozenset("\\^$.|?*+()[]{}")


def expressions(session: Session, options: MySqlOptions) -> TableFilter | None:
    """The filter for the tables, if a name in the options is a regular expression; else None.

    If a database, or a table in a selected database, has exactly this name, it is no expression.
    """
    if not _SPECIAL.intersection(options.database + options.table):
        return None
    databases = [str(row[0]) for row in session.rows("SHOW DATABASES")]
    one_database = options.database in databases or not _SPECIAL.intersection(options.database)
    database = re.escape(options.database) if one_database else options.database
    tables = {name for _, name in selected_names(session, TableFilter(database, ignores_case=True))}
    one_table = options.table in tables or not _SPECIAL.intersection(options.table)
    if one_database and one_table:
        return None
    table = re.escape(options.table) if one_table else options.table
    return TableFilter(database, table, ignores_case=True)


ONE = ""
"""The id of the table, if there is one that is no shard."""
_DISCOVERY_S = 1.0
_ATTEMPTS = 20


class DeclaredTablePlanner(TablesPlanner):
    """Finds the MySQL tables of a declared table, and plans its batches; on the driver.

    `tables`: None for the one table that the options name. `columns`: those of the declared table,
    without METADATA; None: all, which must be the same in all tables. If a table lacks a nullable
    column that another table has, it is null in its rows. `found`: the tables found so far, also
    those that cannot be read. `is_one`: there is one table, which is no shard. Raises `TableError`
    if there is no table.
    """

    def __init__(
        self,
        options: MySqlOptions,
        session: Session,
        server: Server,
        relay: Path | None,
        tables: TableFilter | None,
        columns: Sequence[Column] | None,
    ) -> None:
        super().__init__(options, session, server, relay)
        self._filter, self._columns, self.is_one = tables, columns, tables is None
        self.found = {shard.names: shard for shard in self._found()}
        if tables is not None and not self.found:
            raise self._discovery(tables).nothing()
        self._tables: dict[TableNames, FollowedTable] = {}
        self._discovered = time.monotonic()

    # -- the tables

    @functools.cached_property
    def like(self) -> FollowedTable:
        """The first table by name that can be read; it decides the types of the columns."""
        for found in self.found.values():
            with contextlib.suppress(TableError):
                return self._table("", found)
        # Raises the error of the first one.
        return self._table("", next(iter(self.found.values())))

    def all(self) -> list[FollowedTable]:
        """All tables found so far; raises `TableError` for one that cannot be read."""
        return self._followed_tables(self.found.values())

    def selected(self, names: Iterable[TableNames]) -> list[FollowedTable]:
        """The tables with these names, without those that the expressions no longer select."""
        selected = [name for name in names if not self._filter or self._filter.selects(*name)]
        if any(name not in self.found for name in selected):
            self._discover()
        for name in selected:
            if name not in self.found:
                raise TableError(
                    f"MySQL table {'.'.join(name)}, which {self._options.name} has read so far, "
                    "is missing, or user "
                    f"'{self._options.username}' cannot see it; choose a regular expression "
                    "without it to go on with the others (its rows stay), or " + START_AGAIN
                )
        return self._followed_tables(self.found[name] for name in selected)

    def new(self, tables: Iterable[FollowedTable]) -> list[FollowedTable]:
        """The tables that are not among `tables`, if the options say to read new ones."""
        if not self._options.new_tables:
            return []
        if time.monotonic() - self._discovered > _DISCOVERY_S:
            if self._filter and not self._discovery(self._filter).names() <= self.found.keys():
                self._discover()
            self._discovered = time.monotonic()
        known = {table.names for table in tables}
        return self._followed_tables(
            shard for names, shard in self.found.items() if names not in known
        )

    def _followed_tables(self, found: Iterable[FoundTable]) -> list[FollowedTable]:
        tables = []
        for shard in found:
            if shard.names not in self._tables:
                id = ONE if self.is_one else ".".join(quote(name) for name in shard.names)
                self._tables[shard.names] = self._table(id, shard, self.like)
            tables.append(self._tables[shard.names])
        return tables

    def _discover(self) -> None:
        self.found |= {shard.names: shard for shard in self._found(set(self.found))}

    def _found(self, but: Collection[TableNames] = ()) -> list[FoundTable]:
        """The current tables, without views, and without those in `but`."""
        if self._filter is not None:
            return self._discovery(self._filter).found(but)
        definition = load_table(self._session, self._options)
        self._check(definition)
        return [FoundTable((definition.database, definition.name), definition)]

    def _table(
        self, id: str, found: FoundTable, like: FollowedTable | None = None
    ) -> FollowedTable:
        """Describe how to read a table; raises `TableError` with its name if that is impossible.

        `like`: a table whose columns it must have, if none are declared.
        """
        if found.definition is None:
            raise TableError(found.reason or f"MySQL table {found.full_name} cannot be followed")
        selected = self._selected(found.definition)
        kinds = tuple(kind for _, kind in selected)
        columns = tuple((column.name, str(kind)) for column, kind in selected)
        if like is not None and self._columns is None and columns != like.columns:
            raise TableError(_different(found.full_name, columns, like))
        return FollowedTable(id, found.definition, "", columns, kinds)

    def fields(self) -> pa.Schema | None:
        """The declared columns, each as the first table reads it that has it; None: not declared.

        Raises `TableError` for a column that no table has.
        """
        if self._columns is None:
            return None
        definitions = [shard.definition for shard in self.found.values() if shard.definition]
        types: dict[str, pa.DataType] = {}
        for table in definitions:
            types = {column.name: kind for column, kind in self._selected(table)} | types
        if not definitions:
            return None
        if any(column.name not in types for column in self._columns):
            # Raises the error for a table that lacks a column.
            first = definitions[0]
            selected_columns(
                self._options.of(first.database, first.name), first.columns, self._columns
            )
        return pa.schema([(column.name, types[column.name]) for column in self._columns])

    def zone(self) -> str:
        """The server's time zone, if a column needs it; else UTC."""
        selected = self._selected(self.like.definition)
        option = "the option 'server-time-zone'"
        return server_zone(self._session, self._options, selected, option)

    def _discovery(self, tables: TableFilter) -> Discovery:
        return Discovery(self._session, self._options, tables, self._check, views=False)

    def _check(self, table: TableDefinition) -> None:
        read = dict.fromkeys([*(column for column, _ in self._selected(table)), *table.key])
        check_followable(self._session, self._server, self._options, table, list(read))

    def _selected(self, table: TableDefinition) -> list[tuple[MySqlColumn, pa.DataType]]:
        """The columns to read that a shard has; all but nullable ones must be there."""
        columns = self._columns
        if columns is not None and self._filter is not None:
            names = {column.name for column in table.columns}
            columns = [column for column in columns if column.name in names or not column.nullable]
        return selected_columns(
            self._options.of(table.database, table.name), table.columns, columns, table.key
        )

    # -- batches

    def captured_tables(self) -> list[CapturedTable]:
        """The tables of the batches planned so far."""
        return [self._captured_table(table) for table in self._tables.values()]

    def tables_of(self, progress: DatabaseProgress) -> Tables:
        tables = _by_id(self.selected(one.names for one in progress.versions.values()))
        for id, table in tables.items():
            before, now = progress.versions[id].definition.index, table.definition.index
            if before != now and progress.snapshot.get(id) is not None:
                raise DataLossError(
                    f"the snapshot of MySQL table {table.full_name} was read in the order of its "
                    f"key '{before}', but its key is now '{now}'; {START_AGAIN}"
                )
        return tables

    def first_tables(self) -> Collection[FoundTable]:
        return self.found.values()

    def _newest(self, before: DatabaseProgress) -> tuple[DatabaseProgress, Tables, Collection[str]]:
        tables = self.tables_of(before)
        added = _by_id(self.new(tables.values()))
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
        tables = self.all()
        versions = {table.id: described_table(table, None) for table in tables}
        return self._described(DatabaseProgress(0, position, state, versions=versions))

    def _first_now(self) -> DatabaseProgress:
        """The progress at a current position, with the tables' columns there.

        A concurrent ALTER TABLE can make it impossible to describe the columns at a position: then
        this takes a later one. Without the types of columns, no ALTER TABLE that changes one could
        be followed.
        """
        for _ in range(_ATTEMPTS):
            begin = super()._first_now()
            if all(one.definition.columns for one in begin.versions.values()):
                break
        return begin

    # -- columns; docs/decisions/140-statements-in-the-binlog.md says why

    def _after_changes(
        self, before: DatabaseProgress, after: DatabaseProgress, added: Collection[str]
    ) -> DatabaseProgress:
        return self._described(after)

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
        """The table as of an offset; None if its columns are not known, but the server logs names.

        They are not known if the table was altered since, and the stream has no columns before.
        """
        known = progress.versions[table.id].definition
        if known.columns:
            return known
        if not self._server.logs_names:
            raise SchemaChangeError(
                f"MySQL table {table.full_name} was altered after {progress.position}, "
                "and the server logs no names of columns; set binlog_row_metadata = FULL, and "
                f"{START_AGAIN}"
            )
        return None

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


def _different(name: str, columns: Sequence[tuple[str, Any]], like: FollowedTable) -> str:
    def text(pairs: Iterable[tuple[str, Any]]) -> str:
        return ", ".join(f"{column} ({kind})" for column, kind in pairs)

    return (
        f"MySQL table {name} has other columns than {like.full_name}, which are read as one table: "
        f"{text(columns)}, not {text(like.columns)}; alter it, choose another regular expression, "
        "or declare the columns to read"
    )
