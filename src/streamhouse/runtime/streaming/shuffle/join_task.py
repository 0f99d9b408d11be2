"""The tasks that join the rows which read tasks have sent to them by bucket."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from streamhouse.arrow_batches import gathered
from streamhouse.paimon.storage.object_store.store_retries import retried_task
from streamhouse.runtime.query_operator import ROW, numbered
from streamhouse.runtime.query_spec import QuerySpec
from streamhouse.runtime.streaming.shuffle.blocks import (
    block_row,
    join_task_count,
    place_of,
    shuffle_key,
)
from streamhouse.runtime.streaming.tasks.row_files import RowFiles, from_ipc, to_ipc
from streamhouse.runtime.streaming.tasks.steps import Steps
from streamhouse.runtime.streaming.tasks.task_input import SplitsInput
from streamhouse.runtime.streaming.tasks.task_run import CHUNK_ROWS, TaskRun
from streamhouse.runtime.streaming.tasks.waiting import Waiting

_JOIN_ROWS = 8 * CHUNK_ROWS


@dataclass(frozen=True)
class JoinStep:
    """Runs a `JoinTask` on the blocks of one task; picklable. `files`: see `SplitsInput`."""

    spec: QuerySpec
    files: RowFiles | None = None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        blocks: list[tuple[int, pa.Table]] = []
        reports: list[dict[str, Any]] = []
        index = 0
        for batch in batches:
            for row in batch.to_pylist():
                index = row["task"]
                if row["report"] is not None:
                    reports.append(json.loads(row["report"]))
                else:
                    blocks.append((row["first_row"], from_ipc(row["block"])))
        if reports:
            blocks.sort(key=lambda block: block[0])
            start, end = reports[0]["start"], reports[0]["end"]
            due = end["pending"] > 0
            task = SplitsInput(index, start, end, (), due, files=self.files)
            rows = sum(report["rows"] for report in reports)
            tables = [table for _, table in blocks]
            warehouse = self.spec.target.warehouse
            yield from retried_task(
                warehouse, lambda: JoinTask(self.spec, task, rows).joined(tables)
            )


class JoinTask:
    """Joins the source rows that were sent to it, and writes the result unless it is gathered."""

    def __init__(self, spec: QuerySpec, task: SplitsInput, rows: int) -> None:
        self._run = run = TaskRun(spec, task)
        run.read_rows = rows
        self._count = join_task_count(spec)
        # Read tasks have reordered the rows.
        waiting = None if spec.retry is None else Waiting(run, place_of, self._own)
        self._steps = Steps(run, waiting)

    def joined(self, blocks: list[pa.Table]) -> Iterator[pa.RecordBatch]:
        """Yields rows of `RESULT`, of which some have blocks of joined rows if `gathered`."""
        run, tables = self._run, _together(blocks)
        run.open.dimensions.take(run.task.index, self._count)
        rows = (src if ROW in src.column_names else numbered(src, 0) for src in tables)
        yield run.result(self._steps.run(rows))
        for table in self._steps.rows if run.spec.gathered else ():
            if table.num_rows:
                yield block_row(0, to_ipc(table))

    def _own(self, src: pa.Table) -> pa.Array:
        """Which due rows are of this task's buckets; all tasks number them in the same way."""
        spec, count = self._run.spec, src.num_rows
        assert spec.shuffle is not None
        sql = spec.query.lookups[spec.shuffle].row_keys_sql
        assert sql is not None
        keys = self._run.operator.keys(sql, src)
        tasks = shuffle_key(spec).tasks(keys, self._count)
        indexes = keys.column(ROW).to_numpy() + count
        task_of_row = np.zeros(count, np.int64)
        task_of_row[indexes[tasks >= 0]] = tasks[tasks >= 0]
        return pa.array(task_of_row == self._run.task.index)


def _together(blocks: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Concatenate blocks, since each join scans all rows of the dimension."""
    for group in gathered(blocks, _JOIN_ROWS):
        yield pa.concat_tables(group)
