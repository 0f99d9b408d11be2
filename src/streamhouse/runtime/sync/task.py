"""One task of a sync's batch: reads its tables and writes their rows; returns commit messages.

The rows are written in a few threads: docs/decisions/215-small-tables-are-written-concurrently.md
says why.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

import pyarrow as pa

from streamhouse.connectors.mysql_cdc.database.part_reader import (
    PartReader,
    TablePart,
    TableRows,
    in_order,
)
from streamhouse.connectors.mysql_cdc.database.progress import DatabaseProgress
from streamhouse.connectors.mysql_cdc.lag import ChangeCounts
from streamhouse.connectors.paimon.connector import PaimonSinkWriter
from streamhouse.errors import AlteredTableError, SchemaChangeError
from streamhouse.mysql.values.table_errors import errors_of
from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.runtime.failpoint import TASK_STEP, reached
from streamhouse.runtime.streaming.tasks.task_results import TaskAttempt, results
from streamhouse.runtime.sync.mapping.rows import TargetRows
from streamhouse.runtime.sync.reload import Reload, kept_columns
from streamhouse.runtime.sync.spec import SyncSpec, SyncTaskInput

log = logging.getLogger("streamhouse.query")


def run(spec: SyncSpec, task: SyncTaskInput) -> Iterator[pa.RecordBatch]:
    """Run a task of a batch; see `runtime.streaming.spark_data_source.Job`."""
    return SyncTask(spec, task).run()


class SyncTask:
    """Runs one `SyncTaskInput`; executors.

    If it runs twice with the same input, it writes the same rows into different files, of which
    only one set can be committed.
    """

    def __init__(self, spec: SyncSpec, task: SyncTaskInput) -> None:
        self._spec, self._task = spec, task
        self._attempt = TaskAttempt.current()
        self._reader = PartReader(spec.options.mysql, spec.server, task.zone, spec.relay)
        targets = {part.table.target for part in task.parts}
        self._writers = TargetWriters(
            spec.options.address, self._opened, min(THREADS, len(targets))
        )
        self._rows: dict[str, TargetRows] = {}
        self._snapshot: Counter[str] = Counter()
        self._changes: Counter[str] = Counter()
        self._kinds = ChangeCounts()
        self._unread: list[str] = []

    def run(self) -> Iterator[pa.RecordBatch]:
        """Run the task; yields rows of `RESULT`: messages of each table, then the report."""
        messages: list[tuple[str, bytes]] = []
        try:
            self._read_changes()
            self._writers.flush()
            by_target: dict[str, list[int]] = {}
            for number, part in enumerate(self._task.parts):
                by_target.setdefault(part.table.target, []).append(number)
            for target, numbers in by_target.items():
                with self._unread_if_altered(target):
                    self._read_rows(target, numbers)
                self._writers.prepare(target)
            for target in by_target:
                with self._unread_if_altered(target):
                    messages += [(target, message) for message in self._writers.messages(target)]
        finally:
            self._reader.close()
            self._writers.close()
        yield self._result(messages)

    @contextmanager
    def _unread_if_altered(self, target: str) -> Iterator[None]:
        """Leave out a target whose rows as of the position are lost; it is reloaded later."""
        try:
            yield
        except (SchemaChangeError, AlteredTableError) as error:
            log.info("%s: not read: %s", target, error)
            self._unread.append(target)
            self._writers.discard(target)

    def _read_changes(self) -> None:
        end = DatabaseProgress.from_offset(self._task.end["source"])
        assert end is not None
        for stretch in self._reader.changes(self._task.parts, end.position):
            by_target: dict[str, list[TableRows]] = {}
            for rows in stretch:
                table = self._task.parts[rows.part].table
                self._changes[table.id] += rows.rows.num_rows
                self._kinds.add(rows.rows)
                by_target.setdefault(table.target, []).append(rows)
            for one in by_target.values():
                self._write(one)

    def _read_rows(self, target: str, numbers: Sequence[int]) -> None:
        """Read the snapshots of a target's tables, or reload it."""
        parts = [(number, self._task.parts[number]) for number in numbers]
        if all(part.reload is None for _, part in parts):
            for rows in self._snapshots(parts):
                self._write([rows])
            return
        self._writers.read_at(target)
        table = self._spec.options.address(target).open()
        sources = {column for _, part in parts if part.chunks for column, _ in part.table.columns}
        estimate = sum(part.table.rows for _, part in parts)
        with Reload(table, kept_columns(self._spec.options, table, sources), estimate) as reload:
            for rows in self._snapshots(parts):
                reload.add(self._completed(rows))
            for changes in reload.changes(all(part.reload for _, part in parts)):
                self._writers.write(target, changes)

    def _snapshots(self, parts: Sequence[tuple[int, TablePart]]) -> Iterator[TableRows]:
        for number, part in parts:
            for rows in self._reader.snapshot(number, part):
                self._snapshot[part.table.id] += rows.rows.num_rows
                yield rows

    def _write(self, stretch: Sequence[TableRows]) -> None:
        """Write rows of tables with the same target, in the order of their changes."""
        target = self._task.parts[stretch[0].part].table.target
        batches = [(self._completed(rows), rows.numbers) for rows in stretch]
        for batch in in_order(batches):
            self._writers.write(target, batch)

    def _opened(self, address: TableAddress) -> PaimonSinkWriter:
        return PaimonSinkWriter(address, self._spec.query_id, self._task.batch, self._attempt.id)

    def _completed(self, rows: TableRows) -> pa.RecordBatch:
        """The rows with the computed and metadata columns."""
        table = self._task.parts[rows.part].table
        if table.id not in self._rows:
            target = self._spec.options.address(table.target).open()
            self._rows[table.id] = TargetRows(self._spec.options, table, target, self._task.now_ms)
        with errors_of(table.full_name):
            return self._rows[table.id].rows(rows.rows, rows.seconds)

    def _result(self, messages: list[tuple[str, bytes]]) -> pa.RecordBatch:
        if not self._attempt.repeated:
            reached(TASK_STEP, self._task.batch, self._spec.options.name)
        counts = {
            "bases": self._writers.bases,
            "snapshot": self._snapshot,
            "changes": self._changes,
            "kinds": self._kinds.taken(),
            "unread": self._unread,
        }
        return results(self._task, self._attempt, messages, counts)


THREADS = 2
_WAITING_BYTES = 32 * 1024 * 1024
"""How many bytes of rows may wait for a thread."""
_SMALL_BYTES = 8 * 1024 * 1024
"""Of targets with more rows than this, only one is written at a time, since buffers are large."""

Result = TypeVar("Result")


class TargetWriters:
    """The writers of a task, each used by one thread: the Rust core's cannot change threads.

    `opened` creates the writer of a target. `bases` has the latest snapshot of each target from
    before its writer was created; 0 for none. Rows of one target are written in order. After an
    error, the later rows of a target are dropped, and the next call about it raises the error.
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
        self._prepared: dict[str, Future[list[bytes]]] = {}
        self._bytes = Counter[str]()
        self._errors: dict[str, BaseException] = {}
        self._dropped: set[str] = set()
        self._closed = False
        self._waiting, self._room = 0, threading.Condition()
        self.bases: dict[str, int] = {}

    def read_at(self, target: str) -> None:
        """Note the latest snapshot of a target, before the rows to write are derived from it."""
        self.bases.setdefault(target, self._address(target).follow().latest_snapshot_id() or 0)

    def write(self, target: str, rows: pa.RecordBatch) -> None:
        """Write rows soon; waits while too many wait."""
        self._check(target)
        size = rows.nbytes
        with self._room:
            self._room.wait_for(lambda: not self._waiting or self._waiting + size <= _WAITING_BYTES)
            self._waiting += size
        self._bytes[target] += size
        self._submit(target, partial(self._write, target, rows, size))

    def flush(self) -> None:
        """Wait until all rows are written; raises the first error."""
        for target in list(self._thread_of):
            self._submit(target, partial(self._check, target)).result()

    def prepare(self, target: str) -> None:
        """Close the files of a target, after which it gets no more rows; waits only for large ones.

        `messages` has the result.
        """
        if target in self._thread_of:
            self._prepared[target] = self._submit(target, partial(self._closed_files, target))
            if self._bytes[target] > _SMALL_BYTES:
                self._prepared[target].exception()

    def messages(self, target: str) -> list[bytes]:
        """The commit messages of a target; none if it had no rows, or was discarded."""
        prepared = self._prepared.pop(target, None)
        return [] if prepared is None else prepared.result()

    def discard(self, target: str) -> None:
        """Drop the rows of a target, earlier and later ones; its files become orphan files."""
        self._dropped.add(target)
        if target in self._thread_of:
            self._submit(target, partial(self._close, target)).result()
        self._errors.pop(target, None)
        self.bases.pop(target, None)

    def close(self) -> None:
        """Close the writers, each in its thread, and end the threads."""
        self._closed = True
        for target in self._thread_of:
            self._submit(target, partial(self._close, target))
        for thread in self._threads:
            thread.shutdown()

    def _check(self, target: str) -> None:
        if target in self._errors:
            raise self._errors[target]

    def _submit(self, target: str, job: Callable[[], Result]) -> Future[Result]:
        if target not in self._thread_of:
            thread = self._threads[len(self._thread_of) % len(self._threads)]
            self._thread_of[target] = thread
        return self._thread_of[target].submit(job)

    # -- in the thread of a target

    def _write(self, target: str, rows: pa.RecordBatch, size: int) -> None:
        try:
            if not (self._closed or target in self._errors or target in self._dropped):
                self._writer(target).write(rows)
        except BaseException as error:  # noqa: BLE001  # raised by the next call
            self._errors[target] = error
        with self._room:
            self._waiting -= size
            self._room.notify()

    def _writer(self, target: str) -> PaimonSinkWriter:
        if target not in self._writers:
            self.read_at(target)
            self._writers[target] = self._opened(self._address(target))
        return self._writers[target]

    def _closed_files(self, target: str) -> list[bytes]:
        try:
            self._check(target)
            writer = self._writers.get(target)
            return [] if writer is None else list(writer.prepare())
        finally:
            self._close(target)

    def _close(self, target: str) -> None:
        writer = self._writers.pop(target, None)
        if writer is not None:
            writer.close()
