"""Rows as Parquet and Arrow, written batch by batch with the columns' own types.

The schema is what is written, its metadata with it; batches have columns of its types in its order.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import BinaryIO, Literal

import pyarrow as pa

from streamhouse.paimon.write.rows import gathered

ROW_GROUP_ROWS = 131_072
ROW_GROUP_BYTES = 64 << 20
"""Of Parquet: large enough to be read fast, small enough to be held while it is written."""
_BATCH_ROWS = 65_536
_BATCH_BYTES = 8 << 20


def write_parquet(
    out: BinaryIO,
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    compression: Literal["snappy", "zstd"],
) -> None:
    """A Parquet file; Snappy is known to every reader, Zstandard is smaller."""
    import pyarrow.parquet as pq  # slow to import, and most answers do without

    with pq.ParquetWriter(out, schema, compression=compression) as writer:
        for batch in gathered(batches, ROW_GROUP_ROWS, ROW_GROUP_BYTES):
            writer.write_batch(_as(batch, schema))


def write_stream(out: BinaryIO, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
    """Arrow's IPC stream, which is read as it comes."""
    with pa.ipc.new_stream(out, schema) as writer:
        for batch in gathered(batches, _BATCH_ROWS, _BATCH_BYTES):
            writer.write_batch(_as(batch, schema))


def write_file(out: BinaryIO, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
    """Arrow's IPC file, which can be mapped into memory and read from the middle."""
    with pa.ipc.new_file(out, schema) as writer:
        for batch in gathered(batches, _BATCH_ROWS, _BATCH_BYTES):
            writer.write_batch(_as(batch, schema))


def _as(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    return pa.record_batch(batch.columns, schema=schema)
