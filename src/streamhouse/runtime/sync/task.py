"""One task of a sync's batch: reads its tables and writes their rows; returns commit messages.

Several targets are written at once: docs/decisions/148-one-query-syncs-many-tables.md
says why.
"""

import logging
import threading
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import ExitStack, closing
from functools import partial

import pyarrow as pa

from streamhouse.arrow_batches import read_ahead
from streamhouse.connectors.base import Message
from streamhouse.connectors.mysql_cdc.database.part_reader import (
    PartReader,
    TablePart,
    TableRows,
    in_order,
    kind_counts,
)
from streamhouse.connectors.mysql_cdc.database.progress import DatabaseProgress
from streamhouse.connectors.paimon.connector import sink_writer
from streamhouse.errors import AlteredTableError, SchemaChangeError
from streamhouse.mysql.values.types import errors_of
from streamhouse.runtime.streaming.tasks.task_protocol import TaskAttempt, results, written
from streamhouse.runtime.sync.mapping.computed_columns import TargetRows
from streamhouse.runtime.sync.reload import kept_columns, reloaded
from streamhouse.runtime.sync.spec import SyncSpec, SyncTaskInput
from streamhouse.state.segment import spilled

log = logging.getLogger("streamhouse.query")
THREADS = 3
"""Each reads and writes; while one waits for storage, two can use the processors."""
_SMALL_BYTES = 8 * 1024 * 1024
"""Of targets with more rows than this, only one is written at a time, since buffers are large."""
_MEMORY_BYTES = 64 * 1024 * 1024
"""Changes beyond this wait in files; a batch has more if one transaction has."""
_FILE_BYTES = 64 * 1024
"""Fewer changes are not worth a file of their own."""


def run(spec: SyncSpec, task: SyncTaskInput) -> Iterator[pa.RecordBatch]:
    """Run a task of a batch; see `runtime.streaming.spark_job.Job`."""
    return SyncTask(spec, task).run()


class SyncTask:
    """Runs one `SyncTaskInput`; executors.

    If it runs twice with the same input, it writes the same rows into different files, of which
    only one set can be committed.
    """

    def __init__(self, spec: SyncSpec, task: SyncTaskInput) -> None:
        self._spec, self._task = spec, task
        self._attempt = TaskAttempt.current()
        self._readers = ExitStack()
        self._of_thread = threading.local()
        self._rows: dict[str, TargetRows] = {}
        self._changed: dict[str, list[pa.RecordBatch]] = {}
        self._kept_bytes = 0
        self._large, self._ended = threading.Lock(), threading.Event()
        self._bases: dict[str, int] = {}
        self._snapshot: Counter[str] = Counter()
        self._changes: Counter[str] = Counter()
        self._kinds: Counter[str] = Counter()
        self._unread: list[str] = []

    def run(self) -> Iterator[pa.RecordBatch]:
        """Run the task; yields rows of `RESULT`: messages of each table, then the report."""
        parts_of: dict[str, list[TablePart]] = {}
        for part in self._task.parts:
            parts_of.setdefault(part.table.target, []).append(part)
        with self._readers:
            self._read_changes()
            with ThreadPoolExecutor(THREADS, "sync-write") as threads:
                targets = [threads.submit(self._target, *one) for one in parts_of.items()]
                done, rest = wait(targets, return_when=FIRST_EXCEPTION)
                # After an error, nothing else needs to be read to its end.
                self._ended.set()
                for target in rest:
                    target.cancel()
                messages = [message for target in done for message in target.result()]
        counts = {
            "bases": self._bases,
            "snapshot": self._snapshot,
            "changes": self._changes,
            "kinds": self._kinds,
            "unread": self._unread,
        }
        yield results(self._task, self._attempt, self._spec.options.name, messages, counts)

    @property
    def _reader(self) -> PartReader:
        """The reader of this thread, with connections of its own."""
        if not hasattr(self._of_thread, "reader"):
            spec = self._spec
            reader = PartReader(spec.options.mysql, spec.server, self._task.zone, spec.relay)
            self._readers.callback(reader.close)
            self._of_thread.reader = reader
        found: PartReader = self._of_thread.reader
        return found

    def _read_changes(self) -> None:
        """Read the changes of all targets, in one pass over the binlog."""
        end = DatabaseProgress.from_offset(self._task.end["source"])
        assert end is not None
        for stretch in self._reader.changes(self._task.parts, end.position):
            by_target: dict[str, list[TableRows]] = {}
            for rows in stretch:
                self._changes[rows.table.id] += rows.rows.num_rows
                self._kinds.update(kind_counts(rows.rows))
                by_target.setdefault(rows.table.target, []).append(rows)
            for target, own in by_target.items():
                batches = [(self._completed(rows), rows.numbers) for rows in own]
                for batch in in_order(batches):
                    self._keep(target, batch)

    def _keep(self, target: str, changes: pa.RecordBatch) -> None:
        """Keep changes until they are written; in files if there are many, as of one statement."""
        self._kept_bytes += changes.nbytes
        many = self._kept_bytes > _MEMORY_BYTES and changes.nbytes >= _FILE_BYTES
        kept = spilled(changes.schema, [changes]).to_batches() if many else [changes]
        self._changed.setdefault(target, []).extend(kept)

    # -- in the thread of a target

    def _target(self, target: str, parts: Sequence[TablePart]) -> list[tuple[str, Message]]:
        """Write the rows of a target; none if its rows as of the position are lost.

        Such a target is reloaded later.
        """
        changes, address = self._changed.get(target, []), self._spec.options.address(target)
        self._bases[target] = address.follow().latest_snapshot_id() or 0
        reader = self._reader

        def rows() -> Generator[pa.RecordBatch]:
            yield from changes
            # An error from here on is not one of a change.
            changes.clear()
            if any(part.chunks or part.reload is not None for part in parts):
                yield from read_ahead(lambda: self._read_rows(reader, target, parts))

        opened = partial(
            sink_writer, address, self._spec.query_id, self._task.batch, self._attempt.id
        )
        try:
            with ExitStack() as held:
                own = held.enter_context(closing(rows()))
                return [(target, one) for one in written(opened, self._bounded(own, held))]
        except (SchemaChangeError, AlteredTableError) as error:
            if changes:
                raise
            log.info("%s: not read: %s", target, error)
            self._unread.append(target)
            del self._bases[target]
            return []

    def _bounded(self, rows: Iterator[pa.RecordBatch], held: ExitStack) -> Iterator[pa.Table]:
        """The rows; before there are many of them, waits until no other target has many."""
        size = 0
        for batch in rows:
            if size <= _SMALL_BYTES < size + batch.nbytes:
                held.enter_context(self._large)
            size += batch.nbytes
            yield pa.Table.from_batches([batch])

    def _read_rows(
        self, reader: PartReader, target: str, parts: Sequence[TablePart]
    ) -> Iterator[pa.RecordBatch]:
        """Read the snapshots of a target's tables, or reload it."""
        snapshots = self._snapshots(reader, parts)
        if all(part.reload is None for part in parts):
            yield from snapshots
            return
        table = self._spec.options.address(target).open()
        sources = {column for part in parts if part.chunks for column, _ in part.table.columns}
        estimate = sum(part.table.rows for part in parts)
        kept = kept_columns(self._spec.options, table, sources)
        deletes = all(part.reload for part in parts)
        yield from reloaded(table, snapshots, kept, estimate, deletes)

    def _snapshots(
        self, reader: PartReader, parts: Sequence[TablePart]
    ) -> Iterator[pa.RecordBatch]:
        for part in parts:
            for rows in reader.snapshot(part):
                if self._ended.is_set():
                    return
                self._snapshot[part.table.id] += rows.rows.num_rows
                yield self._completed(rows)

    def _completed(self, rows: TableRows) -> pa.RecordBatch:
        """The rows with the computed and metadata columns."""
        table = rows.table
        if table.id not in self._rows:
            target = self._spec.options.address(table.target).open()
            self._rows[table.id] = TargetRows(self._spec.options, table, target, self._task.now_ms)
        with errors_of(table.full_name):
            return self._rows[table.id].rows(rows.rows, rows.seconds)
