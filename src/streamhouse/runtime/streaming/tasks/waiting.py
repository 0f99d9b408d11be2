"""Rows that wait for a match in a lookup with a retry policy, in tables of the query.

A row that misses its lookup waits. Where the order of the changes of a key matters (decision 009),
later rows of its key wait behind it, though they may have a match: the last one decides, so none
may overtake another. A retraction of a row that still waits cancels it: neither has reached the
target. Elsewhere each row waits on its own.
"""

from collections.abc import Callable, Generator, Hashable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.connectors.base import Message
from streamhouse.paimon.read.key_set import KeySet
from streamhouse.runtime.query_operator import ROW, numbered, only, without
from streamhouse.runtime.state import pending_rows as pending
from streamhouse.runtime.streaming.tasks.task_run import TaskRun
from streamhouse.source import ROW_KIND, of_kind
from streamhouse.sql.expressions.binder import quote

BLOCKED = -1
"""The number of attempts of a row that waits behind another one and was not looked up yet."""
_RETRACTIONS = pa.array(["-U", "-D"])
_OWN_COLUMNS = (pending.QUERY, pending.ROW_ID, pending.DUE, pending.ATTEMPTS, pending.KIND)
_VALUE = "_waiting_value"


class Waiting:
    """Looks up the rows of a task, lets those without a match wait, and returns the others."""

    def __init__(
        self,
        run: TaskRun,
        places: Callable[[int], tuple[int, int, int]] | None = None,
        own: Callable[[pa.Table], pa.Array] | None = None,
    ) -> None:
        """In a bucket shuffle, `places` gives task, split and row for the number of a row, and
        `own` says which of the due rows are this task's."""
        spec = run.spec
        assert spec.retry is not None and spec.pending is not None and spec.unmatched is not None
        self._run, self._retry, self._tables = run, spec.retry, (spec.unmatched, spec.pending)
        self._places = places or (lambda row: (run.task.index, run.split, row))
        self._own, self._ordered = own, spec.waits_in_order
        self._key = list(spec.query.source.primary_key)
        self._stored: pa.Table | None = None
        """The rows that wait in order since before the batch."""
        self._unmet: pa.Table | None = None
        """Those of keys that the batch has not met yet."""
        self._queues: dict[Hashable, list[tuple[str, bool]]] = {}
        """The waiting rows of the keys that it has met, the oldest first: the id of each, and
        whether it is a retraction."""
        self._cancelled: set[str] = set()
        """The ids of rows that retractions have taken back."""
        self._changed: list[pa.Table] = []
        self._new: list[pa.Table] = []
        self._unmatched: list[pa.Table] = []

    def begin(self) -> Iterator[pa.Table]:
        """The rows that waited before the batch and do not wait any more."""
        task = self._run.task
        if not task.due:
            return
        stored = pending.PendingRows(self._tables[1], self._run.spec.query_id)
        rows = stored.read(int(task.end["pending"]))
        times = rows.column(pending.DUE).cast(pa.timestamp("ms")).cast(pa.int64())
        is_due = pc.less_equal(times, task.now_ms)
        first = pc.greater_equal(rows.column(pending.ATTEMPTS), 0)
        if pc.any(pc.and_(first, is_due)).as_py():
            # The rows behind one that is due follow at once.
            due = rows.filter(self._of_keys(rows, is_due, "first_value"))
            done = yield from self._retried(due)
            rows = rows.filter(pc.invert(pc.is_in(rows.column(pending.ROW_ID), value_set=done)))
        if self._ordered:
            self._stored = self._unmet = rows

    def _retried(self, due: pa.Table) -> Generator[pa.Table, None, pa.Array]:
        """Look rows up again, and yield those that do not wait any more; returns their ids.

        A row that misses again blocks those behind it, unless it has no attempts left.
        """
        # Their numbers are negative, so that they come before the rows that are read.
        src = numbered(self._as_source(due), -due.num_rows)
        if self._own is not None:
            own = self._own(src)
            due, src = due.filter(own), src.filter(own)
        ids = due.column(pending.ROW_ID)
        if not due.num_rows:
            return ids.combine_chunks()
        missed = pc.is_in(src.column(ROW), value_set=self._misses(src))
        attempts = pc.add(due.column(pending.ATTEMPTS), 1)
        lost = pc.and_(missed, pc.greater_equal(attempts, max(1, self._retry.max_attempts)))
        blocks = pc.and_(missed, pc.invert(lost))
        blocked = self._of_keys(due, pc.cast(blocks, pa.int64()), "sum")
        done, again = pc.equal(blocked, 0), pc.and_(blocks, pc.equal(blocked, 1))
        for some, kind in ((again, "+U"), (done, "-D")):
            rows = self._waiting(src.filter(some), ids.filter(some), attempts.filter(some), kind)
            self._changed.append(rows)
        # Those of LEFT lookups without a match are written with nulls.
        yield src.filter(done)
        lost = pc.and_(lost, done)
        self._give_up(src.filter(lost), attempts.filter(lost))
        return ids.filter(done).combine_chunks()

    def _of_keys(self, rows: pa.Table, values: pa.Array, function: str) -> pa.ChunkedArray:
        """A window function of a value of each row and of those before it in its queue."""
        if not self._ordered:
            return values
        names = self._key or [name for name in rows.column_names if name not in _OWN_COLUMNS]
        by, order = ", ".join(map(quote, names)), quote(pending.ROW_ID)
        sql = (
            f"SELECT {function}({_VALUE}) OVER (PARTITION BY {by} ORDER BY {order}) AS found "
            f"FROM src ORDER BY {order}"
        )
        return self._run.operator.keys(sql, rows.append_column(_VALUE, values)).column("found")

    def take(self, src: pa.Table) -> pa.Table:
        """The rows of a chunk that do not wait."""
        misses = self._misses(src)
        if not self._ordered:
            self._wait(only(src, misses), np.zeros(len(misses), np.int32))
            return without(src, misses)
        self._meet(src)
        if not len(misses) and not self._queues:
            return src
        missed, waiting = set(misses.to_pylist()), dict[int, int]()
        cancelling, first = list[int](), src.column(ROW)[0].as_py()
        kinds = pc.is_in(src.column(ROW_KIND), value_set=_RETRACTIONS).to_pylist()
        for number, (key, retracts) in enumerate(zip(self._keys(src), kinds, strict=True), first):
            queue = self._queues.get(key, [])
            if not queue and number not in missed:
                continue
            if queue and retracts and not queue[-1][1]:
                self._cancelled.add(queue.pop()[0])
                cancelling.append(number)
            else:
                waiting[number] = BLOCKED if queue else 0
                queue.append((self._row_id(number), retracts))
            self._queues[key] = queue
            if not queue:
                del self._queues[key]
        attempts = np.array([*waiting.values()], np.int32)
        self._wait(only(src, pa.array([*waiting], pa.int64())), attempts)
        return without(src, pa.array([*waiting, *cancelling], pa.int64()))

    def _meet(self, src: pa.Table) -> None:
        """Queue the rows from before the batch that have a key of a chunk."""
        unmet = self._unmet
        if unmet is None or not unmet.num_rows:
            return
        met = KeySet(src.select(self._key)).mask(unmet) if self._key else np.ones(len(unmet), bool)
        rows, self._unmet = unmet.filter(pa.array(met)), unmet.filter(pa.array(~met))
        found = self._as_source(rows)
        kinds = pc.is_in(found.column(ROW_KIND), value_set=_RETRACTIONS).to_pylist()
        ids = rows.column(pending.ROW_ID).to_pylist()
        for key, row_id, retracts in zip(self._keys(found), ids, kinds, strict=True):
            self._queues.setdefault(key, []).append((row_id, retracts))

    def _keys(self, src: pa.Table) -> list[Hashable]:
        """The key of each row: the source's primary key, or else all its columns."""
        if self._key:
            columns = (src.column(name).to_pylist() for name in self._key)
            return list(zip(*columns, strict=True))
        rest = sorted(name for name in src.column_names if name not in (ROW, ROW_KIND))
        return [repr(row) for row in src.select(rest).to_pylist()]

    def _misses(self, src: pa.Table) -> pa.Array:
        """Look rows up; the numbers of those without a match."""
        self._run.look_up(src)
        return self._run.operator.misses(src)

    def _row_id(self, row: int) -> str:
        """The id of a waiting row, from the numbers of its batch, task, split and place."""
        task, split, place = self._places(row)
        return f"{self._run.task.batch:012d}-{task:04d}-{split:06d}-{place:012d}"

    def _wait(self, src: pa.Table, attempts: Any) -> None:
        """Let rows of the batch wait."""
        if src.num_rows:
            ids = pa.array(map(self._row_id, src.column(ROW).to_pylist()), pa.string())
            self._new.append(self._waiting(src, ids, pa.array(attempts), "+I"))

    def _as_source(self, rows: pa.Table) -> pa.Table:
        return pending.as_source(rows, self._run.spec.query.scan.changelog)

    def _waiting(self, src: pa.Table, ids: pa.Array, attempts: pa.Array, kind: str) -> pa.Table:
        """Changes of the row kind `kind` of the pending table."""
        due_ms = self._run.task.now_ms + self._retry.delay_ms
        source, query_id = src.drop_columns([ROW]), self._run.spec.query_id
        return of_kind(pending.as_waiting(source, query_id, ids, due_ms, attempts), kind)

    def _give_up(self, src: pa.Table, attempts: pa.Array) -> None:
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

    def finish(self) -> list[tuple[str, Message]]:
        """Write the tables of unmatched and of waiting rows."""
        cancelled, stored = pa.array(self._cancelled, pa.string()), self._stored
        if self._cancelled and stored is not None:
            rows = stored.filter(pc.is_in(stored.column(pending.ROW_ID), value_set=cancelled))
            ids, attempts = rows.column(pending.ROW_ID), rows.column(pending.ATTEMPTS)
            gone = self._waiting(numbered(self._as_source(rows), 0), ids, attempts, "-D")
            self._changed.append(gone)
        new = [
            each.filter(pc.invert(pc.is_in(each.column(pending.ROW_ID), value_set=cancelled)))
            for each in self._new
        ]
        self._run.missed += sum(each.num_rows for each in new)
        unmatched, waiting = self._tables
        return [
            *self._run.write_table(unmatched, self._unmatched),
            *self._run.write_table(waiting, [*self._changed, *new]),
        ]
