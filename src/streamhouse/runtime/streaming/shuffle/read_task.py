"""The tasks that read a batch whose rows are joined by bucket in other tasks."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa

from streamhouse.runtime.query_operator import ROW, numbered
from streamhouse.runtime.query_spec import QuerySpec
from streamhouse.runtime.streaming.shuffle.blocks import (
    TaskOfRow,
    block_row,
    first_row_number,
    needs_row_numbers,
)
from streamhouse.runtime.streaming.tasks import task as whole_task
from streamhouse.runtime.streaming.tasks.row_files import to_ipc
from streamhouse.runtime.streaming.tasks.task import current_rows_last
from streamhouse.runtime.streaming.tasks.task_input import SplitsInput
from streamhouse.runtime.streaming.tasks.task_run import TaskRun, chunks
from streamhouse.runtime.streaming.tasks.worker_resources import resources_of


def run(spec: QuerySpec, task: SplitsInput) -> Iterator[pa.RecordBatch]:
    """Run a task of a query with a bucket shuffle; yields rows of `RESULT`."""
    if task.shuffled:
        return ReadTask(spec, task).run()
    # A small batch is one task, with all buckets.
    spec = replace(spec, gathered=False)
    resources_of(spec).dimensions.take(0, 1)
    return whole_task.run(spec, task)


class ReadTask:
    """Reads the splits of a `SplitsInput` and yields blocks; executors."""

    def __init__(self, spec: QuerySpec, task: SplitsInput) -> None:
        self._spec, self._task = spec, task
        self._tasks = TaskOfRow(spec)
        self._run = TaskRun(spec, task)
        self._operator = self._run.operator

    def run(self) -> Iterator[pa.RecordBatch]:
        """Rows of `RESULT`, of which each is for another task."""
        self._operator.bind(self._task.now_ms, {})
        rows = 0
        for src in self._numbered():
            yield from self._blocks(src)
            rows += src.num_rows
        yield block_row(self._task.index % self._tasks.count, None, rows=rows)

    def _numbered(self) -> Iterator[pa.Table]:
        """The rows with their numbers, in chunks; all at once if they must be reordered."""
        index, reorder_key = self._task.index, self._spec.query.reorder_key
        collected = []
        for number, split in enumerate(self._task.splits):
            first = first_row_number(index, number)
            for chunk in chunks(self._run.open.source.read(split)):
                if reorder_key:
                    collected.append(chunk)
                else:
                    yield numbered(chunk, first)
                    first += chunk.num_rows
        if collected:
            whole = current_rows_last(pa.concat_tables(collected), reorder_key)
            yield numbered(whole, first_row_number(index, 0))

    def _blocks(self, src: pa.Table) -> Iterator[pa.RecordBatch]:
        count = self._tasks.count
        numbers, tasks = self._tasks.of(src, self._operator)
        tasks[tasks < 0] = self._task.index % count
        # NumPy's stable sort is a radix sort for 16-bit integers, and slower for longer ones.
        tasks = tasks.astype(np.int16 if count < 1 << 15 else np.int64)
        order = np.argsort(tasks, kind="stable")
        bounds = np.searchsorted(tasks[order], np.arange(count + 1))
        first = src.column(ROW)[0].as_py()
        for task in range(count):
            mine = np.sort(numbers[order[bounds[task] : bounds[task + 1]]])
            if len(mine):
                rows = src.take(pa.array(mine - first))
                if not needs_row_numbers(self._spec):
                    rows = rows.drop_columns([ROW])
                yield block_row(task, to_ipc(rows), int(mine[0]))
