"""The job of a continuous query for Spark; see `runtime.streaming.spark_data_source.Job`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from streamhouse.runtime.query_spec import QuerySpec
from streamhouse.runtime.streaming.tasks.task_input import SplitsInput

if TYPE_CHECKING:
    import pyarrow as pa

    from streamhouse.runtime.streaming.batch_planner import BatchPlanner


# The driver's planner does not need what tasks import, nor the reverse.
def planner(spec: QuerySpec, folder: Path) -> BatchPlanner:
    """The planner of a query; on the driver."""
    from streamhouse.runtime.streaming.batch_planner import BatchPlanner

    return BatchPlanner(spec, folder)


def run(spec: QuerySpec, task: SplitsInput) -> Iterator[pa.RecordBatch]:
    """Run a task; on executors."""
    if task.shuffled:
        from streamhouse.runtime.streaming.shuffle.read_task import ReadTask

        return ReadTask(spec, task).run()
    from streamhouse.runtime.streaming.tasks.task import Task
    from streamhouse.runtime.streaming.tasks.worker_resources import resources_of

    if spec.shuffle is not None:
        # A small batch is one task, with all buckets.
        spec = replace(spec, gathered=False)
        resources_of(spec).dimensions.take(0, 1)
    return Task(spec, task).run()
