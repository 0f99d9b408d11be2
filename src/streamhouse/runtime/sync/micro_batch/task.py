"""One task of a sync's batch: reads its tables and writes their rows; returns commit messages."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa

from streamhouse.connectors.mysql_cdc.database.part_reader import PartReader, TableRows, in_order
from streamhouse.connectors.mysql_cdc.database.progress import DatabaseProgress
from streamhouse.connectors.mysql_cdc.database.table_part import TablePart
from streamhouse.connectors.mysql_cdc.lag import ChangeCounts
from streamhouse.connectors.paimon.sink import PaimonSinkWriter
from streamhouse.errors import AlteredTableError, SchemaChangeError
from streamhouse.mysql.values.table_errors import errors_of
from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.runtime.failpoint import TASK_STEP, reached
from streamhouse.runtime.streaming.tasks.task_results import TaskAttempt, results
from streamhouse.runtime.sync.existing_rows.reload import Reload, kept_columns
from streamhouse.runtime.sync.mapping.rows import TargetRows
from streamhouse.runtime.sync.micro_batch.spec import SyncSpec, SyncTaskInput
from streamhouse.runtime.sync.micro_batch.target_writers import THREADS, TargetWriters

log = logging.getLogger("streamhouse.query")


class SyncTask:
    """Runs one `SyncTaskInput`; executors.

    If it runs twice with the same input, it writes the same rows into different files, of which
    only one set can be committed.
    """

    def __init__(self, spec: SyncSpec, task: SyncTaskInput) -> None:
        self._spec, self._task = spec, task
        self._attempt = TaskAttempt.current()
        self._reader = PartReader(spec.options.mysql, task.server, task.zone, spec.relay)
        targets = {part.table.target for part in task.parts}
        self._writers = TargetWriters(spec.address, self._opened, min(THREADS, len(targets)))
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
            by_target = self._by_target()
            for target, numbers in by_target.items():
                with self._unread_if_altered(target):
                    self._read_rows(target, numbers)
                self._writers.prepare(target)
            for target in by_target:
                with self._unread_if_altered(target):
                    self._writers.written(target)
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

    def _by_target(self) -> dict[str, list[int]]:
        targets: dict[str, list[int]] = {}
        for number, part in enumerate(self._task.parts):
            targets.setdefault(part.table.target, []).append(number)
        return targets

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
        table = self._spec.address(target).open()
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
            target = self._spec.address(table.target).open()
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
