"""The steps of a shuffled batch after its rows are read, as Spark operations, and their tasks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from streamhouse.arrow_batches import gathered
from streamhouse.paimon.storage.object_store.store_retries import retried, retried_task
from streamhouse.runtime.query_operator import ROW, numbered
from streamhouse.runtime.query_spec import QuerySpec
from streamhouse.runtime.streaming.shuffle.blocks import (
    TaskOfRow,
    block_row,
    join_task_count,
    place_of,
)
from streamhouse.runtime.streaming.tasks.result_types import RESULT_TYPE
from streamhouse.runtime.streaming.tasks.row_files import RowFiles, from_ipc, to_ipc
from streamhouse.runtime.streaming.tasks.task import Steps
from streamhouse.runtime.streaming.tasks.task_input import SplitsInput
from streamhouse.runtime.streaming.tasks.task_run import CHUNK_ROWS, TaskRun
from streamhouse.runtime.streaming.tasks.waiting import Waiting
from streamhouse.source import Offset

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


_JOIN_ROWS = 8 * CHUNK_ROWS


class JoinTask:
    """Joins the source rows that were sent to it, and writes the result unless it is gathered."""

    def __init__(self, spec: QuerySpec, task: SplitsInput, rows: int) -> None:
        """`rows`: how many were read for it, also of those that a filter left out."""
        self._run = run = TaskRun(spec, task)
        run.read_rows = rows
        self._tasks = TaskOfRow(spec)
        # Read tasks have reordered the rows.
        waiting = None if spec.retry is None else Waiting(run, place_of, self._own)
        self._steps = Steps(run, waiting)

    def run(self, blocks: Sequence[pa.Table]) -> Iterator[pa.RecordBatch]:
        """Yields rows of `RESULT`, of which some have blocks of joined rows if `gathered`."""
        run = self._run
        run.open.dimensions.take(run.task.index, self._tasks.count)
        # Few large chunks, since each join scans all rows of a small dimension.
        tables = map(pa.concat_tables, gathered(blocks, _JOIN_ROWS))
        rows = (src if ROW in src.column_names else numbered(src, 0) for src in tables)
        yield run.result(self._steps.run(rows))
        for table in self._steps.rows if run.spec.gathered else ():
            if table.num_rows:
                yield block_row(0, to_ipc(table))

    def _own(self, src: pa.Table) -> pa.Array:
        """Which due rows are of this task's buckets; all tasks number them in the same way."""
        numbers, tasks = self._tasks.of(src, self._run.operator)
        task_of_row = np.zeros(src.num_rows, np.int64)
        task_of_row[numbers[tasks >= 0] + src.num_rows] = tasks[tasks >= 0]
        return pa.array(task_of_row == self._run.task.index)


@dataclass(frozen=True)
class ShuffledBatch:
    """Joins, and writes, the blocks of a batch; picklable. `files`: see `SplitsInput`."""

    spec: QuerySpec
    start: Offset
    end: Offset
    files: RowFiles | None = None

    def of(self, frame: DataFrame) -> DataFrame:
        """The frame of `RESULT` rows for a frame of blocks."""
        partitioned = frame.repartitionById(join_task_count(self.spec), frame["task"])
        joined = partitioned.mapInArrow(self._join_own, RESULT_TYPE)
        return (
            joined.coalesce(1).mapInArrow(self.write, RESULT_TYPE) if self.spec.gathered else joined
        )

    def _join_own(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        return self.join(context.partitionId(), batches)

    def join(self, index: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run the join task number `index` on the blocks that were sent to it."""
        rows = [row for batch in batches for row in batch.to_pylist()]
        rows.sort(key=lambda row: row["first_row"])
        blocks = [from_ipc(row["block"]) for row in rows if row["block"] is not None]
        count = sum(int(row["report"] or 0) for row in rows)
        task = self._input(index, self.end["pending"] > 0)
        return retried_task(
            self.spec.target.warehouse, lambda: JoinTask(self.spec, task, count).run(blocks)
        )

    def write(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Sort and write the joined rows of all tasks."""
        blocks: list[pa.Table] = []
        for batch in batches:
            is_block = pc.is_valid(batch.column("block"))
            blocks += map(from_ipc, batch.filter(is_block).column("block").to_pylist())
            yield batch.filter(pc.invert(is_block))
        yield retried(lambda: _written(TaskRun(self.spec, self._input(0, False)), blocks))

    def _input(self, index: int, due: bool) -> SplitsInput:
        return SplitsInput(index, self.start, self.end, (), due, files=self.files)


def _written(run: TaskRun, blocks: list[pa.Table]) -> pa.RecordBatch:
    rows = run.operator.combine(blocks)
    if ROW in rows.column_names:
        rows = rows.take(pc.sort_indices(rows.column(ROW))).drop_columns([ROW])
    return run.result(run.write([rows]), joined=False)
