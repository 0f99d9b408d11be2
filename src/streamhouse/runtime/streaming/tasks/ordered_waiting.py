"""Rows that wait for a lookup while the changes of each key keep their order (decision 162).

A row that misses its lookup waits. Later rows of its key wait behind it, though they may have a
match: the last one decides, so none may overtake another. A retraction of a row that still waits
cancels it: neither has reached the target.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.connectors.base import Message
from streamhouse.paimon.read.key_set import KeySet
from streamhouse.runtime.query_operator import ROW, numbered, only
from streamhouse.runtime.state import pending_rows as pending
from streamhouse.runtime.streaming.tasks.task_run import TaskRun
from streamhouse.runtime.streaming.tasks.waiting import WaitingRows, row_id
from streamhouse.source import ROW_KIND

_RETRACTIONS = ("-U", "-D")
BLOCKED = -1
"""The number of attempts of a row that waits behind another one and was not looked up yet."""


class OrderedWaiting:
    """Looks up the rows of the only task of a batch.

    Rows without a match wait, as do later rows of their keys.
    """

    def __init__(self, run: TaskRun) -> None:
        self._run = run
        self._rows = WaitingRows(run)
        self._queues = KeyQueues()
        self._others: pa.Table | None = None
        """The rows that waited before the batch, of keys that it has not met yet."""
        self._stored: pa.Table | None = None
        """Those of keys that it has met, as rows of the source."""
        self._places: dict[str, int] = {}
        """The number of each of them, by its id."""
        self._new: list[tuple[pa.Table, list[WaitingRow]]] = []
        """The rows that wait since this batch, a part for each chunk."""
        self._cancelled: set[str] = set()
        """The ids of those that were taken back in this batch."""

    def begin(self) -> Iterator[pa.Table]:
        task = self._run.task
        if not task.due:
            return
        rows = self._rows.stored.read(int(task.end["pending"]))
        now = pa.scalar(task.now_ms, pa.int64())
        first = pc.greater_equal(rows.column(pending.ATTEMPTS), 0)
        due = pc.and_(first, pc.less_equal(_milliseconds(rows.column(pending.DUE)), now))
        if not pc.any(due).as_py() and self._run.spec.query.source.primary_key:
            self._others = rows
            return
        self._load(rows)
        tried = [self._places[row.row_id] for row in self._queues.due(task.now_ms)]
        if self._stored is not None and tried:
            yield from self._retry(self._stored, only(self._stored, pa.array(tried, pa.int64())))

    def _retry(self, stored: pa.Table, tried: pa.Table) -> Iterator[pa.Table]:
        self._run.look_up(tried)
        missed = set(self._run.operator.misses(tried).to_pylist())
        yield from self._settle(stored, self._queues.retry(
            self._run.task.now_ms,
            lambda row: self._places[row.row_id] in missed,
            self._rows.retry.max_attempts,
        ))  # fmt: skip

    def _load(self, rows: pa.Table) -> None:
        """Queue rows of the pending table: all of their keys."""
        if not rows.num_rows:
            return
        before = 0 if self._stored is None else self._stored.num_rows
        src = numbered(pending.as_source(rows, self._run.spec.query.scan.changelog), before)
        ids: list[str] = rows.column(pending.ROW_ID).to_pylist()
        self._places |= {row_id: number for number, row_id in enumerate(ids, before)}
        self._queues.add(self._waiting(rows, src))
        self._stored = src if self._stored is None else pa.concat_tables([self._stored, src])

    def _load_keys_of(self, src: pa.Table) -> None:
        """Queue the waiting rows that have a key of the chunk."""
        if self._others is None or not self._others.num_rows:
            return
        key = list(self._run.spec.query.source.primary_key)
        met = KeySet(src.select(key)).mask(self._others)
        if met.any():
            self._load(self._others.filter(pa.array(met)))
            self._others = self._others.filter(pa.array(~met))

    def _waiting(self, rows: pa.Table, src: pa.Table) -> list[WaitingRow]:
        due = _milliseconds(rows.column(pending.DUE)).to_pylist()
        columns = (
            self._keys(src),
            rows.column(pending.ROW_ID).to_pylist(),
            src.column(ROW_KIND).to_pylist(),
            due,
            rows.column(pending.ATTEMPTS).to_pylist(),
        )
        return [WaitingRow(*values) for values in zip(*columns, strict=True)]

    def _settle(
        self, src: pa.Table, outcomes: list[tuple[WaitingRow, Outcome]]
    ) -> Iterator[pa.Table]:
        """Yield the rows that wait no longer, in their order, and note what became of each."""
        again = [waiting for waiting, outcome in outcomes if outcome is Outcome.AGAIN]
        done = [waiting for waiting, outcome in outcomes if outcome is not Outcome.AGAIN]
        self._put_stored(again, "+U")
        self._put_stored(done, "-D")
        if done:
            numbers = sorted(self._places[waiting.row_id] for waiting in done)
            yield only(src, pa.array(numbers, pa.int64()))
        for waiting, outcome in outcomes:
            if outcome is Outcome.EXHAUSTED:
                row = src.slice(self._places[waiting.row_id], 1)
                self._rows.give_up(row, pa.array([waiting.attempts], pa.int32()))

    def take(self, src: pa.Table) -> pa.Table:
        run = self._run
        self._load_keys_of(src)
        run.look_up(src)
        misses = run.operator.misses(src)
        if not len(misses) and not self._queues:
            return src
        batch, task, split = run.task.batch, run.task.index, run.split
        first = src.column(ROW)[0].as_py()
        missed = np.zeros(src.num_rows, bool)
        missed[misses.to_numpy(zero_copy_only=False) - first] = True
        passes = np.ones(src.num_rows, bool)
        waits: dict[int, WaitingRow] = {}
        kinds: list[str] = src.column(ROW_KIND).to_pylist()
        for place, key in enumerate(self._keys(src)):
            if not missed[place] and key not in self._queues:
                continue
            row = WaitingRow(key, row_id(batch, task, split, first + place), kinds[place])
            result = self._queues.take(row, bool(missed[place]))
            passes[place] = result is True
            if isinstance(result, WaitingRow):
                self._cancel(result)
            elif result is False:
                waits[place] = row
        self._new.append((src.take(pa.array(list(waits), pa.int64())), list(waits.values())))
        return src.filter(pa.array(passes))

    def _cancel(self, row: WaitingRow) -> None:
        """Remove a waiting row that a retraction has taken back."""
        if row.row_id in self._places:
            self._put_stored([row], "-D")
        else:
            self._cancelled.add(row.row_id)

    def _put_stored(self, rows: list[WaitingRow], kind: str) -> None:
        if self._stored is None or not rows:
            return
        taken = self._stored.take(pa.array([self._places[row.row_id] for row in rows], pa.int64()))
        self._put_all(taken, rows, kind)

    def _put_all(self, src: pa.Table, rows: list[WaitingRow], kind: str) -> None:
        attempts = pa.array([row.attempts for row in rows], pa.int32())
        ids = pa.array([row.row_id for row in rows], pa.string())
        self._rows.put(src.drop_columns([ROW]), ids, attempts, kind)

    def finish(self) -> list[tuple[str, Message]]:
        for src, rows in self._new:
            remaining = [
                number for number, row in enumerate(rows) if row.row_id not in self._cancelled
            ]
            if remaining:
                waiting = src.take(pa.array(remaining, pa.int64()))
                self._put_all(waiting, [rows[number] for number in remaining], "+I")
            self._run.missed += len(remaining)
        return self._rows.write()

    def _keys(self, src: pa.Table) -> list[Hashable]:
        """The key of each row: the source's primary key, or else all its columns."""
        names = self._run.spec.query.source.primary_key
        if names:
            return list(zip(*(src.column(name).to_pylist() for name in names), strict=True))
        rest = [name for name in src.column_names if name not in (ROW, ROW_KIND)]
        return [repr(row) for row in src.select(rest).to_pylist()]


def _milliseconds(times: pa.ChunkedArray) -> pa.ChunkedArray:
    return times.cast(pa.timestamp("ms")).cast(pa.int64())


@dataclass
class WaitingRow:
    """A row that waits: its key, its id in the pending table, its kind, when to retry, attempts."""

    key: Hashable
    row_id: str
    kind: str
    due_ms: int = 0
    attempts: int = 0


class Outcome(Enum):
    """What becomes of a waiting row that was looked up again."""

    FOUND = "found"
    AGAIN = "again"
    EXHAUSTED = "exhausted"


class KeyQueues:
    """The waiting rows of each key, the oldest first."""

    def __init__(self) -> None:
        self._queues: dict[Hashable, list[WaitingRow]] = {}

    def add(self, waiting: Iterable[WaitingRow]) -> None:
        """Add all waiting rows of some keys, the oldest of each first."""
        for row in waiting:
            self._queues.setdefault(row.key, []).append(row)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._queues

    def __bool__(self) -> bool:
        return bool(self._queues)

    def due(self, now_ms: int) -> list[WaitingRow]:
        """The rows of keys whose oldest row is due: those behind it follow at once."""
        queues = [queue for queue in self._queues.values() if queue[0].due_ms <= now_ms]
        return [row for queue in queues for row in queue]

    def retry(
        self, now_ms: int, is_missed: Callable[[WaitingRow], bool], most: int
    ) -> list[tuple[WaitingRow, Outcome]]:
        """Look up the due rows again; what becomes of each, in the order of its key.

        A row that misses again blocks those behind it, until it has missed `most` times since the
        first lookup; then it leaves the queue.
        """
        outcomes: list[tuple[WaitingRow, Outcome]] = []
        for queue in [waiting for waiting in self._queues.values() if waiting[0].due_ms <= now_ms]:
            while queue:
                first = queue[0]
                outcome = Outcome.FOUND
                if is_missed(first):
                    first.attempts += 1
                    exhausted = first.attempts > 0 and first.attempts >= most
                    outcome = Outcome.EXHAUSTED if exhausted else Outcome.AGAIN
                outcomes.append((first, outcome))
                if outcome is Outcome.AGAIN:
                    break
                queue.pop(0)
            if not queue:
                del self._queues[first.key]
        return outcomes

    def take(self, row: WaitingRow, is_missed: bool) -> WaitingRow | bool:
        """A new row: True if it passes, False if it waits now, or the waiting row that it cancels.

        Sets the attempts of a row that waits behind another one.
        """
        queue = self._queues.get(row.key)
        if queue is None:
            if not is_missed:
                return True
            self._queues[row.key] = [row]
            return False
        if row.kind in _RETRACTIONS and queue[-1].kind not in _RETRACTIONS:
            cancelled = queue.pop()
            if not queue:
                del self._queues[row.key]
            return cancelled
        row.attempts = BLOCKED
        queue.append(row)
        return False
