"""Stages rows for the writers of a primary-key table: a few inline, many in files by group."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from typing import Any, Self

import pyarrow as pa

from streamhouse.paimon.storage.files import Files, is_local, local_path
from streamhouse.paimon.write.buckets import BucketGroups
from streamhouse.paimon.write.rows import gathered

INLINE_BYTES = 2 << 20
"""Up to this size, rows are sent in the commit message, without a file."""

CHUNK_ROWS = 65_536
"""Rows that are split at once: with Spark's smaller batches, calls cost more than the work."""


@dataclass(frozen=True)
class Staged:
    """The rows of one task, in order: `data` (an Arrow IPC stream), or files with their group."""

    data: bytes | None = None
    paths: tuple[tuple[int, str], ...] = ()


def stage(
    files: Files,
    grouping: BucketGroups | None,
    folder: str,
    name: str,
    batches: Iterator[pa.RecordBatch],
) -> Staged:
    """Store a task's rows until the commit; executors.

    The names of files begin with `name`.
    """
    buffered: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        buffered.append(batch)
        size += batch.nbytes
        if size > INLINE_BYTES:
            with _GroupFiles(files, f"{folder}/{name}") as out:
                for rows in gathered(chain(buffered, batches), CHUNK_ROWS):
                    for group, part in grouping.split(rows) if grouping else [(0, rows)]:
                        out.write(group, part)
            return Staged(paths=out.paths)
    if not buffered:
        return Staged()
    buffer = pa.BufferOutputStream()
    with pa.ipc.new_stream(buffer, buffered[0].schema, options=_LZ4) as writer:
        for batch in buffered:
            writer.write_batch(batch)
    return Staged(data=buffer.getvalue().to_pybytes())


def staged_rows(
    files: Files, grouping: BucketGroups | None, staged: Sequence[Staged], group: int | None
) -> Iterator[pa.RecordBatch]:
    """The staged rows of a group (None: of all), in the order of `staged`; driver."""
    for result in staged:
        if result.data is not None:
            for rows in pa.ipc.open_stream(result.data):
                yield rows if group is None or grouping is None else grouping.only(rows, group)
        for number, path in result.paths:
            if group is None or number == group:
                yield from _file_rows(files, path)


def _file_rows(files: Files, path: str) -> Iterator[pa.RecordBatch]:
    local = is_local(path)
    source = pa.memory_map(local_path(path)) if local else files.open_input(path)
    with source, pa.ipc.open_stream(source) as reader:
        yield from reader


class _GroupFiles:
    """One Arrow IPC file per group, opened for its first rows."""

    def __init__(self, files: Files, stem: str) -> None:
        self._files = files
        self._stem = stem
        self._writers: dict[int, Any] = {}
        self._open = ExitStack()

    @property
    def paths(self) -> tuple[tuple[int, str], ...]:
        return tuple((group, self._path(group)) for group in sorted(self._writers))

    def write(self, group: int, batch: pa.RecordBatch) -> None:
        writer = self._writers.get(group)
        if writer is None:
            sink = self._open.enter_context(self._files.open_output(self._path(group)))
            # A local file usually stays in the page cache, where compression would gain nothing.
            options = pa.ipc.IpcWriteOptions() if is_local(self._stem) else _LZ4
            writer = pa.ipc.new_stream(sink, batch.schema, options=options)
            self._writers[group] = self._open.enter_context(writer)
        writer.write_batch(batch)

    def _path(self, group: int) -> str:
        return f"{self._stem}-{group}.arrows"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._open.close()


_LZ4 = pa.ipc.IpcWriteOptions(compression="lz4")
