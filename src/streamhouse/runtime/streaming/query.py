"""A query of a pipeline: a Spark streaming query whose batches the driver commits exactly once."""

import pickle
import shutil
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from streamhouse.background import wait_until
from streamhouse.connectors.specs import SourceSpec
from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.paimon.maintenance.backpressure import Backpressure
from streamhouse.runtime.monitoring.metrics import CountedBatch, QueryMetrics
from streamhouse.runtime.query_description import QueryDescription, QueryProgress
from streamhouse.runtime.query_source import source_offset
from streamhouse.runtime.state.checkpoint import Checkpoint
from streamhouse.runtime.state.checkpoint_registry import register_checkpoint
from streamhouse.runtime.streaming.pacing import Pacing, Role
from streamhouse.runtime.streaming.spark_data_source import FORMAT, SPEC, STOP_REQUEST, STOPPED, Job
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
        self.run_folder = checkpoint.run_folder()
        """The folder of this run, which the reader in Spark's Python process reads, too."""
        self._stopping = threading.Event()
        self._stream: StreamingQuery | None = None

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

    @property
    def started(self) -> bool:
        """Whether the query has been started, and not stopped since."""
        return self._stream is not None

    def start(self, spark: SparkSession) -> None:
        """Start the query; call `prepare` first.

        A batch begins as soon as the previous one has ended and there is something to read, or
        after `pause`. There is no trigger interval.
        """
        self.metrics.begin()
        (self.run_folder / SPEC).write_bytes(pickle.dumps(self.spec))
        name = f"{self.description.pipeline}: {self.description.part}"
        self._stream = started_stream(
            spark, self.run_folder, name, self.checkpoint.path, self.run_batch
        )

    def run_batch(self, frame: DataFrame, spark_batch: int) -> None:
        """Run the tasks of a batch that Spark has planned, commit it, then pause."""
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
                self.pressure.wait(table, lambda: self.is_stopping)
        self.pause(time.monotonic() - began)

    def check(self) -> None:
        """Raise `QueryFailed` if the query has failed; a call into Spark's JVM."""
        error = None if self._stream is None else self._stream.exception()
        if error is not None:
            # Read the text now: it comes from the JVM, which may be gone later.
            raise QueryFailed(str(error), self.description.part)

    def wait(self, seconds: float) -> None:
        """Wait between two batches, at most until `request_stop`."""
        self._stopping.wait(seconds)

    def request_stop(self) -> None:
        """Let the query start no further batch; does not wait."""
        self._stopping.set()
        if self._stream is not None:
            (self.run_folder / STOP_REQUEST).touch()

    @property
    def is_stopping(self) -> bool:
        """Whether no further batch is to begin."""
        return self._stopping.is_set()

    @property
    def has_stopped(self) -> bool:
        """After `request_stop`: whether no batch runs any more; a call into Spark's JVM."""
        stream = self._stream
        return stream is None or (self.run_folder / STOPPED).exists() or not stream.isActive

    def stop(self, timeout_s: float = 30.0) -> None:
        """Stop between two batches, since a query stopped inside a batch fails with long errors.

        Waits up to `timeout_s` seconds for the batch.
        """
        try:
            if self._stream is not None:
                self.request_stop()
                # The reader confirms it, or the query has ended.
                wait_until(lambda: self.has_stopped, timeout_s, 0.01)
                self._stream.stop()
                self.stopped()
        finally:
            self._stream = None
            self.release()
            self.progress.close()
            shutil.rmtree(self.run_folder, ignore_errors=True)
            self.checkpoint.release()


def started_stream(
    spark: SparkSession,
    folder: Path,
    name: str,
    checkpoint: Path,
    process: Callable[[DataFrame, int], None],
) -> StreamingQuery:
    """Start a Spark streaming query over the data source of the `Job` in a run folder."""
    stream = spark.readStream.format(FORMAT).option("folder", str(folder))
    writer = _foreach_batch(spark, stream.load().writeStream, process)
    return (
        writer.queryName(name)
        .option("checkpointLocation", str(checkpoint))
        .trigger(processingTime="0 seconds")
        .start()
    )


def _foreach_batch(
    spark: SparkSession, writer: DataStreamWriter, process: Callable[[DataFrame, int], None]
) -> DataStreamWriter:
    """As `writer.foreachBatch(process)`, but the frames of all micro-batches share `spark`.

    PySpark wraps the session of each micro-batch in a new `SparkSession`. This looks up JVM classes
    by name, and for each name the JVM searches all jars of its class path. With eight queries it
    took an eighth of the time of Spark's JVM.
    """
    gateway: Any = spark.sparkContext._gateway
    helper = gateway.jvm.org.apache.spark.sql.execution.streaming.sources
    helper.PythonForeachBatchHelper.callForeachBatch(writer._jwrite, _Process(spark, process))
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
    return writer


class _Process:
    """The py4j callback of the JVM; an exception is passed to the JVM and ends the query."""

    def __init__(self, spark: SparkSession, process: Callable[[DataFrame, int], None]) -> None:
        self._spark = spark
        self._process = process

    def call(self, frame: Any, batch: int) -> None:
        self._process(DataFrame(frame, self._spark), batch)

    class Java:
        implements = (
            "org.apache.spark.sql.execution.streaming.sources.PythonForeachBatchFunction",
        )
