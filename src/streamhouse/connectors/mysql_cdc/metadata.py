"""METADATA columns of `mysql-cdc` tables, with Flink CDC's keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from streamhouse.connectors.base import Metadata
from streamhouse.connectors.mysql_cdc.binlog.rows.batch_decoder import Seconds
from streamhouse.source import ROW_KIND
from streamhouse.sql.plan import Column
from streamhouse.types import arrow_type

DATABASE, TABLE, TIME, KIND = "database_name", "table_name", "op_ts", "row_kind"
METADATA = (
    Metadata(DATABASE, "STRING", "the database of the row"),
    Metadata(TABLE, "STRING", "the table of the row"),
    Metadata(
        TIME,
        "TIMESTAMP_LTZ(3)",
        "when the server executed the change, in whole seconds; 1970-01-01 for rows of the "
        "snapshot",
    ),
    Metadata(KIND, "STRING", "`+I`, `-U`, `+U` or `-D`"),
)


@dataclass(frozen=True)
class MetadataColumns:
    """Adds the METADATA columns among the declared `columns` to batches of the other columns."""

    columns: tuple[Column, ...]
    database: str
    table: str

    @classmethod
    def of(cls, columns: Sequence[Column] | None, database: str, table: str) -> MetadataColumns:
        """`columns`: those of a declared table; None: all of the MySQL table, no METADATA."""
        return cls(tuple(columns or ()), database, table)

    @property
    def stored(self) -> tuple[Column, ...]:
        """The columns that the MySQL table has."""
        return tuple(column for column in self.columns if column.metadata is None)

    def schema(self, stored: pa.Schema) -> pa.Schema:
        """The schema with all columns; `stored`: that of the other columns."""
        if len(self.stored) == len(self.columns):
            return stored
        return pa.schema([self._field(column, stored) for column in self.columns])

    def added(self, rows: pa.RecordBatch, seconds: Seconds | None = None) -> pa.RecordBatch:
        """The rows with METADATA columns: all columns in the declared order, then the row kind.

        `seconds`: when the changes were executed (since 1970, UTC); None for a snapshot.
        """
        if len(self.stored) == len(self.columns):
            return rows
        names = self.database, self.table
        schema = self.schema(rows.schema).append(rows.schema.field(ROW_KIND))
        arrays = [
            rows.column(column.name)
            if column.metadata is None
            else metadata_values(column.metadata, names, rows, seconds).cast(
                schema.field(column.name).type
            )
            for column in self.columns
        ]
        return pa.record_batch([*arrays, rows.column(ROW_KIND)], schema=schema)

    def _field(self, column: Column, stored: pa.Schema) -> pa.Field:
        if column.metadata is None:
            return stored.field(column.name)
        return pa.field(column.name, arrow_type(column.type))


def metadata_values(
    key: str, names: tuple[str, str], rows: pa.RecordBatch, seconds: Seconds | None
) -> pa.Array:
    """The values of a METADATA column, for rows with their kinds of the table `names`."""
    if key == KIND:
        return rows.column(ROW_KIND)
    if key == TIME:
        times = pa.array([0] * rows.num_rows if seconds is None else seconds, pa.int64())
        return times.cast(pa.timestamp("s", "UTC"))
    return pa.repeat(pa.scalar(names[key == TABLE]), rows.num_rows)
