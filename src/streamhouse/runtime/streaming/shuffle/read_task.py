"""The tasks that read a batch whose rows are joined by bucket: to be shuffled, or at once."""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from streamhouse.errors import StreamhouseError
from streamhouse.lookup.storage.bucket_key import BucketKey, bucket_key
from streamhouse.paimon.write.buckets import BucketRefusal
from streamhouse.runtime.query_operator import ROW, numbered
from streamhouse.runtime.query_spec import QuerySpec
from streamhouse.runtime.streaming.tasks.result_types import BLOCKS_TYPE
from streamhouse.runtime.streaming.tasks.row_files import to_ipc
from streamhouse.runtime.streaming.tasks.task import Task
from streamhouse.runtime.streaming.tasks.task_input import SplitsInput
from streamhouse.runtime.streaming.tasks.task_results import RESULT
from streamhouse.runtime.streaming.tasks.task_run import TaskRun, chunks
from streamhouse.runtime.streaming.tasks.worker_resources import resources_of

BLOCKS: pa.Schema = to_arrow_schema(BLOCKS_TYPE)
"""The output of read tasks: blocks of source rows for task `task`, or JSON for this task in
`task_report` (offsets and number of rows); for small batches, results for the driver (`RESULT`)."""


def join_task_count(spec: QuerySpec) -> int:
    """The number of join tasks."""
    assert spec.shuffle is not None
    return max(1, min(spec.parallelism, spec.choices[spec.shuffle].buckets))


class ReadTask:
    """Reads the splits of a `SplitsInput` and yields blocks; executors."""

    def __init__(self, spec: QuerySpec, task: SplitsInput) -> None:
        assert spec.shuffle is not None
        self._task, self._count = task, join_task_count(spec)
        dimension = spec.dimensions()[spec.shuffle]
        found, sql = bucket_key(dimension, dimension.open()), dimension.lookup.row_keys_sql
        if isinstance(found, BucketRefusal) or sql is None:
            raise StreamhouseError(
                f"lookup strategy 'bucket' is no longer possible: {found}; start the query again"
            )
        # The number of buckets is that of the start of the query.
        self._key, self._sql = BucketKey(found.fields, spec.choices[spec.shuffle].buckets), sql
        self._run = TaskRun(spec, task)
        self._operator = self._run.operator

    def run(self) -> Iterator[pa.RecordBatch]:
        """Rows of `BLOCKS`."""
        self._operator.bind(self._task.now_ms, {})
        rows = 0
        for split in self._task.splits:
            for chunk in chunks(self._run.open.source.read(split)):
                yield from self._blocks(chunk)
                rows += chunk.num_rows
        counted = self._task.index % self._count
        for task in range(self._count):
            # What a join task needs to know; one of them counts the rows of this task.
            offsets = {"start": self._task.start, "end": self._task.end}
            report = json.dumps({**offsets, "rows": rows if task == counted else 0})
            yield _block_row(task, task_report=report)

    def _blocks(self, chunk: pa.Table) -> Iterator[pa.RecordBatch]:
        keys = self._operator.keys(self._sql, numbered(chunk, 0))
        tasks = self._key.tasks(keys, self._count)
        tasks[tasks < 0] = self._task.index % self._count
        numbers = keys.column(ROW).to_numpy()
        # NumPy's stable sort is a radix sort for 16-bit integers, and slower for longer ones.
        tasks = tasks.astype(np.int16 if self._count < 1 << 15 else np.int64)
        order = np.argsort(tasks, kind="stable")
        bounds = np.searchsorted(tasks[order], np.arange(self._count + 1))
        for task in range(self._count):
            mine = np.sort(numbers[order[bounds[task] : bounds[task + 1]]])
            if len(mine):
                yield _block_row(task, block=to_ipc(chunk.take(pa.array(mine))))


class UnshuffledTask:
    """Reads, joins and writes a small batch in one task, with all buckets; executors."""

    def __init__(self, spec: QuerySpec, task: SplitsInput) -> None:
        self._spec, self._input = spec, task

    def run(self) -> Iterator[pa.RecordBatch]:
        """Rows of `BLOCKS`."""
        resources_of(self._spec).dimensions.take(0, 1)
        for batch in Task(self._spec, self._input).run():
            nothing = [pa.nulls(batch.num_rows, field.type) for field in BLOCKS]
            columns = [*nothing[: -len(RESULT)], *batch.columns]
            yield pa.RecordBatch.from_arrays(columns, schema=BLOCKS)


def _block_row(task: int, **values: bytes | str) -> pa.RecordBatch:
    """A row of `BLOCKS` for join task `task`."""
    return pa.RecordBatch.from_pylist([{"task": task, **values}], schema=BLOCKS)
