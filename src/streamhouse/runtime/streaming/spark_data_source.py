"""The fused Spark data source: a stream whose read tasks also join, aggregate and write.

The tasks return only commit messages to Spark, so a batch is one small Spark job, however much it
reads. Spark triggers the batches, logs their offsets, and schedules and retries the tasks; the
driver commits.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows

from streamhouse.runtime.streaming.tasks.result_types import BLOCKS_TYPE, RESULT_TYPE

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from streamhouse.runtime.query_spec import QuerySpec
    from streamhouse.runtime.streaming.batch_planner import BatchPlanner
    from streamhouse.runtime.streaming.tasks.row_files import RowFiles
    from streamhouse.runtime.streaming.tasks.task_input import SplitsInput
    from streamhouse.source import Offset

# Spark starts four Python processes per query, one after the other, and each imports this module.
# So imports that only one of them needs are inside functions.

FORMAT = "streamhouse-query"
SPEC = "spec.pickle"
"""The query's `QuerySpec`, in its folder."""
STOP_REQUEST = "stop-request"
"""A file in the query's folder: the driver requests that the reader plans no further batch."""
STOPPED = "stopped"
"""The reader's answer file: no batch runs or will run. Spark requests offsets only between two
batches."""
_WARM_TASKS = 2
_IDLE_WAIT_S = 0.25
_IDLE_STEP_S = 0.01


class FusedDataSource(DataSource):
    """The Spark data source of one query.

    The option `folder` is the folder with the query's `SPEC` file, and later its `STOP_REQUEST`
    and `STOPPED` files. With the option `shuffled`, tasks return rows for other tasks
    (`runtime.streaming.shuffle`) instead of commit messages, unless the batch is small
    (`runtime.streaming.shuffle.small_batches`).
    """

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        if self.options.get("shuffled") == "true":
            return BLOCKS_TYPE
        return RESULT_TYPE

    def reader(self, schema: StructType) -> DataSourceReader:
        return EmptyReader()

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return FusedReader(Path(self.options["folder"]))


class EmptyReader(DataSourceReader):
    """Reads no rows in a batch query, which starts the Python processes that a stream needs."""

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(number) for number in range(_WARM_TASKS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return iter(())


class TaskPartition(InputPartition):
    """One task of a batch; `shuffled`: its rows are sent to other tasks, which join them.

    `files` are for rows that it sends to the driver.
    """

    def __init__(self, task: SplitsInput, shuffled: bool, files: RowFiles) -> None:
        super().__init__(None)
        self.task, self.shuffled, self.files = task, shuffled, files


class FusedReader(DataSourceStreamReader):
    """Plans batches in a Python process of the driver, and runs `Task` on executors."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._pickled = (folder / SPEC).read_bytes()
        self._planner: BatchPlanner | None = None

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
        from streamhouse.runtime.streaming.shuffle.small_batches import is_small_batch
        from streamhouse.runtime.streaming.tasks.row_files import RowFiles

        spec = self._spec()
        small = spec.shuffle is not None and is_small_batch(self._folder, int(end.get("batch", -1)))
        shuffled = spec.shuffle is not None and not small
        tasks = retried(lambda: self._plan().tasks(start, end, single=small))
        files = RowFiles.at(self._folder)
        return [TaskPartition(task, shuffled, files) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from streamhouse.paimon.storage.object_store.store_retries import retried_task
        from streamhouse.runtime.streaming.tasks.ordered_task import task_of

        assert isinstance(partition, TaskPartition)
        spec = self._spec()
        # A task is not repeated if it has written to another sink, or queried a server.
        repeatable = spec.sink is None and spec.lookup_journal is None
        warehouse = spec.target.warehouse if repeatable else {}
        if spec.shuffle is None:
            task = partition.task
            return retried_task(warehouse, lambda: task_of(spec, task, partition.files).run())
        from streamhouse.runtime.streaming.shuffle.read_task import ReadTask, UnshuffledTask

        if partition.shuffled:
            return retried_task(warehouse, lambda: ReadTask(spec, partition.task).run())
        return retried_task(
            warehouse, lambda: UnshuffledTask(spec, partition.task, partition.files).run()
        )

    def commit(self, end: Offset) -> None:
        self._plan().committed(end)

    def stop(self) -> None:
        if self._planner is not None:
            self._planner.close()

    def _spec(self) -> QuerySpec:
        spec: QuerySpec = pickle.loads(self._pickled)
        return spec

    def _plan(self) -> BatchPlanner:
        if self._planner is None:
            from streamhouse.runtime.streaming.batch_planner import BatchPlanner

            self._planner = BatchPlanner(self._spec(), self._folder)
        return self._planner
