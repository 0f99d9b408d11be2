"""The steps of a shuffled batch as Spark operations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamhouse.runtime.query_spec import QuerySpec
from streamhouse.runtime.streaming.shuffle.blocks import join_task_count
from streamhouse.runtime.streaming.shuffle.gather_task import GatherStep
from streamhouse.runtime.streaming.shuffle.join_task import JoinStep
from streamhouse.runtime.streaming.tasks.result_types import JOINED_TYPE, RESULT_TYPE
from streamhouse.runtime.streaming.tasks.row_files import RowFiles

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def shuffled(frame: DataFrame, spec: QuerySpec, files: RowFiles) -> DataFrame:
    """Join, and write, the blocks of a batch; returns a frame of `RESULT` rows.

    `files` are for rows that the sink's committer writes.
    """
    count = join_task_count(spec)
    partitioned = frame.repartitionById(count, frame["task"])
    if not spec.gathered:
        return partitioned.mapInArrow(JoinStep(spec, files), RESULT_TYPE)
    joined = partitioned.mapInArrow(JoinStep(spec), JOINED_TYPE)
    return joined.coalesce(1).mapInArrow(GatherStep(spec, files), RESULT_TYPE)
