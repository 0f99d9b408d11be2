"""The table whose changes are read from the binlog."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from streamhouse.connectors.mysql_cdc.binlog.sql.tokens import TableName
from streamhouse.mysql.options import MySqlOptions
from streamhouse.mysql.table import Server, TableDefinition
from streamhouse.mysql.values.dates import DateReading
from streamhouse.mysql.values.types import MySqlColumn


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

    def date_reading(self, column: MySqlColumn) -> DateReading:
        """How to read dates of a column, which is found by its name."""
        in_key = any(column.name == key.name for key in self.table.key)
        return DateReading(self.options.zero_dates, in_key, column.name in self.text_keys)
