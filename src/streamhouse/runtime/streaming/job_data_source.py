"""The Spark data source of jobs whose specification plans and runs their own tasks.

See `runtime.streaming.spark_data_source` for how the driver, Spark and the tasks work together.
"""

from __future__ import annotations

import importlib
import pickle
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from streamhouse.runtime.streaming.spark_data_source import FusedReader
from streamhouse.runtime.streaming.tasks.result_types import RESULT_TYPE

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from streamhouse.source import Offset

FORMAT = "streamhouse-job"


class JobPlanner(Protocol):
    """Plans the batches of a job; in a Python process of the driver."""

    def latest_offset(self, start: Offset, max_rows: int | None = None) -> Offset:
        """The end offset of the next batch; `start` if there is nothing to do."""

    def tasks(self, start: Offset, end: Offset) -> Sequence[Any]:
        """The picklable tasks of a batch; none if the offsets are equal."""

    def committed(self, end: Offset) -> None:
        """Called once the batch up to `end` is committed."""

    def close(self) -> None: ...


class Job(Protocol):
    """The specification of a job, picklable; `max_rows`: how many rows a batch may have."""

    @property
    def max_rows(self) -> int | None: ...

    @property
    def job_module(self) -> str:
        """The module with `planner(job)`, which opens the `JobPlanner` on the driver, and with
        `run(job, task)`, which yields rows of `tasks.task_results.RESULT` on executors."""

    @property
    def retried_in(self) -> Mapping[str, str]:
        """The options of the warehouse whose temporary errors let a task run again."""


class JobDataSource(DataSource):
    """The Spark data source of one job; the option `folder` as for `FusedDataSource`."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        return RESULT_TYPE

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return JobReader(Path(self.options["folder"]))


class JobPartition(InputPartition):
    """One task of a batch."""

    def __init__(self, task: Any) -> None:
        super().__init__(None)
        self.task = task


class JobReader(FusedReader):
    """Plans batches in a Python process of the driver, and runs their tasks on executors."""

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        return [JobPartition(task) for task in self._plan().tasks(start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from streamhouse.paimon.storage.object_store.store_retries import retried_task

        assert isinstance(partition, JobPartition)
        job, task = self._spec(), partition.task
        run = importlib.import_module(job.job_module).run
        return retried_task(job.retried_in, lambda: run(job, task))

    def _spec(self) -> Any:
        job: Job = pickle.loads(self._pickled)
        return job

    def _plan(self) -> Any:
        if self._planner is None:
            job = self._spec()
            self._planner = importlib.import_module(job.job_module).planner(job)
        return self._planner
