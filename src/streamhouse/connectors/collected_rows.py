"""Rows that tasks send to the driver, for sinks whose committer writes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

_MESSAGE_BYTES = 32 << 20


class CollectingWriter:
    """A `SinkWriter` that sends rows to the driver."""

    def __init__(self) -> None:
        self._batches: list[pa.RecordBatch] = []

    def write(self, rows: pa.RecordBatch) -> None:
        self._batches.append(rows)

    def prepare(self) -> list[pa.Table]:
        messages: list[pa.Table] = []
        part: list[pa.RecordBatch] = []
        size = 0
        for batch in self._batches:
            if part and size + batch.nbytes > _MESSAGE_BYTES:
                messages.append(pa.Table.from_batches(part))
                part, size = [], 0
            part.append(batch)
            size += batch.nbytes
        return [*messages, pa.Table.from_batches(part)] if part else messages

    def close(self) -> None:
        self._batches = []


def collected_rows(messages: Sequence[pa.Table]) -> Iterator[pa.RecordBatch]:
    """The rows in the messages of a batch's tasks, in order."""
    for rows in messages:
        yield from rows.to_batches()
