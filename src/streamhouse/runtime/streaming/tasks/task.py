"""One task of a batch: reads, joins, aggregates and writes, and returns only commit messages."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.arrow_batches import gathered
from streamhouse.connectors import dead_letter_table
from streamhouse.connectors.base import Message, Sink, SinkWriter
from streamhouse.connectors.paimon.sink import PaimonSinkWriter
from streamhouse.lookup.strategies.selection import choose_all
from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.runtime.failpoint import TASK_STEP, reached
from streamhouse.runtime.query_operator import ROW, QueryOperator, numbered, only, without
from streamhouse.runtime.query_sources import SourceSplit, open_source
from streamhouse.runtime.query_spec import QuerySpec
from streamhouse.runtime.state import pending_rows as pending
from streamhouse.runtime.state.distinct_counts import DistinctValues
from streamhouse.runtime.state.lookup_journal import LookupJournal
from streamhouse.runtime.streaming.dimensions.open_dimensions import Dimensions
from streamhouse.runtime.streaming.tasks.current_rows import current_rows_last
from streamhouse.runtime.streaming.tasks.row_files import RowFiles
from streamhouse.runtime.streaming.tasks.task_input import SplitsInput
from streamhouse.runtime.streaming.tasks.task_results import TaskAttempt, results
from streamhouse.source import ROW_KIND, CountingChanges, Source

CHUNK_ROWS = 262_144
CHUNK_BYTES = 32 * 1024 * 1024
_operators: dict[tuple[int, str, str, bool], QueryOperator] = {}
_dimensions: dict[tuple[int, str, str], Dimensions] = {}
_sources: dict[tuple[int, str, str], list[Source]] = {}
_journals: dict[tuple[int, str, str], LookupJournal] = {}
_distinct: dict[tuple[int, str, str], DistinctValues] = {}
_sinks: dict[tuple[int, str, str], Sink] = {}


def _key(spec: QuerySpec) -> tuple[int, str, str]:
    """The key under which a process caches the state of a query.

    A Python worker may outlive the run that started it, and the next run of the same SELECT may
    have other options, or other versions of its tables.
    """
    lookup_options = [sorted(lookup.table.options.items()) for lookup in spec.query.lookups]
    tables = (
        spec.sources,
        [sorted(source.options.items()) for source in spec.sources],
        spec.lookups,
        lookup_options,
        spec.target,
        sorted(spec.target.warehouse.items()),
        spec.sink,
        [function.engine_name for function in spec.query.functions],
    )
    return os.getpid(), spec.query_id, f"{spec.query.fingerprint} {tables}"


def operator_for(spec: QuerySpec) -> QueryOperator:
    """This process's operator of a query, kept between batches."""
    number = spec.gathered and spec.query.numbered_sql is not None
    key = (*_key(spec), number)
    if key not in _operators:
        target = spec.target.planned() if spec.sink is None else spec.sink
        _operators[key] = QueryOperator(
            spec.query, sink_for(spec).schema, spec.combine(), number, target.primary_key
        )
    return _operators[key]


def dimensions_for(spec: QuerySpec) -> Dimensions:
    """This process's dimensions of a query, kept between batches."""
    key = _key(spec)
    if key not in _dimensions:
        specs = spec.dimensions()
        _dimensions[key] = Dimensions(specs, spec.choices or choose_all(specs))
    return _dimensions[key]


def distinct_for(spec: QuerySpec) -> DistinctValues | None:
    """This process's `DistinctValues` of a query, kept between batches; None if it counts none."""
    if spec.query.distinct is None:
        return None
    key = _key(spec)
    if key not in _distinct:
        _distinct[key] = DistinctValues(spec)
    return _distinct[key]


def journal_for(spec: QuerySpec) -> LookupJournal | None:
    """This process's journal of lookups on servers, kept between batches; None without these."""
    if spec.lookup_journal is None:
        return None
    key = _key(spec)
    if key not in _journals:
        _journals[key] = LookupJournal(spec)
    return _journals[key]


def sources_for(spec: QuerySpec) -> list[Source]:
    """This process's sources of a query; their connections stay open between batches."""
    key = _key(spec)
    if key not in _sources:
        _sources[key] = [open_source(spec, source) for source in spec.sources]
    return _sources[key]


def sink_for(spec: QuerySpec) -> Sink:
    """This process's sink of a query, kept between batches."""
    key = _key(spec)
    if key not in _sinks:
        _sinks[key] = spec.open_sink()
    return _sinks[key]


def chunks(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Concatenate batches to chunks of at least `CHUNK_ROWS` rows or `CHUNK_BYTES`, in order.

    The last chunk has fewer.
    """
    for group in gathered(batches, CHUNK_ROWS, CHUNK_BYTES):
        if any(batch.num_rows for batch in group):
            yield pa.Table.from_batches(group)


@dataclass
class _Output:
    """The rows that a task has collected for its tables, and its row counts.

    Rows of the target are collected only if they are combined, sorted or counted before the write.
    `reordered` are rows of the source that are joined only when all are known.
    """

    reordered: list[pa.Table] = field(default_factory=list)
    rows: list[pa.Table] = field(default_factory=list)
    pending: list[pa.Table] = field(default_factory=list)
    unmatched: list[pa.Table] = field(default_factory=list)
    values: list[pa.Table] = field(default_factory=list)
    bad_records: list[pa.Table] = field(default_factory=list)
    read: int = 0
    missed: int = 0
    bad: int = 0
    changes: Counter[str] = field(default_factory=Counter)


class Task:
    """Runs one `SplitsInput` of a query; executors.

    If it runs twice with the same input, it writes the same rows into different files. Only one of
    the two can be committed, since both have the same batch number.
    """

    def __init__(self, spec: QuerySpec, task: SplitsInput, files: RowFiles | None = None) -> None:
        """`files` are for rows that the sink's committer writes."""
        self._spec = spec
        self._task = task
        self._files = files
        self._operator = operator_for(spec)
        self._dimensions = dimensions_for(spec)
        self._distinct = distinct_for(spec)
        self._journal = journal_for(spec)
        self._recorded: dict[str, pa.Table] | None = None
        self._out = _Output()
        self._writer: SinkWriter | None = None
        self._collects = self._operator.combines or self._distinct is not None or spec.gathered
        self._reorder_key = spec.query.reorder_key
        self._attempt = TaskAttempt.current()

    def run(self) -> Iterator[pa.RecordBatch]:
        """Run the task; yields rows of `RESULT`."""
        try:
            self._bind()
            if self._task.due:
                self._retry()
            for number, split in enumerate(self._task.splits):
                self._join(number, split)
            messages = self._write()
        finally:
            self._close()
        yield self._result(messages)

    def _result(self, messages: list[tuple[str, Message]]) -> pa.RecordBatch:
        """The messages and the task's report, as rows of `RESULT`."""
        if not self._attempt.repeated:
            reached(TASK_STEP, self._task.batch, self._spec.target.identifier)
        counts = {
            "rows": self._out.read,
            "missed": self._out.missed,
            "bad": self._out.bad,
            "changes": self._out.changes,
            "loaded": self._loaded(),
        }
        return results(self._task, self._attempt, messages, counts, self._files)

    def _loaded(self) -> list[str] | None:
        """The relations whose `coming` version is preloaded; None if the task joins nothing."""
        return self._dimensions.loaded(self._task.end)

    def _bind(self) -> None:
        self._operator.bind(self._task.now_ms, {})
        self._recorded = None if self._journal is None else self._journal.recorded(self._task.batch)
        self._dimensions.at(self._task.end, self._recorded)

    def _join(self, number: int, split: SourceSplit) -> None:
        first = 0
        missed: list[Any] = []
        chunks_read = self._read(sources_for(self._spec)[split.source], split)
        for place, chunk in enumerate(chunks_read):
            if place % self._task.shares == self._task.share:
                misses = self._joined(numbered(chunk, first))
                self._out.read += chunk.num_rows
                if len(misses):
                    missed.append(misses.to_numpy(zero_copy_only=False))
            first += chunk.num_rows
        if missed:
            self._wait(number, split, np.sort(np.concatenate(missed)))

    def _read(self, source: Source, split: SourceSplit) -> Iterator[pa.Table]:
        """Read chunks; collects the bad records, and counts the changes, that the source met."""
        if isinstance(source, dead_letter_table.SkipsBadRecords):
            source.bad_records()  # of an attempt that failed
        if isinstance(source, CountingChanges):
            source.changes_read()
        yield from chunks(source.read(split.partition))
        self._take_bad_records(source)
        if isinstance(source, CountingChanges) and not self._task.share:
            self._out.changes.update(source.changes_read())

    def _take_bad_records(self, source: Source) -> None:
        """Collect the records that the source has left out."""
        if not isinstance(source, dead_letter_table.SkipsBadRecords):
            return
        bad_records = source.bad_records()
        self._out.bad += bad_records.num_rows
        if bad_records.num_rows and self._spec.dead_letters is not None:
            name = ".".join(self._spec.query.source.name[1:])
            task, query_id = self._task, self._spec.query_id
            self._out.bad_records.append(
                dead_letter_table.rows_of(bad_records, name, task.now_ms, query_id, task.batch)
            )

    def _joined(self, src: pa.Table) -> pa.Array:
        """Join rows and collect the output; returns `_row` of those that must wait for a retry."""
        if self._reorder_key:
            self._emit(src)
            return pa.array([], pa.int64())
        self._dimensions.bind(self._operator, src)
        misses = self._operator.misses(src)
        self._emit(without(src, misses))
        return misses

    def _emit(self, src: pa.Table) -> int:
        """Output rows whose lookups are done; returns the number of output rows.

        Rows that must be reordered are only collected.
        """
        if self._reorder_key:
            self._out.reordered.append(src)
            return 0
        return self._output(src)

    def _output_reordered(self) -> None:
        """Output the rows that were collected to be reordered."""
        if not self._out.reordered:
            return
        whole = pa.concat_tables(self._out.reordered, promote_options="default")
        src = current_rows_last(whole.drop_columns([ROW]), self._reorder_key)
        src = numbered(src, 0)
        self._dimensions.bind(self._operator, src)
        self._output(src)

    def _output(self, src: pa.Table) -> int:
        out = self._operator.rows(src)
        if self._collects:
            self._out.rows.append(out)
        else:
            self._put_out(out)
        if self._distinct is not None:
            self._out.values.append(self._operator.values(src))
        return int(out.num_rows)

    def _put_out(self, out: pa.Table) -> None:
        """Write output rows at once, so that a task needs memory for a part of its batch only."""
        if out.num_rows == 0:
            return
        if self._writer is None:
            spec, task = self._spec, self._task
            self._writer = sink_for(spec).writer(spec.query_id, task.batch, self._attempt.id)
        for part in out.combine_chunks().to_batches():
            self._writer.write(part)

    def _close(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()

    def _wait(self, number: int, split: SourceSplit, missed: Any) -> None:
        """Collect missed rows for the pending table; reads them again, with all columns."""
        retry = self._spec.retry
        assert retry is not None
        source = open_source(self._spec, self._spec.sources[split.source], pruned=False)
        first = 0
        try:
            for chunk in chunks(source.read(split.partition)):
                here = missed[(missed >= first) & (missed < first + chunk.num_rows)]
                if len(here):
                    rows = chunk.take(pa.array(here - first))
                    ids = [
                        f"{self._task.batch:012d}-{self._task.index:04d}-{number:06d}-{row:012d}"
                        for row in here
                    ]
                    self._put(rows, pa.array(ids), pa.array(np.zeros(len(ids), np.int32)), "+I")
                first += chunk.num_rows
        finally:
            source.close()
        self._out.missed += len(missed)

    def _retry(self) -> None:
        spec = self._spec
        assert spec.retry is not None
        due, src = self._due_rows()
        if due.num_rows == 0:
            return
        misses = self._joined(src)
        hit = pc.invert(pc.is_in(src.column(ROW), value_set=misses))
        attempts = pc.add(due.column(pending.ATTEMPTS), 1)
        exhausted = pc.and_(pc.invert(hit), pc.greater_equal(attempts, spec.retry.max_attempts))
        again = pc.and_(pc.invert(hit), pc.invert(exhausted))
        source = src.drop_columns([ROW])
        ids = due.column(pending.ROW_ID)
        self._put(source.filter(again), ids.filter(again), attempts.filter(again), "+U")
        gone = pc.invert(again)
        self._put(source.filter(gone), ids.filter(gone), attempts.filter(gone), "-D")
        self._exhausted(src.filter(exhausted), attempts.filter(exhausted))

    def _due_rows(self) -> tuple[pa.Table, pa.Table]:
        """The due pending rows, as rows of the pending table and as rows of the source."""
        spec = self._spec
        assert spec.pending is not None
        rows = pending.PendingRows(spec.pending, spec.query_id)
        due = rows.due(int(self._task.end["pending"]), self._task.now_ms)
        return due, numbered(pending.as_source(due, spec.query.changelog), 0)

    def _put(self, source: pa.Table, ids: Any, attempts: Any, kind: str) -> None:
        if source.num_rows == 0:
            return
        retry = self._spec.retry
        assert retry is not None
        due_ms = self._task.now_ms + retry.delay_ms
        rows = pending.as_waiting(source, self._spec.query_id, ids, due_ms, attempts)
        kinds = pa.repeat(pa.scalar(kind), rows.num_rows)
        self._out.pending.append(rows.append_column(ROW_KIND, kinds))

    def _exhausted(self, src: pa.Table, attempts: Any) -> None:
        """Handle rows without attempts left.

        They are written with nulls (LEFT), or to the unmatched table (INNER).
        """
        if src.num_rows == 0:
            return
        lookups = self._spec.query.lookups
        if all(lookup.left for lookup in lookups):
            self._emit(src)
            return
        if all(not lookup.left for lookup in lookups if lookup.retry is not None):
            lost = pa.repeat(pa.scalar(True), src.num_rows)
        else:
            lost = self._lost_of(src)
        source = src.filter(lost).drop_columns([ROW])
        self._out.unmatched.append(
            pending.as_unmatched(source, pc.filter(attempts, lost), self._task.now_ms)
        )

    def _lost_of(self, src: pa.Table) -> pa.Array:
        """Emit rows one by one, if lookups are LEFT and INNER; returns which have no output."""
        lost = []
        for row in src.column(ROW).to_pylist():
            lost.append(self._emit(only(src, pa.array([row], pa.int64()))) == 0)
        return pa.array(lost)

    def _write(self) -> list[tuple[str, Message]]:
        spec = self._spec
        self._output_reordered()
        rows = self._operator.combine(self._out.rows)
        values = None
        if self._distinct is not None:
            values = self._distinct.changes(self._out.values)
            rows = self._distinct.counted(rows, values, int(self._task.end["distinct"]))
        messages = self._write_target(rows)
        if self._writer is not None:
            target = spec.target.identifier
            messages += [(target, message) for message in self._writer.prepare()]
        messages += self._write_waiting()
        if spec.dead_letters is not None:
            messages += self._write_table(spec.dead_letters, self._out.bad_records)
        if spec.distinct is not None and values is not None:
            messages += self._write_table(spec.distinct, [values])
        if self._journal is not None and spec.lookup_journal is not None and self._recorded is None:
            found = self._journal.rows(self._task.batch, self._dimensions.server_rows())
            messages += self._write_table(spec.lookup_journal, found)
        return messages

    def _write_waiting(self) -> list[tuple[str, Message]]:
        spec = self._spec
        messages: list[tuple[str, Message]] = []
        if spec.pending is not None and spec.unmatched is not None:
            messages += self._write_table(spec.unmatched, self._out.unmatched)
            messages += self._write_table(spec.pending, self._out.pending)
        return messages

    def _write_target(self, rows: pa.Table) -> list[tuple[str, Message]]:
        sink, target = sink_for(self._spec), self._spec.target.identifier
        return self._write_rows(target, [rows], sink.writer)

    def _write_table(
        self, address: TableAddress, tables: list[pa.Table]
    ) -> list[tuple[str, Message]]:
        return self._write_rows(address.identifier, tables, partial(PaimonSinkWriter, address))

    def _write_rows(
        self,
        identifier: str,
        tables: list[pa.Table],
        opened: Callable[[str, int, str], SinkWriter],
    ) -> list[tuple[str, Message]]:
        """Write rows; returns the table with each commit message, none if there are no rows."""
        if not any(table.num_rows for table in tables):
            return []
        writer = opened(self._spec.query_id, self._task.batch, self._attempt.id)
        try:
            for table in tables:
                for part in table.combine_chunks().to_batches():
                    writer.write(part)
            prepared = writer.prepare()
        finally:
            writer.close()
        return [(identifier, message) for message in prepared]
