"""Rows on their way to the one writer of a primary-key table: a few inline, many in files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from streamhouse.paimon.files import Files

INLINE_BYTES = 2 << 20
"""Up to this size rows travel in the commit message, which costs no file."""


@dataclass(frozen=True)
class Staged:
    """The rows of one task, in their order: `data` holds them, or the file at `path`."""

    partition: int
    data: bytes | None = None
    path: str | None = None


def stage(
    files: Files, folder: str, partition: int, attempt: str, batches: Iterator[pa.RecordBatch]
) -> Staged:
    """Keep a task's rows until the commit; executors."""
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        held.append(batch)
        size += batch.nbytes
        if size > INLINE_BYTES:
            path = f"{folder}/{partition}-{attempt}.arrows"
            with files.open_output(path) as sink:
                _write(sink, held, batches)
            return Staged(partition, path=path)
    if not held:
        return Staged(partition)
    buffer = pa.BufferOutputStream()
    _write(buffer, held, iter(()))
    return Staged(partition, data=buffer.getvalue().to_pybytes())


def staged_rows(files: Files, staged: Staged) -> Iterator[pa.RecordBatch]:
    """The rows again; driver."""
    if staged.data is not None:
        yield from pa.ipc.open_stream(staged.data)
    elif staged.path is not None:
        with files.open_input(staged.path) as source, pa.ipc.open_stream(source) as reader:
            yield from reader


def _write(sink: object, held: list[pa.RecordBatch], rest: Iterator[pa.RecordBatch]) -> None:
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.ipc.new_stream(sink, held[0].schema, options=options) as writer:
        for batch in held:
            writer.write_batch(batch)
        for batch in rest:
            writer.write_batch(batch)
