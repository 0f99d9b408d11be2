"""A query of a pipeline: a Spark streaming query whose batches the driver commits exactly once."""

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from streamhouse.connectors.specs import SourceSpec
from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.paimon.maintenance.backpressure import Backpressure
from streamhouse.runtime.monitoring.metrics import CountedBatch, QueryMetrics
from streamhouse.runtime.query_description import QueryDescription, QueryProgress
from streamhouse.runtime.query_source import source_offset
from streamhouse.runtime.state.checkpoint import Checkpoint
from streamhouse.runtime.state.checkpoint_registry import register_checkpoint
from streamhouse.runtime.streaming.pacing import Pacing, Role
from streamhouse.runtime.streaming.spark_data_source import Job
from streamhouse.runtime.streaming.stream_run import StreamRun
from streamhouse.source import Offset


class QueryFailed(Exception):
    """A continuous query has failed; the text is Spark's, which contains our own error message."""

    def __init__(self, text: str, query: str) -> None:
        super().__init__(text)
        self.query = query
        """The `part` of the failed query's description."""


@contextmanager
def acquired(checkpoint: Checkpoint) -> Iterator[None]:
    """Lock a checkpoint for a query; releases it again if the query cannot be made."""
    checkpoint.acquire()
    try:
        yield
    except BaseException:
        checkpoint.release()
        raise


class JobQuery(ABC):
    """Runs a `Job` with a checkpoint, as a query of a `Pipeline`; on the driver.

    A batch that was interrupted at any point runs again with the same input, so `commit` must be
    exactly-once.
    """

    spec: Job
    """It plans and runs the tasks."""
    pacing = Pacing(1)
    role = Role.SOURCE
    pressure: Backpressure | None = None
    """Waits after a batch for compaction that is behind; None: it does not."""

    def __init__(self, checkpoint: Checkpoint, description: QueryDescription) -> None:
        """`checkpoint` is locked; see `acquired`."""
        self.description = description
        self.metrics = QueryMetrics()
        logs = checkpoint.logs
        replayed = logs.last_logged() <= logs.last_committed()
        self.progress = QueryProgress(logs.last_offset(), replayed)
        self.checkpoint = checkpoint
        register_checkpoint(description.address.warehouse, checkpoint)
        self._run = StreamRun(checkpoint.run_folder())

    # -- what differs between the kinds of queries

    @property
    @abstractmethod
    def targets(self) -> list[TableAddress]:
        """The Paimon tables that it is there to write."""

    @property
    def tables(self) -> list[str]:
        """The names of all tables that it writes, in its target's warehouse."""
        return [target.identifier for target in self.targets]

    @abstractmethod
    def prepare(self) -> None:
        """Check the sources, create what is missing, clean up after a crash; needs no Spark."""

    @abstractmethod
    def commit(self, frame: DataFrame) -> CountedBatch | None:
        """Run the tasks of a batch, and commit what they wrote; None if there were none."""

    @abstractmethod
    def tick(self) -> None:
        """Called often while the query runs: move consumers if due, check what runs beside."""

    def pause(self, took_s: float) -> None:
        """Pause after a batch of `took_s` seconds, at most until the query is to stop."""
        return

    def stopped(self) -> None:
        """Called once the query, which had been started, begins no further batch."""
        return

    def release(self) -> None:
        """Release what the query holds besides its progress and checkpoint; called in any case."""
        return

    def use_cluster(self) -> None:
        """Prepare for tasks on other hosts than the driver's; call it before `start`."""
        return

    # -- what is the same: a `SharingSource`

    @property
    def source_spec(self) -> SourceSpec | None:
        """The source, if a pipeline can share it."""
        return self.description.source

    @property
    def checkpoint_path(self) -> Path:
        """The folder of the checkpoint."""
        return self.checkpoint.path

    @property
    def last_offset(self) -> Offset:
        """The source's offset after the last committed batch; `{}` before the first."""
        return source_offset(self.progress.last_offset)

    def use_shared(self, folder: Path) -> None:
        """Let the source read the folder that a shared reader fills; call it before `start`."""
        return

    def start(self, spark: SparkSession) -> None:
        """Start the query; call `prepare` first.

        A batch begins as soon as the previous one has ended and there is something to read, or
        after `pause`. There is no trigger interval.
        """
        self.metrics.begin()
        name, path = self.description.name, self.checkpoint.path
        self._run.start(spark, self.spec, name, path, self._batch)

    def _batch(self, frame: DataFrame, spark_batch: int) -> None:
        began = time.monotonic()
        self.checkpoint.logs.sync(spark_batch)
        batch = self.commit(frame)
        if batch is None:
            return
        self.metrics.count_batch(batch, time.monotonic() - began)
        if self.pressure is not None:
            for table, count in batch.files.items():
                self.pressure.added(table, count)
            for table in batch.files:
                self.pressure.wait(table, lambda: self._run.is_stopping)
        self.pause(time.monotonic() - began)

    def check(self) -> None:
        """Raise `QueryFailed` if the query has failed; a call into Spark's JVM."""
        failure = self._run.failure()
        if failure is not None:
            raise QueryFailed(failure, self.description.part)

    def request_stop(self) -> None:
        """Let the query start no further batch; does not wait."""
        self._run.request_stop()

    @property
    def is_stopping(self) -> bool:
        """Whether `request_stop` was called."""
        return self._run.is_stopping

    @property
    def has_stopped(self) -> bool:
        """After `request_stop`: whether no batch runs any more."""
        return self._run.has_stopped

    def stop(self, timeout_s: float = 30.0) -> None:
        """Stop between two batches; waits up to `timeout_s` seconds for the batch."""
        try:
            if self._run.stop(timeout_s):
                self.stopped()
        finally:
            self.release()
            self.progress.close()
            self._run.close()
            self.checkpoint.release()
