"""The job of a continuous query for Spark; see `runtime.streaming.spark_data_source.Job`."""

from __future__ import annotations

from collections.abc import Iterator
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
    if spec.shuffle is None:
        from streamhouse.runtime.streaming.tasks.task import Task

        return Task(spec, task).run()
    from streamhouse.runtime.streaming.shuffle.read_task import ReadTask, UnshuffledTask

    return (ReadTask if task.shuffled else UnshuffledTask)(spec, task).run()
