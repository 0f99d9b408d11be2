"""The Spark data source of all queries: a stream whose read tasks also compute and write.

The tasks return only commit messages to Spark, so a batch is one small Spark job, however much it
reads. Spark triggers the batches, logs their offsets, and schedules and retries the tasks; the
driver commits. A query's specification, its `Job`, plans and runs the tasks.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Protocol

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType

if TYPE_CHECKING:
    import pyarrow as pa

    from streamhouse.runtime.query_description import Planner
    from streamhouse.source import Offset

# Spark starts four Python processes per query, one after the other, and each imports this module.
# So imports that only one of them needs are inside functions.

FORMAT = "streamhouse-query"
SPEC = "spec.pickle"
"""The query's `Job`, in its folder."""
STOP_REQUEST = "stop-request"
"""A file in the query's folder: the driver requests that the reader plans no further batch."""
STOPPED = "stopped"
"""The reader's answer file: no batch runs or will run. Spark requests offsets only between two
batches."""
RESULT_TYPE = StructType(
    [
        StructField("table", StringType()),
        StructField("message", BinaryType()),
        StructField("rows", BinaryType()),
        StructField("rows_file", StringType()),
        StructField("report", StringType()),
        StructField("task", IntegerType()),
        StructField("first_row", LongType()),
        StructField("block", BinaryType()),
    ]
)
"""Commit messages and reports; see `task_protocol.RESULT`. It is not a DDL text: a new JVM takes
0.15 s of processor time to parse its first one."""
_WARM_TASKS = 2
_IDLE_WAIT_S = 0.25
_IDLE_STEP_S = 0.01


class Job(Protocol):
    """The specification of a job, picklable; `max_rows`: how many rows a batch may have."""

    @property
    def max_rows(self) -> int | None: ...

    # By name: the driver's planner does not need what tasks import, nor the reverse.
    @property
    def planner(self) -> str:
        """`module:name` of what makes the `Planner` of a job and its folder, on the driver."""

    @property
    def task(self) -> str:
        """`module:name` of what runs a task of a job, on executors; yields rows of the schema."""

    @property
    def retried_in(self) -> Mapping[str, str]:
        """The options of the warehouse whose temporary errors let a task run again."""


class JobDataSource(DataSource):
    """The Spark data source of one job.

    The option `folder` is the folder with the job's `SPEC` file, and later its `STOP_REQUEST` and
    `STOPPED` files.
    """

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        return RESULT_TYPE

    def reader(self, schema: StructType) -> DataSourceReader:
        return EmptyReader()

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return JobReader(Path(self.options["folder"]))


class EmptyReader(DataSourceReader):
    """Reads no rows in a batch query, which starts the Python processes that a stream needs."""

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(number) for number in range(_WARM_TASKS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return iter(())


class JobPartition(InputPartition):
    """One task of a batch."""

    def __init__(self, task: Any) -> None:
        super().__init__(None)
        self.task = task


class JobReader(DataSourceStreamReader):
    """Plans batches in a Python process of the driver, and runs their tasks on executors."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._pickled = (folder / SPEC).read_bytes()
        self._planner: Planner | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_planner": None}

    def initialOffset(self) -> Offset:
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:
        rows = self._spec().max_rows
        return ReadAllAvailable() if rows is None else ReadMaxRows(rows)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        from streamhouse.paimon.storage.object_store.store_retries import retried

        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        deadline = time.monotonic() + _IDLE_WAIT_S
        while not (self._folder / STOP_REQUEST).exists():
            end = retried(lambda: self._plan().latest_offset(start, rows))
            if end != start or time.monotonic() >= deadline:
                return end
            time.sleep(_IDLE_STEP_S)
        (self._folder / STOPPED).touch()
        return start

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        from streamhouse.paimon.storage.object_store.store_retries import retried

        return [JobPartition(task) for task in retried(lambda: self._plan().tasks(start, end))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from streamhouse.paimon.storage.object_store.store_retries import retried_task

        assert isinstance(partition, JobPartition)
        job, task = self._spec(), partition.task
        return retried_task(job.retried_in, lambda: resolve_name(job.task)(job, task))

    def commit(self, end: Offset) -> None:
        self._plan().committed(end)

    def stop(self) -> None:
        if self._planner is not None:
            self._planner.close()

    def _spec(self) -> Job:
        job: Job = pickle.loads(self._pickled)
        return job

    def _plan(self) -> Planner:
        if self._planner is None:
            job = self._spec()
            self._planner = resolve_name(job.planner)(job, self._folder)
        return self._planner
