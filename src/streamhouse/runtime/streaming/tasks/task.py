"""One task of a batch: reads, joins, aggregates and writes, and returns only commit messages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from streamhouse.runtime.query_operator import numbered
from streamhouse.runtime.query_spec import QuerySpec
from streamhouse.runtime.streaming.tasks.ordered_waiting import OrderedWaiting
from streamhouse.runtime.streaming.tasks.steps import CurrentRowsLast, LookUp, Output, TaskStep
from streamhouse.runtime.streaming.tasks.task_input import SplitsInput
from streamhouse.runtime.streaming.tasks.task_run import TaskRun
from streamhouse.runtime.streaming.tasks.waiting import Waiting


def run(spec: QuerySpec, task: SplitsInput) -> Iterator[pa.RecordBatch]:
    """Run a task of a query; yields rows of `RESULT`."""
    return Task(spec, task).run()


class Task:
    """Runs one `SplitsInput` of a query that is not shuffled; executors."""

    def __init__(self, spec: QuerySpec, task: SplitsInput) -> None:
        self._run = TaskRun(spec, task)
        self._steps = steps(self._run, spec.query.reorder_key)

    def run(self) -> Iterator[pa.RecordBatch]:
        """Run the task; yields rows of `RESULT`."""
        try:
            self._run.bind()
            self._steps.begin()
            for number, split in enumerate(self._run.task.splits):
                self._read(number, split)
            messages = [*self._steps.finish(), *self._run.write_met()]
        finally:
            self._steps.close()
        yield self._run.result(messages)

    def _read(self, number: int, split: Any) -> None:
        run, first = self._run, 0
        for place, chunk in enumerate(run.chunks(number, split)):
            if place % run.task.shares == run.task.share:
                self._steps.take(numbered(chunk, first))
                run.read_rows += chunk.num_rows
            first += chunk.num_rows


def steps(run: TaskRun, reorder_key: Sequence[str]) -> TaskStep:
    """The steps of a task of a query; `reorder_key`: see `StreamQuery.reorder_key`."""
    step: TaskStep = Output(run)
    waits = run.spec.retry is not None
    if reorder_key or not waits:
        step = LookUp(run, step)
    if reorder_key:
        step = CurrentRowsLast(reorder_key, step)
    if run.spec.waits_in_order:
        return OrderedWaiting(run, step)
    return Waiting(run, step) if waits else step
