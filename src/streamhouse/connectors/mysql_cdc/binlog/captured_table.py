"""The table whose changes are read from the binlog."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from streamhouse.connectors.mysql_cdc.binlog.sql.token_cursor import TableName
from streamhouse.connectors.mysql_cdc.server.options import MySqlOptions
from streamhouse.connectors.mysql_cdc.server.table import TableDefinition
from streamhouse.connectors.mysql_cdc.server.values.types import MySqlColumn


@dataclass(frozen=True)
class CapturedTable:
    """A table whose changes are captured, and the columns to read, in order.

    `relay`: the folder of a relay log that has the table's changes, if any. `ignores_case`: whether
    the server ignores the case of names of tables. `by_place`: it does not log names of columns.
    Whether swaps are followed, the options say.
    """

    options: MySqlOptions
    table: TableDefinition
    columns: tuple[MySqlColumn, ...]
    mariadb: bool = True
    relay: Path | None = None
    ignores_case: bool = False
    by_place: bool = False

    @property
    def parsed_name(self) -> TableName:
        """The table's name as in parsed statements of its server."""
        return TableName.parsed(self.table.database, self.table.name, self.ignores_case)
