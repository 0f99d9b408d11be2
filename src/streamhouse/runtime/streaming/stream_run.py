"""One run of a Spark streaming query over a fused data source; it stops between two batches."""

import pickle
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from streamhouse.background import wait_until
from streamhouse.runtime.streaming.spark_data_source import FORMAT, SPEC, STOP_REQUEST, STOPPED, Job


class StreamRun:
    """Starts and stops a Spark streaming query; driver only.

    `folder`: of this run, which the reader in Spark's Python process reads, too.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._stopping = threading.Event()
        self._query: StreamingQuery | None = None

    @property
    def started(self) -> bool:
        """Whether the query has been started, and not stopped since."""
        return self._query is not None

    @property
    def is_stopping(self) -> bool:
        """Whether no further batch is to begin."""
        return self._stopping.is_set()

    def start(
        self,
        spark: SparkSession,
        job: Job,
        name: str,
        checkpoint: Path,
        commit: Callable[[DataFrame, int], None],
    ) -> None:
        """Start the query over the data source of a job.

        A batch begins as soon as the previous one has ended and there is something to read. There
        is no trigger interval.
        """
        (self.folder / SPEC).write_bytes(pickle.dumps(job))
        stream = spark.readStream.format(FORMAT).option("folder", str(self.folder))
        writer = _foreach_batch(spark, stream.load().writeStream, commit)
        self._query = (
            writer.queryName(name)
            .option("checkpointLocation", str(checkpoint))
            .trigger(processingTime="0 seconds")
            .start()
        )

    def failure(self) -> str | None:
        """The text of the error that ended the query, if any; a call into Spark's JVM."""
        error = None if self._query is None else self._query.exception()
        # Read the text now: it comes from the JVM, which may be gone later.
        return None if error is None else str(error)

    def pause(self, seconds: float) -> None:
        """Wait between two batches, at most until `request_stop`."""
        self._stopping.wait(seconds)

    def request_stop(self) -> None:
        """Let the query start no further batch; does not wait."""
        self._stopping.set()
        if self._query is not None:
            (self.folder / STOP_REQUEST).touch()

    @property
    def has_stopped(self) -> bool:
        """After `request_stop`: whether no batch runs any more; a call into Spark's JVM."""
        query = self._query
        return query is None or (self.folder / STOPPED).exists() or not query.isActive

    def stop(self, timeout_s: float) -> bool:
        """Stop between two batches, since a query stopped inside a batch fails with long errors.

        Waits up to `timeout_s` seconds for the batch. Returns whether the query had been started.
        """
        query = self._query
        if query is None:
            return False
        try:
            self.request_stop()
            # The reader confirms it, or the query has ended.
            wait_until(lambda: self.has_stopped, timeout_s, 0.01)
            query.stop()
        finally:
            self._query = None
        return True

    def close(self) -> None:
        """Delete the folder."""
        shutil.rmtree(self.folder, ignore_errors=True)


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
