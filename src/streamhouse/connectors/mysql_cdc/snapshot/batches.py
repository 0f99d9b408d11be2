"""Reads chunks of a table as batches of inserted rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from streamhouse.connectors.mysql_cdc.binlog.captured_table import CapturedTable
from streamhouse.connectors.mysql_cdc.change_reader import TablePosition
from streamhouse.connectors.mysql_cdc.server.table import Server
from streamhouse.connectors.mysql_cdc.server.values.rows import RowWriter
from streamhouse.connectors.mysql_cdc.snapshot.chunk_reader import (
    ChunkConnections,
    ChunkReader,
    ChunkRows,
)
from streamhouse.connectors.mysql_cdc.snapshot.chunks import Chunk
from streamhouse.connectors.mysql_cdc.snapshot.keyless_reader import KeylessReader

_INSERT = pa.scalar("+I")


def snapshot_batches(
    captured: CapturedTable,
    server: Server,
    writer: RowWriter,
    chunks: Sequence[Chunk],
    as_of: TablePosition,
    lookback: TablePosition | None = None,
    connections: ChunkConnections | None = None,
) -> Iterator[pa.RecordBatch]:
    """The rows of the chunks as of a position; see `ChunkReader` for the parameters.

    `KeylessReader` reads a table without a key.
    """
    for rows in _rows(captured, server, chunks, as_of, lookback, connections):
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
    as_of: TablePosition,
    lookback: TablePosition | None,
    connections: ChunkConnections | None,
) -> Iterator[ChunkRows]:
    if not captured.table.key:
        keyless = KeylessReader(captured, server, as_of)
        try:
            yield from keyless.read()
        finally:
            keyless.close()
        return
    reader = ChunkReader(captured, server, as_of, lookback, connections)
    try:
        for chunk in chunks:
            yield from reader.read(chunk)
    finally:
        reader.close()
