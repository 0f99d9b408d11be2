"""The job of a view for Spark; see `runtime.streaming.spark_data_source.Job`."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from streamhouse.runtime.streaming.tasks.task_input import TaskInput
from streamhouse.runtime.views.planner import ViewPlanner
from streamhouse.runtime.views.spec import ViewSpec

_EVERY_S = 0.25
"""How often a task says how many rows it has read."""


def planner(spec: ViewSpec, folder: Path) -> ViewPlanner:
    """The planner of a view; on the driver."""
    return ViewPlanner(spec, folder)


def run(spec: ViewSpec, task: TaskInput) -> Iterator[pa.RecordBatch]:
    """Run a task; on executors."""
    # The driver's planner does not need it.
    from streamhouse.runtime.views.task import RefreshTask

    return RefreshTask(spec, task, _Progress(spec.progress)).run()


class _Progress:
    """Writes the number of rows that a task has read to a file of the driver, now and then."""

    def __init__(self, path: str) -> None:
        self._path, self._due = path, 0.0

    def __call__(self, rows: int) -> None:
        if self._path and time.monotonic() >= self._due:
            self._due = time.monotonic() + _EVERY_S
            # On another host than the driver's there is no such folder.
            with contextlib.suppress(OSError):
                Path(self._path).write_text(str(rows))
