"""The steps of a shuffled batch as Spark operations."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.paimon.storage.object_store.store_retries import retried
from streamhouse.runtime.query_operator import ROW
from streamhouse.runtime.query_spec import QuerySpec
from streamhouse.runtime.streaming.shuffle.blocks import join_task_count
from streamhouse.runtime.streaming.shuffle.join_task import JoinStep
from streamhouse.runtime.streaming.tasks.result_types import RESULT_TYPE
from streamhouse.runtime.streaming.tasks.row_files import RowFiles, from_ipc
from streamhouse.runtime.streaming.tasks.task_input import SplitsInput
from streamhouse.runtime.streaming.tasks.task_run import TaskRun

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class GatherStep:
    """Writes the joined rows of a batch; picklable. `files`: see `SplitsInput`."""

    spec: QuerySpec
    files: RowFiles | None = None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        blocks: list[pa.Table] = []
        report: dict[str, Any] | None = None
        for batch in batches:
            for row in batch.to_pylist():
                if row["block"] is not None:
                    blocks.append(from_ipc(row["block"]))
                elif row["report"] is not None:
                    report = json.loads(row["report"])
            yield batch.filter(pc.is_null(batch.column("block")))
        if report is not None:
            start, end = report["start"], report["end"]
            task = SplitsInput(0, start, end, (), due=False, files=self.files)
            yield retried(lambda: _written(TaskRun(self.spec, task), blocks))


def _written(run: TaskRun, blocks: list[pa.Table]) -> pa.RecordBatch:
    """Sort the joined rows of a whole batch, and write them; rows of `RESULT`."""
    rows = run.operator.combine(blocks)
    if ROW in rows.column_names:
        rows = rows.take(pc.sort_indices(rows.column(ROW))).drop_columns([ROW])
    return run.result(run.write(rows), joined=False)


def shuffled(frame: DataFrame, spec: QuerySpec, files: RowFiles) -> DataFrame:
    """Join, and write, the blocks of a batch; returns a frame of `RESULT` rows.

    `files` are for rows that the sink's committer writes.
    """
    count = join_task_count(spec)
    partitioned = frame.repartitionById(count, frame["task"])
    if not spec.gathered:
        return partitioned.mapInArrow(JoinStep(spec, files), RESULT_TYPE)
    joined = partitioned.mapInArrow(JoinStep(spec), RESULT_TYPE)
    return joined.coalesce(1).mapInArrow(GatherStep(spec, files), RESULT_TYPE)
