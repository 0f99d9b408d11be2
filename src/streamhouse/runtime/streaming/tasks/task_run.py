"""One run of a task: what its steps share, and what it returns."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import pyarrow as pa

from streamhouse.arrow_batches import gathered
from streamhouse.connectors.bad_records import rows_of
from streamhouse.connectors.base import Message, SinkWriter
from streamhouse.connectors.paimon.connector import sink_writer
from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.runtime.query_spec import QuerySpec
from streamhouse.runtime.streaming.tasks.task_input import SplitsInput
from streamhouse.runtime.streaming.tasks.task_protocol import TaskAttempt, results, written
from streamhouse.runtime.streaming.tasks.worker_resources import resources_of
from streamhouse.runtime.streaming.watermark import latest, watermark_before

CHUNK_ROWS = 262_144
CHUNK_BYTES = 32 * 1024 * 1024


def chunks(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Concatenate batches to chunks of at least `CHUNK_ROWS` rows or `CHUNK_BYTES`, in order.

    The last chunk has fewer.
    """
    for group in gathered(batches, CHUNK_ROWS, CHUNK_BYTES):
        if any(batch.num_rows for batch in group):
            yield pa.Table.from_batches(group)


class TaskRun:
    """One run of a `SplitsInput` of a query; executors.

    If it runs twice with the same input, it writes the same rows into different files. Only one of
    the two can be committed, since both have the same batch number.
    """

    def __init__(self, spec: QuerySpec, task: SplitsInput) -> None:
        self.spec, self.task = spec, task
        self.open = resources_of(spec)
        self.gathered = spec.gathered and task.shuffled
        """Whether another task writes the rows that this one joins."""
        self.operator = self.open.operator(
            self.gathered and spec.query.rows.numbered_sql is not None
        )
        self.split = 0
        """The number of the split whose rows are taken."""
        self.read_rows = self.missed = 0
        self._bad = 0
        self._bad_records: list[pa.Table] = []
        self._watermarks: dict[str, int | None] = {}
        self._changes = Counter[str]()
        self._attempt = TaskAttempt.current()
        self._recorded: dict[str, pa.Table] | None = None

    def bind(self) -> None:
        """Set the time of the batch, and the versions of the lookups' tables."""
        task, journal = self.task, self.open.journal
        self.operator.bind(task.now_ms, watermark_before(task.end))
        self._recorded = None if journal is None else journal.recorded(task.batch)
        self.open.dimensions.at(task.end, self._recorded)

    def look_up(self, src: pa.Table) -> None:
        """Bind the rows of the lookups' tables that the rows of `src` may join."""
        self.open.dimensions.bind(self.operator, src)

    def chunks(self, number: int, split: Any) -> Iterator[pa.Table]:
        """Read a split; collects the bad records, and counts the changes, that the source met."""
        self.split, source = number, self.open.source
        source.bad_records()  # of an attempt that failed
        source.changes_read()
        for chunk in chunks(source.read(split)):
            for name, at in self.operator.watermarks(chunk).items():
                self._watermarks[name] = latest(self._watermarks.get(name), at)
            yield chunk
        bad_records, task, spec = source.bad_records(), self.task, self.spec
        self._bad += bad_records.num_rows
        if bad_records.num_rows and spec.dead_letters is not None:
            name = ".".join(spec.query.source.name[1:])
            rows = rows_of(bad_records, name, task.now_ms, spec.query_id, task.batch)
            self._bad_records.append(rows)
        if not self.task.share:
            self._changes.update(source.changes_read())

    def write(self, tables: Iterable[pa.Table]) -> list[tuple[str, Message]]:
        """Write rows of the target; returns its name with each message, none without rows."""
        return self._write(self.spec.target.identifier, tables, self.open.sink.writer)

    def write_table(
        self, address: TableAddress, tables: Iterable[pa.Table]
    ) -> list[tuple[str, Message]]:
        """Write rows of an auxiliary table; returns as `write`."""
        return self._write(address.identifier, tables, partial(sink_writer, address))

    def _write(
        self,
        identifier: str,
        tables: Iterable[pa.Table],
        opened: Callable[[str, int, str], SinkWriter],
    ) -> list[tuple[str, Message]]:
        begin = partial(opened, self.spec.query_id, self.task.batch, self._attempt.id)
        return [(identifier, message) for message in written(begin, tables)]

    def write_met(self) -> list[tuple[str, Message]]:
        """Write the bad records, and what lookups on servers have found."""
        spec, journal = self.spec, self.open.journal
        messages: list[tuple[str, Message]] = []
        if spec.dead_letters is not None:
            messages += self.write_table(spec.dead_letters, self._bad_records)
        if journal is not None and spec.lookup_journal is not None and self._recorded is None:
            found = journal.rows(self.task.batch, self.open.dimensions.server_rows())
            messages += self.write_table(spec.lookup_journal, found)
        return messages

    def result(
        self, messages: Iterable[tuple[str, Message]], joined: bool = True
    ) -> pa.RecordBatch:
        """The messages and the task's report, as rows of `RESULT`; `joined`: it had lookups."""
        counts = {
            "rows": self.read_rows,
            "missed": self.missed,
            "bad": self._bad,
            "changes": self._changes,
            "watermarks": self._watermarks,
            # The relations whose `coming` version is preloaded.
            "loaded": self.open.dimensions.loaded(self.task.end) if joined else None,
            "kept": self.open.dimensions.kept() if joined else None,
        }
        name, files = self.spec.target.identifier, self.task.files
        return results(self.task, self._attempt, name, messages, counts, files)
