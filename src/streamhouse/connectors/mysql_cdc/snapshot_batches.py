"""Reads chunks of a table by the reader that its key needs, as batches of inserted rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from streamhouse.connectors.mysql_cdc.binlog.captured_table import CapturedTable
from streamhouse.connectors.mysql_cdc.change_reader import TablePosition
from streamhouse.connectors.mysql_cdc.keyless_snapshot import KeylessReader
from streamhouse.connectors.mysql_cdc.server.table import Server
from streamhouse.connectors.mysql_cdc.server.values.rows import RowWriter
from streamhouse.connectors.mysql_cdc.snapshot import (
    Chunk,
    ChunkConnections,
    ChunkReader,
    ChunkRows,
)

_INSERT = pa.scalar("+I")


def snapshot_batches(
    captured: CapturedTable,
    server: Server,
    writer: RowWriter,
    chunks: Sequence[Chunk],
    place: TablePosition,
    lookback: TablePosition | None = None,
    connections: ChunkConnections | None = None,
) -> Iterator[pa.RecordBatch]:
    """The rows of the chunks as of `place`; see `ChunkReader` for the rest, `KeylessReader`."""
    for rows in _rows(captured, server, chunks, place, lookback, connections):
        if rows.columns and len(rows.columns[0]):
            yield writer.snapshot(rows.columns)
        if rows.values:
            yield writer.changes(["+I"] * len(rows.values), rows.values)
        if rows.plain:
            yield writer.changed(pa.repeat(_INSERT, len(rows.plain[0])), rows.plain)


def _rows(
    captured: CapturedTable,
    server: Server,
    chunks: Sequence[Chunk],
    place: TablePosition,
    lookback: TablePosition | None,
    connections: ChunkConnections | None,
) -> Iterator[ChunkRows]:
    if not captured.table.key:
        keyless = KeylessReader(captured, server, place)
        try:
            yield from keyless.read()
        finally:
            keyless.close()
        return
    reader = ChunkReader(captured, server, place, lookback, connections)
    try:
        for chunk in chunks:
            yield from reader.read(chunk)
    finally:
        reader.close()
