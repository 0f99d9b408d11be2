"""The job of a sync for Spark; see `runtime.streaming.spark_data_source.Job`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from streamhouse.runtime.sync.micro_batch.batch_planner import SyncPlanner
from streamhouse.runtime.sync.micro_batch.spec import SyncSpec, SyncTaskInput


def planner(spec: SyncSpec, folder: Path) -> SyncPlanner:
    """The planner of a sync; on the driver."""
    return SyncPlanner(spec)


def run(spec: SyncSpec, task: SyncTaskInput) -> Iterator[pa.RecordBatch]:
    """Run a task; on executors."""
    # The driver's planner does not need it.
    from streamhouse.runtime.sync.micro_batch.task import SyncTask

    return SyncTask(spec, task).run()
