"""The fused Spark data source of a sync; see `runtime.streaming.spark_data_source`."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from streamhouse.runtime.streaming.spark_data_source import FusedReader
from streamhouse.runtime.streaming.tasks.result_types import RESULT_TYPE

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from streamhouse.runtime.sync.micro_batch.spec import SyncSpec, SyncTaskInput
    from streamhouse.source import Offset

FORMAT = "streamhouse-sync"


class SyncDataSource(DataSource):
    """The Spark data source of one sync; the option `folder` as for `FusedDataSource`."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        return RESULT_TYPE

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return SyncReader(Path(self.options["folder"]))


class SyncPartition(InputPartition):
    """One task of a batch."""

    def __init__(self, task: SyncTaskInput) -> None:
        super().__init__(None)
        self.task = task


class SyncReader(FusedReader):
    """Plans batches in a Python process of the driver, and runs `SyncTask` on executors."""

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        return [SyncPartition(task) for task in self._plan().tasks(start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from streamhouse.paimon.storage.object_store.store_retries import retried_task
        from streamhouse.runtime.sync.micro_batch.task import SyncTask

        assert isinstance(partition, SyncPartition)
        spec, task = self._spec(), partition.task
        return retried_task(spec.options.warehouse, lambda: SyncTask(spec, task).run())

    def _spec(self) -> Any:
        spec: SyncSpec = pickle.loads(self._pickled)
        return spec

    def _plan(self) -> Any:
        if self._planner is None:
            from streamhouse.runtime.sync.micro_batch.batch_planner import SyncPlanner

            planner: Any = SyncPlanner(self._spec())
            self._planner = planner
        return self._planner
