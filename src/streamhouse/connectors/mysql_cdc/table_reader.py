"""Reads the partitions of one table's stream, on executors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from streamhouse.connectors.mysql_cdc.binlog.captured_table import CapturedTable
from streamhouse.connectors.mysql_cdc.change_reader import (
    TablePosition,
    read_row_events,
    read_rows,
)
from streamhouse.connectors.mysql_cdc.key_group import KeyGroup
from streamhouse.connectors.mysql_cdc.metadata import MetadataColumns
from streamhouse.connectors.mysql_cdc.server.position import BinlogPosition, KeyJson
from streamhouse.connectors.mysql_cdc.server.table import Server
from streamhouse.connectors.mysql_cdc.server.values.rows import RowWriter
from streamhouse.connectors.mysql_cdc.snapshot.batches import snapshot_batches
from streamhouse.connectors.mysql_cdc.snapshot.chunks import Chunk
from streamhouse.connectors.mysql_cdc.snapshot.key_filter import FilteredChanges, SnapshotFilter

_BATCH_ROWS = 65_536


@dataclass(frozen=True)
class BinlogPart:
    """The changes in a range of the binlog, of keys up to `up_to` (None: of all keys).

    `key_group`: whose changes to read, if the range is divided among several partitions.
    """

    start: TablePosition
    end: BinlogPosition
    up_to: KeyJson | None = None
    key_group: KeyGroup | None = None


@dataclass(frozen=True)
class SnapshotPart:
    """Chunks of the table as of a position; for `lookback` see `ChunkReader`."""

    chunks: tuple[Chunk, ...]
    as_of: TablePosition
    lookback: TablePosition | None = None


@dataclass(frozen=True)
class TableReader:
    """Reads the rows of partitions, each with its row kind in the last column."""

    captured: CapturedTable
    server: Server
    writer: RowWriter
    metadata: MetadataColumns

    def snapshot(self, part: SnapshotPart) -> Iterator[pa.RecordBatch]:
        """The rows of the chunks, as inserts."""
        batches = snapshot_batches(
            self.captured, self.server, self.writer, part.chunks, part.as_of, part.lookback
        )
        for rows in batches:
            yield self.metadata.added(rows)

    def changes(self, part: BinlogPart) -> Iterator[pa.RecordBatch]:
        """The changes of the range, in order."""
        if part.up_to is not None:
            yield from self._filtered(part, part.up_to)
            return
        for rows in read_rows(self.captured, part.start, part.end, part.key_group):
            batch = self.writer.changed(rows.kinds, rows.columns)
            yield self.metadata.added(batch, rows.seconds)

    def _filtered(self, part: BinlogPart, up_to: KeyJson) -> Iterator[pa.RecordBatch]:
        """The changes of the keys that the snapshot has read."""
        snapshot_filter = SnapshotFilter(self.captured, up_to, self.captured.options)
        changes = FilteredChanges(snapshot_filter)
        try:
            for event in read_row_events(self.captured, part.start, part.end):
                changes.add(event)
                if len(changes.rows) >= _BATCH_ROWS:
                    yield self._written(changes)
        finally:
            snapshot_filter.close()
        if changes.rows:
            yield self._written(changes)

    def _written(self, changes: FilteredChanges) -> pa.RecordBatch:
        batch = self.writer.changes(changes.kinds, changes.rows)
        rows = self.metadata.added(batch, changes.seconds)
        changes.clear()
        return rows
