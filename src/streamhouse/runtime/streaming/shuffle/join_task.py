"""The tasks that join the rows which read tasks have sent to them by bucket."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from streamhouse.arrow_batches import gathered
from streamhouse.paimon.storage.object_store.store_retries import retried_task
from streamhouse.runtime.query_operator import numbered
from streamhouse.runtime.query_spec import QuerySpec
from streamhouse.runtime.streaming.shuffle.read_task import (
    join_task_count,
)
from streamhouse.runtime.streaming.tasks.result_types import RESULT_TYPE
from streamhouse.runtime.streaming.tasks.row_files import RowFiles, from_ipc
from streamhouse.runtime.streaming.tasks.steps import LookUp, Output
from streamhouse.runtime.streaming.tasks.task_input import SplitsInput
from streamhouse.runtime.streaming.tasks.task_run import CHUNK_ROWS, TaskRun

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_JOIN_ROWS = 8 * CHUNK_ROWS


@dataclass(frozen=True)
class JoinStep:
    """Joins and writes the blocks of one task; picklable. `files`: see `SplitsInput`."""

    spec: QuerySpec
    files: RowFiles | None = None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        blocks: list[pa.Table] = []
        reports: list[dict[str, Any]] = []
        index = 0
        for batch in batches:
            for row in batch.to_pylist():
                index = row["task"]
                if row["task_report"] is not None:
                    reports.append(json.loads(row["task_report"]))
                else:
                    blocks.append(from_ipc(row["block"]))
        if reports:
            task = SplitsInput(
                index, reports[0]["start"], reports[0]["end"], (), False, files=self.files
            )
            rows = sum(report["rows"] for report in reports)
            yield from retried_task(
                self.spec.target.warehouse, lambda: _joined(TaskRun(self.spec, task), blocks, rows)
            )


def _joined(run: TaskRun, blocks: list[pa.Table], rows: int) -> Iterator[pa.RecordBatch]:
    """Join the source rows that were sent to a task, and write the result; rows of `RESULT`."""
    run.read_rows = rows
    step = LookUp(run, Output(run))
    try:
        run.open.dimensions.take(run.task.index, join_task_count(run.spec))
        run.bind()
        for src in _together(blocks):
            step.take(numbered(src, 0))
        yield run.result(step.finish())
    finally:
        step.close()


def _together(blocks: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Concatenate blocks, since each join scans all rows of the dimension."""
    for group in gathered(blocks, _JOIN_ROWS):
        yield pa.concat_tables(group)


def shuffled(frame: DataFrame, spec: QuerySpec, files: RowFiles) -> DataFrame:
    """Join, and write, the blocks of a batch; returns a frame of `RESULT` rows.

    `files` are for rows that the sink's committer writes.
    """
    partitioned = frame.repartitionById(join_task_count(spec), frame["task"])
    return partitioned.mapInArrow(JoinStep(spec, files), RESULT_TYPE)
