"""The job of a sync for Spark; see `runtime.streaming.spark_data_source.Job`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from streamhouse.runtime.sync.micro_batch.spec import SyncSpec, SyncTaskInput

if TYPE_CHECKING:
    import pyarrow as pa

    from streamhouse.runtime.sync.micro_batch.planner import SyncPlanner


# The driver's planner does not need what tasks import, nor the reverse.
def planner(spec: SyncSpec, folder: Path) -> SyncPlanner:
    """The planner of a sync; on the driver."""
    from streamhouse.runtime.sync.micro_batch.planner import SyncPlanner

    return SyncPlanner(spec)


def run(spec: SyncSpec, task: SyncTaskInput) -> Iterator[pa.RecordBatch]:
    """Run a task; on executors."""
    from streamhouse.runtime.sync.micro_batch.task import SyncTask

    return SyncTask(spec, task).run()
