"""One task of a batch: reads, joins, aggregates and writes, and returns only commit messages."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from streamhouse.runtime.query_operator import numbered
from streamhouse.runtime.query_spec import QuerySpec
from streamhouse.runtime.streaming.tasks.ordered_waiting import OrderedWaiting
from streamhouse.runtime.streaming.tasks.steps import Steps
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
        waiting: Waiting | OrderedWaiting | None = None
        if spec.retry is not None:
            waiting = (OrderedWaiting if spec.waits_in_order else Waiting)(self._run)
        self._steps = Steps(self._run, waiting, spec.query.reorder_key)

    def run(self) -> Iterator[pa.RecordBatch]:
        """Run the task; yields rows of `RESULT`."""
        messages = self._steps.run(self._rows())
        yield self._run.result([*messages, *self._run.write_met()])

    def _rows(self) -> Iterator[pa.Table]:
        """The rows of the task's splits, numbered in each split."""
        run = self._run
        for number, split in enumerate(run.task.splits):
            first = 0
            for place, chunk in enumerate(run.chunks(number, split)):
                if place % run.task.shares == run.task.share:
                    yield numbered(chunk, first)
                    run.read_rows += chunk.num_rows
                first += chunk.num_rows
