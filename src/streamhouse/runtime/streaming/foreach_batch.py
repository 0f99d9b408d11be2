"""`foreachBatch` without PySpark's new session a micro-batch.

PySpark wraps the session of each micro-batch in a new `SparkSession`. That looks up JVM classes by
name, and for each name the JVM searches all jars of its class path: an eighth of the time of
Spark's JVM where eight queries ran.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter


def foreach_batch(
    spark: SparkSession, writer: DataStreamWriter, process: Callable[[DataFrame, int], None]
) -> DataStreamWriter:
    """As `writer.foreachBatch(process)`; the frames of all micro-batches share `spark`."""
    gateway: Any = spark.sparkContext._gateway
    helper = gateway.jvm.org.apache.spark.sql.execution.streaming.sources
    helper.PythonForeachBatchHelper.callForeachBatch(writer._jwrite, _Process(spark, process))
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
    return writer


class _Process:
    """What the JVM calls; an exception goes there and ends the query."""

    def __init__(self, spark: SparkSession, process: Callable[[DataFrame, int], None]) -> None:
        self._spark = spark
        self._process = process

    def call(self, frame: Any, batch: int) -> None:
        self._process(DataFrame(frame, self._spark), batch)

    class Java:
        implements = (
            "org.apache.spark.sql.execution.streaming.sources.PythonForeachBatchFunction",
        )
