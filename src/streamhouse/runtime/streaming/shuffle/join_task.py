"""The tasks that join the rows which read tasks have sent to them by bucket."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from streamhouse.arrow_batches import gathered
from streamhouse.runtime.query_operator import ROW, numbered
from streamhouse.runtime.query_spec import QuerySpec
from streamhouse.runtime.streaming.shuffle.blocks import TaskOfRow, block_row, place_of
from streamhouse.runtime.streaming.tasks.row_files import to_ipc
from streamhouse.runtime.streaming.tasks.task import Steps
from streamhouse.runtime.streaming.tasks.task_input import SplitsInput
from streamhouse.runtime.streaming.tasks.task_run import CHUNK_ROWS, TaskRun
from streamhouse.runtime.streaming.tasks.waiting import Waiting

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
