"""Reads the partitions of a declared table, on executors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from streamhouse.connectors.mysql_cdc.database.part_reader import PartReader, in_order
from streamhouse.connectors.mysql_cdc.database.table_part import TablePart
from streamhouse.connectors.mysql_cdc.metadata import MetadataColumns
from streamhouse.mysql.options import MySqlOptions
from streamhouse.mysql.position import BinlogPosition
from streamhouse.mysql.table import Server
from streamhouse.source import ROW_KIND
from streamhouse.sql.plan import Column


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
