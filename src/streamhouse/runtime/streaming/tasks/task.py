"""One task of a batch: reads, joins, aggregates and writes, and returns only commit messages."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from streamhouse.runtime.query_operator import numbered
from streamhouse.runtime.query_spec import QuerySpec
from streamhouse.runtime.streaming.tasks.steps import Steps
from streamhouse.runtime.streaming.tasks.task_input import SplitsInput
from streamhouse.runtime.streaming.tasks.task_run import TaskRun
from streamhouse.runtime.streaming.tasks.waiting import Waiting


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
