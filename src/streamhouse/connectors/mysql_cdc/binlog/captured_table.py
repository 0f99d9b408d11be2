"""The table whose changes are read from the binlog."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pyarrow as pa

from streamhouse.connectors.mysql_cdc.binlog.sql.tokens import TableName
from streamhouse.mysql.options import MySqlOptions
from streamhouse.mysql.position import KeyJson
from streamhouse.mysql.table import Server, TableDefinition
from streamhouse.mysql.values.dates import DateReading
from streamhouse.mysql.values.types import MySqlColumn, key_of_value, to_values


@dataclass(frozen=True)
class CapturedTable:
    """A table of a server whose changes are captured, and the columns to read, in order.

    `relay`: the folder of a relay log that has the table's changes, if any. `text_keys`: the
    columns of the key that are written as texts, or not at all; their dates are read as texts.
    """

    options: MySqlOptions
    table: TableDefinition
    columns: tuple[MySqlColumn, ...]
    server: Server = Server(True, "")
    relay: Path | None = None
    text_keys: frozenset[str] = frozenset()

    @property
    def parsed_name(self) -> TableName:
        """The table's name as in parsed statements of its server."""
        return TableName.parsed(self.table.database, self.table.name, self.server.ignores_case)

    @cached_property
    def key_indexes(self) -> tuple[int, ...]:
        """The indexes of the key's columns among those that are read."""
        names = [column.name for column in self.columns]
        return tuple(names.index(column.name) for column in self.table.key)

    def keys(self, plain: Sequence[pa.Array]) -> list[KeyJson]:
        """The keys of changed rows, from the plain arrays of the key's columns."""
        values = []
        for column, array in zip(self.table.key, plain, strict=True):
            reading = self.date_reading(column)
            values.append([key_of_value(column, one, reading) for one in to_values(column, array)])
        return list(zip(*values, strict=True))

    def date_reading(self, column: MySqlColumn) -> DateReading:
        """How to read dates of a column, which is found by its name."""
        in_key = any(column.name == key.name for key in self.table.key)
        return DateReading(self.options.zero_dates, in_key, column.name in self.text_keys)
