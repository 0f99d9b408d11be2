"""The tasks that join the rows which read tasks have sent to them by bucket."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.arrow_batches import gathered
from streamhouse.paimon.storage.object_store.store_retries import retried_task
from streamhouse.runtime.query_operator import ROW, numbered, only
from streamhouse.runtime.query_spec import QuerySpec
from streamhouse.runtime.streaming.shuffle.blocks import JOINED
from streamhouse.runtime.streaming.shuffle.partitioning import (
    ROW_BITS,
    SPLIT_BITS,
    join_task_count,
    shuffle_key,
)
from streamhouse.runtime.streaming.tasks.arrow_ipc import from_ipc, to_ipc
from streamhouse.runtime.streaming.tasks.row_files import RowFiles
from streamhouse.runtime.streaming.tasks.task import CHUNK_ROWS, Task
from streamhouse.runtime.streaming.tasks.task_input import SplitsInput

_JOIN_ROWS = 8 * CHUNK_ROWS


@dataclass(frozen=True)
class JoinStep:
    """Runs a `JoinTask` on the blocks of one task; picklable. `files`: see `Task`."""

    spec: QuerySpec
    files: RowFiles | None = None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        blocks: list[tuple[int, pa.Table]] = []
        reports: list[dict[str, Any]] = []
        index = 0
        for batch in batches:
            for row in batch.to_pylist():
                index = row["task"]
                if row["task_report"] is not None:
                    reports.append(json.loads(row["task_report"]))
                else:
                    blocks.append((row["first_row"], from_ipc(row["block"])))
        if reports:
            blocks.sort(key=lambda block: block[0])
            end = reports[0]["end"]
            task = SplitsInput(index, reports[0]["start"], end, (), due=end["pending"] > 0)
            rows = sum(report["rows"] for report in reports)
            tables = [table for _, table in blocks]
            warehouse = self.spec.target.warehouse
            yield from retried_task(
                warehouse, lambda: JoinTask(self.spec, task, self.files, rows).joined(tables)
            )


class JoinTask(Task):
    """Joins the source rows that were sent to it, and writes the result unless it is gathered."""

    def __init__(
        self, spec: QuerySpec, task: SplitsInput, files: RowFiles | None, rows: int
    ) -> None:
        super().__init__(spec, task, files)
        self._reorder_key = ()  # read tasks have reordered the rows
        self._out.read = rows
        self._count = join_task_count(spec)

    def joined(self, blocks: list[pa.Table]) -> Iterator[pa.RecordBatch]:
        """Yields rows of `RESULT`; if `gathered`, with a column `block` of joined rows."""
        gathered = self._spec.gathered
        try:
            self._join_all(blocks)
            messages = self._write_waiting() if gathered else self._write()
        finally:
            self._close()
        result = self._result(messages)
        if not gathered:
            yield result
            return
        nothing = pa.nulls(result.num_rows, pa.binary())
        yield pa.RecordBatch.from_arrays([*result.columns, nothing], schema=JOINED)
        for table in self._out.rows:
            if table.num_rows:
                yield pa.RecordBatch.from_pylist([{"block": to_ipc(table)}], JOINED)

    def _join_all(self, blocks: list[pa.Table]) -> None:
        self._dimensions.take(self._task.index, self._count)
        self._bind()
        if self._task.due:
            self._retry()
        for src in _together(blocks):
            if ROW not in src.column_names:
                src = numbered(src, 0)
            misses = self._joined(src)
            if len(misses):
                self._keep(only(src, misses))

    def _due_rows(self) -> tuple[pa.Table, pa.Table]:
        """The due pending rows of this task's buckets.

        All tasks number them in the same way, with negative numbers, before the source rows.
        """
        due, src = super()._due_rows()
        spec = self._spec
        assert spec.shuffle is not None
        src = src.set_column(
            src.column_names.index(ROW), ROW, pc.subtract(src.column(ROW), due.num_rows)
        )
        sql = spec.query.lookups[spec.shuffle].row_keys_sql
        assert sql is not None
        keys = self._operator.keys(sql, src)
        tasks = shuffle_key(spec).tasks(keys, self._count)
        indexes = keys.column(ROW).to_numpy() + due.num_rows
        task_of_row = np.zeros(due.num_rows, np.int64)
        task_of_row[indexes[tasks >= 0]] = tasks[tasks >= 0]
        mine = pa.array(task_of_row == self._task.index)
        return due.filter(mine), src.filter(mine)

    def _keep(self, src: pa.Table) -> None:
        """Collect rows without a match for the pending table."""
        ids = [
            f"{self._task.batch:012d}-{number >> (ROW_BITS + SPLIT_BITS):04d}-"
            f"{(number >> ROW_BITS) & ((1 << SPLIT_BITS) - 1):06d}-"
            f"{number & ((1 << ROW_BITS) - 1):012d}"
            for number in src.column(ROW).to_pylist()
        ]
        attempts = pa.array(np.zeros(len(ids), np.int32))
        self._put(src.drop_columns([ROW]), pa.array(ids), attempts, "+I")
        self._out.missed += len(ids)


def _together(blocks: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Concatenate blocks, since each join scans all rows of the dimension."""
    for group in gathered(blocks, _JOIN_ROWS):
        yield pa.concat_tables(group)
