"""Rows that tasks send to the driver, for sinks whose committer writes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

_MESSAGE_BYTES = 32 << 20
_COMPRESSED_BYTES = 1 << 20
"""From this size on, rows are compressed: Spark takes longer to pass them on than LZ4 to pack."""


class CollectingWriter:
    """A `SinkWriter` that sends rows to the driver, as Arrow IPC."""

    def __init__(self) -> None:
        self._batches: list[pa.RecordBatch] = []

    def write(self, rows: pa.RecordBatch) -> None:
        self._batches.append(rows)

    def prepare(self) -> list[bytes]:
        messages: list[bytes] = []
        part: list[pa.RecordBatch] = []
        size = 0
        for batch in self._batches:
            if part and size + batch.nbytes > _MESSAGE_BYTES:
                messages.append(_message(part))
                part, size = [], 0
            part.append(batch)
            size += batch.nbytes
        return [*messages, _message(part)] if part else messages

    def close(self) -> None:
        self._batches = []


def collected_rows(messages: Sequence[bytes]) -> Iterator[pa.RecordBatch]:
    """The rows in the messages of a batch's tasks, in order."""
    for message in messages:
        yield from pa.ipc.open_stream(message)


def _message(batches: Sequence[pa.RecordBatch]) -> bytes:
    large = sum(batch.nbytes for batch in batches) >= _COMPRESSED_BYTES
    options = pa.ipc.IpcWriteOptions(compression="lz4" if large else None)
    buffer = pa.BufferOutputStream()
    with pa.ipc.new_stream(buffer, batches[0].schema, options=options) as stream:
        for batch in batches:
            stream.write_batch(batch)
    return bytes(buffer.getvalue())
