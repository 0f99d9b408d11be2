"""One followed table: its definition in MySQL, and the columns to read."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
from pydantic import ConfigDict

from streamhouse.connectors.mysql_cdc.binlog.captured_table import CapturedTable
from streamhouse.mysql.metadata import TableNames
from streamhouse.mysql.options import MySqlOptions
from streamhouse.mysql.table import Server, TableDefinition
from streamhouse.mysql.values.dates import ZeroDates, text_keys
from streamhouse.mysql.values.rows import RowWriter
from streamhouse.mysql.values.types import MySqlColumn
from streamhouse.paimon.schema import types

_MILLIS, _MICROS = 3, 6


@dataclass(frozen=True)
class FollowedTable:
    """A table of MySQL, which a sync writes to the Paimon table `target`, `database.table`.

    `id`: never reused in a sync; a table that is added again gets a new one. `columns`: those to
    read, with the Paimon types of the target's columns. `arrow`: the Arrow types of the columns, if
    they are not those of the Paimon types. `bound` identifies the target and its columns; empty:
    not known.
    """

    id: str
    definition: TableDefinition
    target: str = ""
    columns: tuple[tuple[str, str], ...] = ()
    arrow: tuple[pa.DataType, ...] | None = None
    bound: str = ""
    __pydantic_config__: ClassVar[ConfigDict] = {"arbitrary_types_allowed": True}

    @property
    def names(self) -> TableNames:
        return self.definition.database, self.definition.name

    @property
    def full_name(self) -> str:
        """`database.table` in MySQL."""
        return self.definition.full_name

    @property
    def rows(self) -> int:
        """The server's estimate."""
        return self.definition.size.rows

    def captured_table(
        self, options: MySqlOptions, server: Server, relay: Path | None = None
    ) -> CapturedTable:
        """The description of the table for readers of the binlog."""
        return CapturedTable(
            options.of(*self.names),
            self.definition,
            self._read,
            server,
            relay,
            text_keys(
                (column.name for column in self.definition.key),
                {column.name: target for column, target in self.arrow_columns},
            ),
        )

    @property
    def _read(self) -> tuple[MySqlColumn, ...]:
        """The columns to read: those that are written, then those of the key."""
        by_name = {column.name: column for column in self.definition.columns}
        written = (by_name[name] for name, _ in self.columns)
        return tuple(dict.fromkeys([*written, *self.definition.key]))

    @property
    def arrow_columns(self) -> tuple[tuple[MySqlColumn, pa.DataType], ...]:
        """The columns to read, with their types in Arrow."""
        by_name = {column.name: column for column in self.definition.columns}
        kinds = self.arrow or [types.arrow_type(types.parse(kind)) for _, kind in self.columns]
        names = [name for name, _ in self.columns]
        return tuple((by_name[name], kind) for name, kind in zip(names, kinds, strict=True))

    def writer(self, zone: str, zero_dates: ZeroDates = "CONVERT_TO_NULL") -> RowWriter:
        """Converts rows to Arrow; `zone`: the server's. `zero_dates`: how to read zero dates."""
        selected = self.arrow_columns
        if self.arrow is None:
            selected = tuple((_in_texts(column), kind) for column, kind in selected)
        key = frozenset(column.name for column in self.definition.key)
        return RowWriter(selected, zone, key, zero_dates)


def _in_texts(column: MySqlColumn) -> MySqlColumn:
    """The column with as many digits of fractions as Paimon's actions write into a STRING."""
    if column.family == "datetime":
        return replace(column, fraction=_MILLIS if column.fraction <= _MILLIS else _MICROS)
    return replace(column, fraction=_MICROS) if column.family == "timestamp" else column
