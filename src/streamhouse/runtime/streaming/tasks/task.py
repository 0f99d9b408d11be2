"""One task of a batch: reads, joins, aggregates and writes, and returns only commit messages."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.arrow_batches import LAST, last_positions
from streamhouse.connectors.base import Message
from streamhouse.runtime.query_operator import ROW, numbered
from streamhouse.runtime.query_spec import QuerySpec
from streamhouse.runtime.streaming.tasks.task_input import SplitsInput
from streamhouse.runtime.streaming.tasks.task_run import TaskRun
from streamhouse.runtime.streaming.tasks.waiting import Waiting
from streamhouse.source import ROW_KIND


def run(spec: QuerySpec, task: SplitsInput) -> Iterator[pa.RecordBatch]:
    """Run a task of a query that is not shuffled; executors. Yields rows of `RESULT`."""
    task_run = TaskRun(spec, task)
    waiting = None if spec.retry is None else Waiting(task_run)
    messages = Steps(task_run, waiting, spec.query.reorder_key).run(_rows(task_run))
    yield task_run.result([*messages, *task_run.write_met()])


def _rows(run: TaskRun) -> Iterator[pa.Table]:
    """The rows of the task's splits, numbered in each split."""
    for number, split in enumerate(run.task.splits):
        first = 0
        for place, chunk in enumerate(run.chunks(number, split)):
            if place % run.task.shares == run.task.share:
                yield numbered(chunk, first)
                run.read_rows += chunk.num_rows
            first += chunk.num_rows


class Steps:
    """Takes the source rows of a task, and writes the rows of the target that come from them.

    It writes them at once, so that a task needs memory for a part of its batch only, unless they
    are combined or gathered before. With a `reorder_key` it holds all rows back, and goes on with
    those last that are current at their end (`current_rows_last`). `waiting` looks rows up, and
    keeps those without a match.
    """

    def __init__(
        self, run: TaskRun, waiting: Waiting | None, reorder_key: Sequence[str] = ()
    ) -> None:
        self._run, self._waiting, self._reorder_key = run, waiting, reorder_key
        self.rows: list[pa.Table] = []
        """Collected rows of the target; if they are gathered, another task writes them."""

    def run(self, rows: Iterable[pa.Table]) -> list[tuple[str, Message]]:
        """Take numbered rows of the source; returns tables with messages."""
        run, messages = self._run, list[tuple[str, Message]]()
        run.bind()
        outputs = self._outputs(rows)
        if run.operator.combines or run.gathered:
            self.rows = list(outputs)
            outputs = iter(() if run.gathered else (run.operator.combine(self.rows),))
        messages += run.write(outputs)
        if self._waiting is not None:
            messages += self._waiting.finish()
        return messages

    def _outputs(self, rows: Iterable[pa.Table]) -> Iterator[pa.Table]:
        """The rows of the target, each part before the next one of the source is taken."""
        run, waiting, held = self._run, self._waiting, list[pa.Table]()
        # Rows that waited come before any other row.
        sources = rows if waiting is None else chain(waiting.begin(), map(waiting.take, rows))
        for src in sources:
            if self._reorder_key:
                held.append(src)
                continue
            if waiting is None:
                run.look_up(src)
            yield run.operator.rows(src)
        if held:
            whole = pa.concat_tables(held, promote_options="default")
            src = numbered(current_rows_last(whole.drop_columns([ROW]), self._reorder_key), 0)
            run.look_up(src)
            yield run.operator.rows(src)


def current_rows_last(changes: pa.Table, key: Sequence[str]) -> pa.Table:
    """The changes of a batch with the rows that are current at its end after all others.

    `key` is the source's primary key. A row is current if it is a `+I` or `+U`, and no later change
    has its key. Both parts keep their order, so each row still precedes its retraction, and each
    retraction precedes every row that takes over its key of the target.
    """
    kinds = changes.column(ROW_KIND)
    if not pc.any(pc.is_in(kinds, value_set=pa.array(["-U", "-D"]))).as_py():
        return changes
    current = np.zeros(changes.num_rows, bool)
    current[last_positions(changes, key).column(LAST).to_numpy()] = True
    current &= pc.is_in(kinds, value_set=pa.array(["+I", "+U"])).to_numpy()
    return changes.take(pa.array(np.argsort(current, kind="stable")))
