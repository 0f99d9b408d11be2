"""Rows that wait to be written: in memory while they are few, else in a temporary file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack

import pyarrow as pa

from streamhouse.work_folder import work_folder

_MEMORY_BYTES = 64 << 20


class Spool:
    """Record batches of one schema, which can be read again; a context manager."""

    def __init__(self) -> None:
        self._held: list[pa.RecordBatch] = []
        self._bytes = 0
        self._stack = ExitStack()
        self._path: str | None = None
        self._file: pa.RecordBatchStreamWriter | None = None

    def append(self, batch: pa.RecordBatch) -> None:
        """Add rows; all of them, before the first is read."""
        if self._file is not None:
            self._file.write_batch(batch)
            return
        self._held.append(batch)
        self._bytes += batch.nbytes
        if self._bytes > _MEMORY_BYTES:
            self._begin_file(batch.schema)

    def _begin_file(self, schema: pa.Schema) -> None:
        folder = self._stack.enter_context(work_folder("streamhouse-insert-"))
        self._path = os.path.join(folder, "rows.arrow")
        out = self._stack.enter_context(pa.OSFile(self._path, "wb"))
        self._file = pa.ipc.new_stream(out, schema)
        for batch in self._held:
            self._file.write_batch(batch)
        self._held = []

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        if self._path is None:
            yield from self._held
            return
        if self._file is not None:
            self._file.close()
        with pa.OSFile(self._path, "rb") as source:
            yield from pa.ipc.open_stream(source)

    def __enter__(self) -> Spool:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
