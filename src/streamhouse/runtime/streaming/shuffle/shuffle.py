"""The steps of a shuffled batch: tasks read its rows, others join them, and one may write them all.

The first step is that of any batch, the others get its records from Spark's shuffle.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import RDD

from streamhouse.arrow_batches import gathered
from streamhouse.paimon.storage.object_store.store_retries import retried, retried_task
from streamhouse.runtime.query_operator import ROW, numbered
from streamhouse.runtime.query_spec import QuerySpec
from streamhouse.runtime.streaming.shuffle.blocks import (
    TaskOfRow,
    block_row,
    first_row_number,
    join_task_count,
    place_of,
)
from streamhouse.runtime.streaming.spark_job import Record, shuffled
from streamhouse.runtime.streaming.tasks import task as whole_task
from streamhouse.runtime.streaming.tasks.task import Steps, current_rows_last
from streamhouse.runtime.streaming.tasks.task_input import SplitsInput
from streamhouse.runtime.streaming.tasks.task_protocol import RESULT, RowFiles, from_ipc, to_ipc
from streamhouse.runtime.streaming.tasks.task_run import CHUNK_ROWS, TaskRun, chunks
from streamhouse.runtime.streaming.tasks.waiting import Waiting
from streamhouse.runtime.streaming.tasks.worker_resources import resources_of
from streamhouse.source import Offset

_JOIN_ROWS = 8 * CHUNK_ROWS


def run(spec: QuerySpec, task: SplitsInput) -> Iterator[pa.RecordBatch]:
    """Run a task that reads rows of a batch; executors. Yields rows of `RESULT`."""
    if task.shuffled:
        return _blocks(TaskRun(spec, task))
    # A small batch is one task, with all buckets.
    resources_of(spec).dimensions.take(0, 1)
    return whole_task.run(spec, task)


def _blocks(run: TaskRun) -> Iterator[pa.RecordBatch]:
    """Read the splits of a task; yields rows of `RESULT`, of which each is for another task."""
    tasks, index, rows = TaskOfRow(run.spec), run.task.index, 0
    run.operator.bind(run.task.now_ms)
    for src in _numbered(run):
        first = src.column(ROW)[0].as_py()
        for task, numbers in tasks.shares(src, run.operator, index):
            block = src.take(pa.array(numbers - first))
            # For sorting, and for the ids of pending rows.
            if not run.spec.gathered and run.spec.retry is None:
                block = block.drop_columns([ROW])
            yield block_row(task, to_ipc(block), int(numbers[0]))
        rows += src.num_rows
    yield block_row(index % tasks.count, None, rows=rows)


def _numbered(run: TaskRun) -> Iterator[pa.Table]:
    """The rows of a task with their numbers, in chunks; all at once if they must be reordered."""
    index, reorder_key, collected = run.task.index, run.spec.query.reorder_key, list[pa.Table]()
    for number, split in enumerate(run.task.splits):
        first = first_row_number(index, number)
        for chunk in chunks(run.open.source.read(split)):
            if reorder_key:
                collected.append(chunk)
            else:
                yield numbered(chunk, first)
                first += chunk.num_rows
    if collected:
        whole = current_rows_last(pa.concat_tables(collected), reorder_key)
        yield numbered(whole, first_row_number(index, 0))


def _joined(run: TaskRun, blocks: Sequence[pa.Table]) -> Iterator[pa.RecordBatch]:
    """Join the rows that were sent to a task, and write the result unless it is gathered.

    Yields rows of `RESULT`, of which some have blocks of joined rows if it is.
    """
    tasks, index = TaskOfRow(run.spec), run.task.index
    own = partial(tasks.due_rows, run.operator, index)
    # The rows have been reordered where they were read.
    steps = Steps(run, None if run.spec.retry is None else Waiting(run, place_of, own))
    run.open.dimensions.take(index, tasks.count)
    # Few large chunks, since each join scans all rows of a small dimension.
    tables = map(pa.concat_tables, gathered(blocks, _JOIN_ROWS))
    rows = (src if ROW in src.column_names else numbered(src, 0) for src in tables)
    yield run.result(steps.run(rows))
    for table in steps.rows if run.gathered else ():
        if table.num_rows:
            yield block_row(0, to_ipc(table))


@dataclass(frozen=True)
class ShuffledBatch:
    """Joins, and writes, the blocks of a batch; picklable. `files`: see `SplitsInput`."""

    spec: QuerySpec
    start: Offset
    end: Offset
    files: RowFiles | None = None

    def of(self, sent: RDD[Record]) -> RDD[Record]:
        """What the tasks return that write the rows of the blocks in `sent`."""
        joined = shuffled(sent, join_task_count(self.spec), self.join)
        return shuffled(joined, 1, self.write) if self.spec.gathered else joined

    def join(self, index: int, received: Iterable[Record]) -> Iterator[pa.RecordBatch]:
        """Run the join task number `index` on the blocks that were sent to it."""
        rows = sorted(received, key=lambda row: row["first_row"])
        blocks = [from_ipc(row["block"]) for row in rows if row["block"] is not None]
        count = sum(int(row["report"] or 0) for row in rows)
        task = self._input(index, self.end["pending"] > 0)

        def joined() -> Iterator[pa.RecordBatch]:
            run = TaskRun(self.spec, task)
            # Also those that a filter left out.
            run.read_rows = count
            return _joined(run, blocks)

        return retried_task(self.spec.target.warehouse, joined)

    def write(self, index: int, received: Iterable[Record]) -> Iterator[pa.RecordBatch]:
        """Sort and write the joined rows of all tasks."""
        blocks: list[pa.Table] = []
        for row in received:
            if row["block"] is None:
                yield pa.RecordBatch.from_pylist([row], schema=RESULT)
            else:
                blocks.append(from_ipc(row["block"]))
        yield retried(lambda: _written(TaskRun(self.spec, self._input(0, False)), blocks))

    def _input(self, index: int, due: bool) -> SplitsInput:
        return SplitsInput(index, self.start, self.end, (), due, shuffled=True, files=self.files)


def _written(run: TaskRun, blocks: list[pa.Table]) -> pa.RecordBatch:
    rows = run.operator.combine(blocks)
    if ROW in rows.column_names:
        rows = rows.take(pc.sort_indices(rows.column(ROW))).drop_columns([ROW])
    return run.result(run.write([rows]), joined=False)
