"""The MySQL tables of a declared table: one, or all that match regular expressions.

docs/decisions/157-shards-of-a-declared-table.md says how names are interpreted."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from streamhouse.close_matches import nearest
from streamhouse.connectors.mysql_cdc.database.part_reader import PartReader, in_order
from streamhouse.connectors.mysql_cdc.database.table_part import TablePart
from streamhouse.connectors.mysql_cdc.database.tables.discovery import (
    Discovery,
    FoundTable,
    TableFilter,
    TableNames,
    options_of,
)
from streamhouse.connectors.mysql_cdc.database.tables.followed_table import FollowedTable
from streamhouse.connectors.mysql_cdc.metadata import MetadataColumns
from streamhouse.errors import TableError
from streamhouse.mysql.columns import check_columns, selected_columns, server_zone
from streamhouse.mysql.connection import Session
from streamhouse.mysql.keys import KeySpace
from streamhouse.mysql.options import MySqlOptions
from streamhouse.mysql.position import BinlogPosition
from streamhouse.mysql.table import Server, TableDefinition, check_binlog_filter, load_table
from streamhouse.mysql.values.types import MySqlColumn
from streamhouse.source import ROW_KIND
from streamhouse.sql.plan import Column

_SPECIAL = frozenset("\\^$.|?*+()[]{}")
_NAMES = """
SELECT table_schema, table_name FROM information_schema.tables WHERE table_schema IN %s
"""


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
    tables = {str(name) for _, name in session.rows(_NAMES, [visible])} if visible else set()
    one_table = options.table in tables or not _SPECIAL.intersection(options.table)
    if one_database and one_table:
        return None
    table = re.escape(options.table) if one_table else options.table
    return TableFilter(database, table, ignores_case=True)


@dataclass(frozen=True)
class Shards:
    """Finds the tables that are read as one, and checks that they have the columns to read.

    `filter`: None for the one table that the options name. `columns`: those of the declared table,
    without METADATA; None: all, which must be the same in all tables. If a table lacks a nullable
    column that another table has, it is null in its rows.
    """

    session: Session
    server: Server
    options: MySqlOptions
    filter: TableFilter | None
    columns: Sequence[Column] | None

    def names(self) -> set[TableNames]:
        """The names of the current tables."""
        if self.filter is None:
            return {(self.options.database, self.options.table)}
        return self._discovery(self.filter).names()

    def selects(self, names: TableNames) -> bool:
        """Whether a table of these names is read."""
        return self.filter is None or self.filter.selects(*names)

    def found(self, but: Iterable[TableNames] = ()) -> list[FoundTable]:
        """The current tables, without views, and without those in `but`."""
        if self.filter is not None:
            return self._discovery(self.filter).found(set(but))
        definition = load_table(self.session, self.options)
        self._check(definition)
        names = definition.database, definition.name
        return [FoundTable(names, definition, None, definition.size.rows, None)]

    def followed(
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
        if like is not None and self.columns is None and columns != like.columns:
            raise TableError(_different(found.full_name, columns, like))
        return FollowedTable(id, found.definition, "", columns, found.rows, kinds)

    def fields(self, found: Sequence[FoundTable]) -> pa.Schema | None:
        """The declared columns, each as the first table reads it that has it; None: not declared.

        Raises `TableError` for a column that no table has.
        """
        if self.columns is None:
            return None
        definitions = [shard.definition for shard in found if shard.definition is not None]
        types: dict[str, pa.DataType] = {}
        for table in definitions:
            types = {column.name: kind for column, kind in self._selected(table)} | types
        if not definitions:
            return None
        if any(column.name not in types for column in self.columns):
            # Raises the error for a table that lacks a column.
            selected_columns(self._options_of(definitions[0]), definitions[0].columns, self.columns)
        return pa.schema([(column.name, types[column.name]) for column in self.columns])

    def zone(self, tables: Iterable[FollowedTable]) -> str:
        """The server's time zone, if a column of the tables needs it; else UTC."""
        if self.options.server_time_zone is not None:
            return self.options.server_time_zone
        selected = [column for table in tables for column in self._selected(table.definition)]
        return server_zone(self.session, selected, "the option 'server-time-zone'")

    def none(self) -> TableError:
        """The error if no table is selected."""
        databases = [str(row[0]) for row in self.session.rows("SHOW DATABASES")]
        selected = [name for name in databases if self.filter and self.filter.has_database(name)]
        options = self.options
        names = sorted(str(name) for _, name in self.session.rows(_NAMES, [selected]))
        return TableError(
            f"MySQL database '{options.database}' at {options.address} has no table "
            f"'{options.table}' that user '{options.username}' can see, and none that matches it "
            f"as a regular expression of a whole name; {nearest(options.table, names)}"
        )

    def _discovery(self, tables: TableFilter) -> Discovery:
        return Discovery(self.session, self.options, tables, self._check, views=False)

    def _check(self, table: TableDefinition) -> None:
        options = options_of(self.options, (table.database, table.name))
        check_binlog_filter(self.session, self.server, options)
        KeySpace(table)
        read = dict.fromkeys([*(column for column, _ in self._selected(table)), *table.key])
        check_columns(self.session, options, list(read))

    def _selected(self, table: TableDefinition) -> list[tuple[MySqlColumn, pa.DataType]]:
        """The columns to read that a shard has; all but nullable ones must be there."""
        columns = self.columns
        if columns is not None and self.filter is not None:
            names = {column.name for column in table.columns}
            columns = [column for column in columns if column.name in names or not column.nullable]
        return selected_columns(self._options_of(table), table.columns, columns, table.key)

    def _options_of(self, table: TableDefinition) -> MySqlOptions:
        return options_of(self.options, (table.database, table.name))


def _different(name: str, columns: Sequence[tuple[str, Any]], like: FollowedTable) -> str:
    def text(pairs: Iterable[tuple[str, Any]]) -> str:
        return ", ".join(f"{column} ({kind})" for column, kind in pairs)

    return (
        f"MySQL table {name} has other columns than {like.full_name}, which are read as one table: "
        f"{text(columns)}, not {text(like.columns)}; alter it, choose another regular expression, "
        "or declare the columns to read"
    )


@dataclass(frozen=True)
class ShardsPart:
    """A partition; `relay`: the folder of the relay log with the changes, if any."""

    parts: tuple[TablePart, ...]
    end: BinlogPosition
    server: Server
    zone: str
    relay: Path | None


@dataclass(frozen=True)
class ShardsReader:
    """Reads the rows of partitions, each with its row kind in the last column.

    `declared`: the columns of the declared table; None: all columns of the MySQL tables. `fields`:
    the declared columns without METADATA.
    """

    options: MySqlOptions
    declared: Sequence[Column] | None
    fields: pa.Schema | None

    def read(
        self, partition: ShardsPart, count: Callable[[pa.RecordBatch], None]
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a partition; calls `count` with those of the binlog."""
        reader = PartReader(self.options, partition.server, partition.zone, partition.relay)
        columns = [MetadataColumns.of(self.declared, *part.table.names) for part in partition.parts]
        try:
            for rows_of_range in reader.changes(partition.parts, partition.end):
                batches = []
                for entry in rows_of_range:
                    count(entry.rows)
                    rows = columns[entry.part].added(self._filled(entry.rows), entry.seconds)
                    batches.append((rows, entry.numbers))
                if len(partition.parts) == 1:
                    yield from (rows for rows, _ in batches)
                else:
                    yield from in_order(batches)
            for number, part in enumerate(partition.parts):
                for rows in reader.snapshot(number, part):
                    yield columns[number].added(self._filled(rows.rows), rows.seconds)
        finally:
            reader.close()

    def _filled(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows with nulls in the declared columns that their table lacks."""
        if self.fields is None or rows.num_columns > len(self.fields):
            return rows
        schema = self.fields.append(rows.schema.field(ROW_KIND))
        names = set(rows.schema.names)
        arrays = [
            rows.column(field.name) if field.name in names else pa.nulls(rows.num_rows, field.type)
            for field in schema
        ]
        return pa.record_batch(arrays, schema=schema)
