"""The MySQL tables of a declared table: one, or all that match regular expressions.

docs/decisions/157-shards-of-a-declared-table.md says how names are interpreted."""

import functools
import re
import time
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import pyarrow as pa

from streamhouse.close_matches import nearest
from streamhouse.connectors.mysql_cdc.database.discovery import (
    NAMES,
    Discovery,
    FoundTable,
    TableFilter,
)
from streamhouse.connectors.mysql_cdc.database.followed_table import FollowedTable
from streamhouse.errors import TableError
from streamhouse.mysql.columns import check_columns, selected_columns, server_zone
from streamhouse.mysql.connection import Session
from streamhouse.mysql.keys import KeySpace
from streamhouse.mysql.metadata import TableNames
from streamhouse.mysql.options import MySqlOptions
from streamhouse.mysql.position import START_AGAIN
from streamhouse.mysql.table import Server, TableDefinition, check_binlog_filter, load_table
from streamhouse.mysql.values.types import MySqlColumn, quote
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
    selected = TableFilter(database, ignores_case=True)
    visible = [name for name in databases if selected.has_database(name)]
    tables = {str(name) for _, name in session.rows(NAMES, [visible])} if visible else set()
    one_table = options.table in tables or not _SPECIAL.intersection(options.table)
    if one_database and one_table:
        return None
    table = re.escape(options.table) if one_table else options.table
    return TableFilter(database, table, ignores_case=True)


ONE = ""
"""The id of the table, if there is one that is no shard."""
_DISCOVERY_S = 1.0


class ShardTables:
    """Finds the tables that are read as one, and checks that they have the columns to read.

    `tables`: None for the one table that the options name. `columns`: those of the declared table,
    without METADATA; None: all, which must be the same in all tables. If a table lacks a nullable
    column that another table has, it is null in its rows. `found`: the tables found so far, also
    those that cannot be read; `followed`: those described so far. `is_one`: there is one table,
    which is no shard. Driver only; raises `TableError` if there is no table.
    """

    def __init__(
        self,
        session: Session,
        server: Server,
        options: MySqlOptions,
        tables: TableFilter | None,
        columns: Sequence[Column] | None,
    ) -> None:
        self._session, self._server, self._options = session, server, options
        self._filter, self._columns, self.is_one = tables, columns, tables is None
        self.found = {shard.names: shard for shard in self._found()}
        if not self.found:
            raise self._none()
        self.followed: dict[TableNames, FollowedTable] = {}
        self._discovered = time.monotonic()

    @functools.cached_property
    def like(self) -> FollowedTable:
        """The first table by name that can be read; it decides the types of the columns."""
        error: TableError | None = None
        for found in self.found.values():
            try:
                return self._followed_by("", found)
            except TableError as first:
                error = error or first
        assert error is not None
        raise error

    def all(self) -> list[FollowedTable]:
        """All tables found so far; raises `TableError` for one that cannot be read."""
        return self._described(self.found.values())

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
        return self._described(self.found[name] for name in selected)

    def new(self, tables: Iterable[FollowedTable]) -> list[FollowedTable]:
        """The tables that are not among `tables`, if the options say to read new ones."""
        if not self._options.new_tables:
            return []
        if time.monotonic() - self._discovered > _DISCOVERY_S:
            if self._filter and not self._discovery(self._filter).names() <= self.found.keys():
                self._discover()
            self._discovered = time.monotonic()
        known = {table.names for table in tables}
        return self._described(shard for names, shard in self.found.items() if names not in known)

    def _described(self, found: Iterable[FoundTable]) -> list[FollowedTable]:
        tables = []
        for shard in found:
            if shard.names not in self.followed:
                id = ONE if self.is_one else ".".join(quote(name) for name in shard.names)
                self.followed[shard.names] = self._followed_by(id, shard, self.like)
            tables.append(self.followed[shard.names])
        return tables

    def _discover(self) -> None:
        self.found |= {shard.names: shard for shard in self._found(set(self.found))}

    def _found(self, but: Collection[TableNames] = ()) -> list[FoundTable]:
        """The current tables, without views, and without those in `but`."""
        if self._filter is not None:
            return self._discovery(self._filter).found(but)
        definition = load_table(self._session, self._options)
        self._check(definition)
        names = definition.database, definition.name
        return [FoundTable(names, definition, None, definition.size.rows, None)]

    def _followed_by(
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
        return FollowedTable(id, found.definition, "", columns, found.rows, kinds)

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

    def _none(self) -> TableError:
        """The error if no table is selected."""
        databases = [str(row[0]) for row in self._session.rows("SHOW DATABASES")]
        selected = [name for name in databases if self._filter and self._filter.has_database(name)]
        options = self._options
        names = sorted(str(name) for _, name in self._session.rows(NAMES, [selected]))
        return TableError(
            f"MySQL database '{options.database}' at {options.address} has no table "
            f"'{options.table}' that user '{options.username}' can see, and none that matches it "
            f"as a regular expression of a whole name; {nearest(options.table, names)}"
        )

    def _discovery(self, tables: TableFilter) -> Discovery:
        return Discovery(self._session, self._options, tables, self._check, views=False)

    def _check(self, table: TableDefinition) -> None:
        options = self._options.of(table.database, table.name)
        check_binlog_filter(self._session, self._server, options)
        KeySpace(table)
        read = dict.fromkeys([*(column for column, _ in self._selected(table)), *table.key])
        check_columns(self._session, options, list(read))

    def _selected(self, table: TableDefinition) -> list[tuple[MySqlColumn, pa.DataType]]:
        """The columns to read that a shard has; all but nullable ones must be there."""
        columns = self._columns
        if columns is not None and self._filter is not None:
            names = {column.name for column in table.columns}
            columns = [column for column in columns if column.name in names or not column.nullable]
        return selected_columns(
            self._options.of(table.database, table.name), table.columns, columns, table.key
        )


def _different(name: str, columns: Sequence[tuple[str, Any]], like: FollowedTable) -> str:
    def text(pairs: Iterable[tuple[str, Any]]) -> str:
        return ", ".join(f"{column} ({kind})" for column, kind in pairs)

    return (
        f"MySQL table {name} has other columns than {like.full_name}, which are read as one table: "
        f"{text(columns)}, not {text(like.columns)}; alter it, choose another regular expression, "
        "or declare the columns to read"
    )
