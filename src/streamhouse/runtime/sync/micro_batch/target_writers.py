"""Writes the rows of a task to its targets in a few threads; executors.

docs/decisions/215-small-tables-are-written-concurrently.md says why.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TypeVar

import pyarrow as pa

from streamhouse.connectors.paimon.sink import PaimonSinkWriter
from streamhouse.paimon.catalog.table_address import TableAddress

THREADS = 2
_WAITING_BYTES = 32 * 1024 * 1024
"""How many bytes of rows may wait for a thread."""
_SMALL_BYTES = 8 * 1024 * 1024
"""Of targets with more rows than this, only one is written at a time, since buffers are large."""

Result = TypeVar("Result")


class TargetWriters:
    """The writers of a task, each used by one thread: the Rust core's cannot change threads.

    `opened` creates the writer of a target. `bases` has the latest snapshot of each target from
    before its writer was created; 0 for none. Rows of one target are written in order. Errors of a
    target's writes are raised by `flush` or `written`; then its later rows are dropped.
    """

    def __init__(
        self,
        address: Callable[[str], TableAddress],
        opened: Callable[[TableAddress], PaimonSinkWriter],
        threads: int,
    ) -> None:
        self._address, self._opened = address, opened
        self._threads = [ThreadPoolExecutor(1, "sync-write") for _ in range(max(1, threads))]
        self._thread_of: dict[str, ThreadPoolExecutor] = {}
        self._writers: dict[str, PaimonSinkWriter] = {}
        self._writes: dict[str, list[Future[None]]] = {}
        self._prepared: dict[str, Future[list[bytes]]] = {}
        self._bytes: dict[str, int] = {}
        self._failed: set[str] = set()
        self._closed = False
        self._waiting, self._room = 0, threading.Condition()
        self.bases: dict[str, int] = {}

    def read_at(self, target: str) -> None:
        """Note the latest snapshot of a target, before the rows to write are derived from it."""
        self.bases.setdefault(target, self._address(target).follow().latest_snapshot_id() or 0)

    def write(self, target: str, rows: pa.RecordBatch) -> None:
        """Write rows soon; waits while too many wait. May raise the error of earlier rows."""
        if target in self._failed:
            self.written(target)
        size = rows.nbytes
        with self._room:
            self._room.wait_for(lambda: not self._waiting or self._waiting + size <= _WAITING_BYTES)
            self._waiting += size
        self._bytes[target] = self._bytes.get(target, 0) + size
        future = self._submit(target, partial(self._write, target, rows, size))
        self._writes.setdefault(target, []).append(future)

    def flush(self) -> None:
        """Wait until all rows are written; raises the first error."""
        for target in list(self._writes):
            self.written(target)

    def written(self, target: str) -> None:
        """Wait until the rows of a target are written; raises the first error."""
        for future in self._writes.pop(target, ()):
            future.result()

    def prepare(self, target: str) -> None:
        """Close the files of a target, after which it gets no more rows; waits only for large ones.

        `messages` has the result.
        """
        if target in self._thread_of:
            self._prepared[target] = self._submit(target, partial(self._closed_files, target))
            if self._bytes.get(target, 0) > _SMALL_BYTES:
                self._prepared[target].exception()

    def messages(self, target: str) -> list[bytes]:
        """The commit messages of a target; none if it had no rows, or a write has failed."""
        prepared = self._prepared.pop(target, None)
        return [] if prepared is None else prepared.result()

    def discard(self, target: str) -> None:
        """Drop the rows of a target, earlier and later ones; its files become orphan files."""
        self._failed.add(target)
        if target in self._thread_of:
            self._submit(target, partial(self._close, target)).result()
        self._writes.pop(target, None)
        self.bases.pop(target, None)

    def close(self) -> None:
        """Close the writers, each in its thread, and end the threads."""
        self._closed = True
        for target in self._thread_of:
            self._submit(target, partial(self._close, target))
        for thread in self._threads:
            thread.shutdown()

    def _submit(self, target: str, job: Callable[[], Result]) -> Future[Result]:
        if target not in self._thread_of:
            thread = self._threads[len(self._thread_of) % len(self._threads)]
            self._thread_of[target] = thread
        return self._thread_of[target].submit(job)

    # -- in the thread of a target

    def _write(self, target: str, rows: pa.RecordBatch, size: int) -> None:
        try:
            if not (self._closed or target in self._failed):
                self._writer(target).write(rows)
        except BaseException:
            self._failed.add(target)
            raise
        finally:
            with self._room:
                self._waiting -= size
                self._room.notify()

    def _writer(self, target: str) -> PaimonSinkWriter:
        if target not in self._writers:
            self.read_at(target)
            self._writers[target] = self._opened(self._address(target))
        return self._writers[target]

    def _closed_files(self, target: str) -> list[bytes]:
        writer = self._writers.get(target)
        try:
            return [] if writer is None or target in self._failed else writer.prepare()
        finally:
            self._close(target)

    def _close(self, target: str) -> None:
        writer = self._writers.pop(target, None)
        if writer is not None:
            writer.close()
