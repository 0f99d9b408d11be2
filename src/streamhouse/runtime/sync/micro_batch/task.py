"""One task of a sync's batch: reads its tables and writes their rows; returns commit messages."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Sequence

import pyarrow as pa

from streamhouse.connectors.mysql_cdc.change_counts import ChangeCounts
from streamhouse.connectors.mysql_cdc.database.part_reader import PartReader, TableRows, in_order
from streamhouse.connectors.mysql_cdc.database.progress import DatabaseProgress
from streamhouse.connectors.mysql_cdc.database.table_part import TablePart
from streamhouse.connectors.mysql_cdc.server.table_errors import errors_of
from streamhouse.connectors.paimon.sink import PaimonSinkWriter
from streamhouse.errors import AlteredTableError, SchemaChangeError
from streamhouse.runtime.failpoint import TASK_STEP, reached
from streamhouse.runtime.streaming.tasks.task_results import TaskAttempt, results
from streamhouse.runtime.sync.mapping.rows import TargetRows
from streamhouse.runtime.sync.micro_batch.spec import SyncSpec, SyncTaskInput
from streamhouse.runtime.sync.reload import Reload, kept_columns

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
        self._writers: dict[str, PaimonSinkWriter] = {}
        self._bases: dict[str, int] = {}
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
            for target, numbers in self._by_target().items():
                try:
                    self._read_rows(target, numbers)
                except (SchemaChangeError, AlteredTableError) as error:
                    # The rows as of the position are lost: the target is reloaded later.
                    log.info("%s: not read: %s", target, error)
                    self._unread.append(target)
                    self._discard(target)
                messages += self._prepared(target)
        finally:
            self._reader.close()
            for writer in self._writers.values():
                writer.close()
        yield self._result(messages)

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
        table = self._spec.address(target).open()
        sources = {column for _, part in parts if part.chunks for column, _ in part.table.columns}
        estimate = sum(part.table.rows for _, part in parts)
        with Reload(table, kept_columns(self._spec.options, table, sources), estimate) as reload:
            for rows in self._snapshots(parts):
                reload.add(self._completed(rows))
            for changes in reload.changes(all(part.reload for _, part in parts)):
                self._writer(target).write(changes)

    def _snapshots(self, parts: Sequence[tuple[int, TablePart]]) -> Iterator[TableRows]:
        for number, part in parts:
            for rows in self._reader.snapshot(number, part):
                self._snapshot[part.table.id] += rows.rows.num_rows
                yield rows

    def _write(self, stretch: Sequence[TableRows]) -> None:
        """Write rows of tables with the same target, in the order of their changes."""
        writer = self._writer(self._task.parts[stretch[0].part].table.target)
        batches = [(self._completed(rows), rows.numbers) for rows in stretch]
        for batch in in_order(batches):
            writer.write(batch)

    def _writer(self, target: str) -> PaimonSinkWriter:
        if target not in self._writers:
            address = self._spec.address(target)
            self._bases[target] = address.follow().latest_snapshot_id() or 0
            self._writers[target] = PaimonSinkWriter(
                address, self._spec.query_id, self._task.batch, self._attempt.id
            )
        return self._writers[target]

    def _completed(self, rows: TableRows) -> pa.RecordBatch:
        """The rows with the computed and metadata columns."""
        table = self._task.parts[rows.part].table
        if table.id not in self._rows:
            target = self._spec.address(table.target).open()
            self._rows[table.id] = TargetRows(self._spec.options, table, target, self._task.now_ms)
        with errors_of(table.full_name):
            return self._rows[table.id].rows(rows.rows, rows.seconds)

    def _discard(self, target: str) -> None:
        writer = self._writers.pop(target, None)
        if writer is not None:
            writer.close()
        self._bases.pop(target, None)

    def _prepared(self, target: str) -> list[tuple[str, bytes]]:
        writer = self._writers.pop(target, None)
        if writer is None:
            return []
        try:
            return [(target, message) for message in writer.prepare()]
        finally:
            writer.close()

    def _result(self, messages: list[tuple[str, bytes]]) -> pa.RecordBatch:
        if not self._attempt.repeated:
            reached(TASK_STEP, self._task.batch, self._spec.options.name)
        counts = {
            "bases": self._bases,
            "snapshot": self._snapshot,
            "changes": self._changes,
            "kinds": self._kinds.taken(),
            "unread": self._unread,
        }
        return results(self._task, self._attempt, messages, counts)
