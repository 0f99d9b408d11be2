"""Rows that wait for a match in a lookup with a retry policy, in tables of the query."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.connectors.base import Message
from streamhouse.runtime.query_operator import ROW, numbered, only, without
from streamhouse.runtime.state import pending_rows as pending
from streamhouse.runtime.streaming.tasks.task_run import TaskRun
from streamhouse.source import ROW_KIND


class WaitingRows:
    """What a task writes into the tables of pending and of unmatched rows."""

    def __init__(self, run: TaskRun) -> None:
        spec = run.spec
        assert spec.retry is not None and spec.pending is not None and spec.unmatched is not None
        self._run, self.retry, self._tables = run, spec.retry, (spec.unmatched, spec.pending)
        self.stored = pending.PendingRows(spec.pending, spec.query_id)
        """The rows that waited before the batch."""
        self._pending: list[pa.Table] = []
        self._unmatched: list[pa.Table] = []

    def put(self, source: pa.Table, ids: pa.Array, attempts: pa.Array, kind: str) -> None:
        """Add changes of the row kind `kind` to the pending table."""
        if source.num_rows:
            due_ms = self._run.task.now_ms + self.retry.delay_ms
            rows = pending.as_waiting(source, self._run.spec.query_id, ids, due_ms, attempts)
            kinds = pa.repeat(pa.scalar(kind), rows.num_rows)
            self._pending.append(rows.append_column(ROW_KIND, kinds))

    def give_up(self, src: pa.Table, attempts: pa.Array) -> None:
        """Add those of the rows without attempts left that have no output to the unmatched table.

        Rows of LEFT lookups have output, with nulls; of INNER lookups they have none.
        """
        lookups, numbers = self._run.spec.query.lookups, range(src.num_rows)
        if not src.num_rows or all(lookup.left for lookup in lookups):
            return
        if any(lookup.left for lookup in lookups if lookup.retry is not None):
            outputs = (self._run.operator.rows(src.slice(number, 1)) for number in numbers)
            lost = pa.array([out.num_rows == 0 for out in outputs])
            src, attempts = src.filter(lost), pc.filter(attempts, lost)
        source = src.drop_columns([ROW])
        self._unmatched.append(pending.as_unmatched(source, attempts, self._run.task.now_ms))

    def write(self) -> list[tuple[str, Message]]:
        """Write both tables."""
        unmatched, waiting = self._tables
        return [
            *self._run.write_table(unmatched, self._unmatched),
            *self._run.write_table(waiting, self._pending),
        ]


def row_id(batch: int, task: int, split: int, row: int) -> str:
    """The id of a waiting row, from the numbers of its batch, task, split and place."""
    return f"{batch:012d}-{task:04d}-{split:06d}-{row:012d}"


class Waiting:
    """Looks rows up, and lets those without a match wait; returns the others.

    The order of rows does not matter, or else see `ordered_waiting`.
    """

    def __init__(
        self,
        run: TaskRun,
        places: Callable[[int], tuple[int, int, int]] | None = None,
        own: Callable[[pa.Table], pa.Array] | None = None,
    ) -> None:
        """In a bucket shuffle, `places` gives task, split and row for the number of a row, and
        `own` says which of the due rows are this task's."""
        self._run = run
        self._rows = WaitingRows(run)
        self._places = places or (lambda row: (run.task.index, run.split, row))
        self._own = own

    def begin(self) -> Iterator[pa.Table]:
        if not self._run.task.due:
            return
        due, src = self._due()
        if due.num_rows == 0:
            return
        misses = self._misses(src)
        yield without(src, misses)
        hit = pc.invert(pc.is_in(src.column(ROW), value_set=misses))
        attempts = pc.add(due.column(pending.ATTEMPTS), 1)
        most = self._rows.retry.max_attempts
        exhausted = pc.and_(pc.invert(hit), pc.greater_equal(attempts, most))
        again = pc.and_(pc.invert(hit), pc.invert(exhausted))
        source = src.drop_columns([ROW])
        ids = due.column(pending.ROW_ID)
        self._rows.put(source.filter(again), ids.filter(again), attempts.filter(again), "+U")
        gone = pc.invert(again)
        self._rows.put(source.filter(gone), ids.filter(gone), attempts.filter(gone), "-D")
        # Those of LEFT lookups are written with nulls.
        yield src.filter(exhausted)
        self._rows.give_up(src.filter(exhausted), attempts.filter(exhausted))

    def _due(self) -> tuple[pa.Table, pa.Table]:
        """The due pending rows, and the same as rows of the source.

        Their numbers are negative, so that they come before the rows that are read.
        """
        run = self._run
        due = self._rows.stored.due(int(run.task.end["pending"]), run.task.now_ms)
        src = numbered(pending.as_source(due, run.spec.query.scan.changelog), -due.num_rows)
        if self._own is None:
            return due, src
        own = self._own(src)
        return due.filter(own), src.filter(own)

    def take(self, src: pa.Table) -> pa.Table:
        misses = self._misses(src)
        if len(misses):
            self._run.missed += len(misses)
            rows, batch = only(src, misses), self._run.task.batch
            places = map(self._places, rows.column(ROW).to_pylist())
            ids = pa.array([row_id(batch, *place) for place in places], pa.string())
            attempts = pa.array(np.zeros(len(ids), np.int32))
            self._rows.put(rows.drop_columns([ROW]), ids, attempts, "+I")
        return without(src, misses)

    def _misses(self, src: pa.Table) -> pa.Array:
        """Look rows up; the numbers of those without a match."""
        self._run.look_up(src)
        return self._run.operator.misses(src)

    def finish(self) -> list[tuple[str, Message]]:
        return self._rows.write()
