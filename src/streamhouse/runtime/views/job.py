"""The job of a view for Spark; see `runtime.streaming.spark_data_source.Job`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from streamhouse.runtime.streaming.tasks.task_input import TaskInput
from streamhouse.runtime.views.planner import ViewPlanner
from streamhouse.runtime.views.spec import ViewSpec


def planner(spec: ViewSpec, folder: Path) -> ViewPlanner:
    """The planner of a view; on the driver."""
    return ViewPlanner(spec)


def run(spec: ViewSpec, task: TaskInput) -> Iterator[pa.RecordBatch]:
    """Run a task; on executors."""
    # The driver's planner does not need it.
    from streamhouse.runtime.views.task import RefreshTask

    return RefreshTask(spec, task).run()
