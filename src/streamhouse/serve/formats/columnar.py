"""Writes rows as Parquet and Arrow, batch by batch, with the columns' own types.

The file gets the given schema with its metadata; batches have its column types, in its order.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import BinaryIO, Literal

import pyarrow as pa

from streamhouse.paimon.write.rows import gathered

ROW_GROUP_ROWS = 131_072
ROW_GROUP_BYTES = 64 << 20
"""Size of a Parquet row group: large enough to read fast, small enough to buffer for writing."""
_BATCH_ROWS = 65_536
_BATCH_BYTES = 8 << 20


def write_parquet(
    out: BinaryIO,
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    compression: Literal["snappy", "zstd"],
) -> None:
    """Write a Parquet file; every reader knows Snappy, Zstandard is smaller."""
    import pyarrow.parquet as pq  # slow to import, and seldom needed

    with pq.ParquetWriter(out, schema, compression=compression) as writer:
        for batch in gathered(batches, ROW_GROUP_ROWS, ROW_GROUP_BYTES):
            writer.write_batch(_as(batch, schema))


def write_stream(out: BinaryIO, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
    """Write an Arrow IPC stream, which clients can read while it arrives."""
    with pa.ipc.new_stream(out, schema) as writer:
        for batch in gathered(batches, _BATCH_ROWS, _BATCH_BYTES):
            writer.write_batch(_as(batch, schema))


def write_file(out: BinaryIO, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
    """Write an Arrow IPC file, which supports memory mapping and random access."""
    with pa.ipc.new_file(out, schema) as writer:
        for batch in gathered(batches, _BATCH_ROWS, _BATCH_BYTES):
            writer.write_batch(_as(batch, schema))


def _as(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    return pa.record_batch(batch.columns, schema=schema)
