"""Wraps sources as Spark data sources, and registers these with a session."""

import importlib
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from streamhouse.errors import SchemaChangeError
from streamhouse.options import integer
from streamhouse.source import ROW_KIND, Offset, Source
from streamhouse.types import mapped

_DATA_SOURCES = (
    ("streamhouse.paimon.spark.datasource", "PaimonDataSource"),
    ("streamhouse.connectors.mysql_cdc.datasource", "MysqlCdcDataSource"),
    ("streamhouse.connectors.kafka.datasource", "KafkaDataSource"),
)

_FROM_SPARK = ("path", "checkpointlocation")
_REGISTERING = threading.Lock()
_PYTHON = "spark.pyspark.python"
_BYTES_OF_BATCH = "spark.sql.execution.arrow.maxBytesPerBatch"
"""Spark's limit on the bytes of an Arrow batch. Unless it has the greatest value, Spark adds up the
sizes of all columns after each row: measured with five columns and five million rows, 5.1 s of CPU
time instead of 1.6 s."""


def register(spark: SparkSession) -> None:
    """Register Streamhouse's data sources with a Spark session, and enable filter push-down.

    Unless the session sets it, this also lifts Spark's limit on the bytes of a batch that it sends
    to Python; only the rows stay limited (`spark.sql.execution.arrow.maxRecordsPerBatch`). The
    Python processes of a local session run this process's interpreter, unless `PYSPARK_PYTHON` or
    `spark.pyspark.python` names another.

    Example: `register(spark)`, then
    `spark.read.format("paimon").option("warehouse", "/data").load("db.orders")`.
    """
    _use_own_python(spark)
    for module, name in _DATA_SOURCES:
        register_source(spark, getattr(importlib.import_module(module), name))
    prepare(spark)


def _use_own_python(spark: SparkSession) -> None:
    """Let a local session's Python processes find the packages of this one.

    Spark's default is the `python3` on the `PATH`. A function that is created or registered from
    now on names the interpreter, so it may be set after the session has started.
    """
    if not isinstance(spark, SparkSession) or "PYSPARK_PYTHON" in os.environ:
        return
    context = spark.sparkContext
    if str(context.master).startswith("local") and not context.getConf().contains(_PYTHON):
        context.pythonExec = sys.executable


def register_source(spark: SparkSession, source: type[DataSource]) -> None:
    """Register a data source whose streams may start concurrently.

    All streams over a data source share a Java map of environment variables. Spark adds entries to
    it whenever a stream starts, and serializes it with each task. PySpark makes it a `HashMap`,
    which concurrent starts may corrupt: then all tasks fail with `OptionalDataException`.
    """
    # A session of Spark Connect has no Java objects here.
    if not isinstance(spark, SparkSession):
        spark.dataSource.register(source)
        return
    context = spark.sparkContext
    assert context._jvm is not None
    with _REGISTERING:
        usual: Any = context.environment
        context.environment = context._jvm.java.util.concurrent.ConcurrentHashMap(usual)
        try:
            spark.dataSource.register(source)
        finally:
            context.environment = usual


def prepare(spark: SparkSession) -> None:
    """Set the Spark options of `register`, without registering data sources."""
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    if _BYTES_OF_BATCH not in spark.conf.getAll:
        spark.conf.set(_BYTES_OF_BATCH, str(2**31 - 1))


def loopback(master: str) -> dict[str, str]:
    """Spark settings that restrict a local session's ports to this machine and its own user.

    By default Spark's driver and block manager listen on the machine's network address and trust
    all connections. With these settings they listen on the loopback interface, and a connection
    needs the secret that Spark generates for each local session. Empty for a cluster's master.
    """
    if not master.startswith("local"):
        return {}
    return {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.authenticate": "true",
    }


def active_session() -> SparkSession:
    """The active session, or a new one with Spark's own settings and those of `loopback`."""
    found = SparkSession.getActiveSession()
    if found is not None:
        return found
    # Starts the JVM, so that SparkConf has the settings of spark-defaults.conf or spark-submit.
    SparkContext._ensure_initialized()
    given = SparkConf()
    for key, value in loopback(given.get("spark.master", "local[*]")).items():
        given.setIfMissing(key, value)
    session: SparkSession = SparkSession.builder.config(conf=given).getOrCreate()
    return session


def spark_schema(schema: pa.Schema) -> StructType:
    """Spark's types for a source's columns; zoneless timestamps are TIMESTAMP_NTZ."""
    plain = pa.schema(
        pa.field(field.name, mapped(field.type, _spark_type), field.nullable) for field in schema
    )
    return from_arrow_schema(plain, prefer_timestamp_ntz=True)


def for_spark(batches: Iterator[pa.RecordBatch], schema: StructType) -> Iterator[pa.RecordBatch]:
    """Cast batches to the Arrow types that Spark expects for `schema` (microseconds, UTC)."""
    wanted = to_arrow_schema(schema, timezone="UTC")
    for batch in batches:
        arrays = [_for_spark(batch.column(field.name), field) for field in wanted]
        yield pa.RecordBatch.from_arrays(arrays, schema=wanted)


def _for_spark(array: pa.Array, field: pa.Field) -> pa.Array:
    if array.type == field.type:
        return array
    plain = pa.types.is_integer(field.type) or pa.types.is_floating(field.type)
    try:
        # Spark has no nanoseconds, so they are truncated; casts to numbers must be exact.
        return array.cast(field.type, safe=plain)
    except pa.ArrowInvalid as error:
        raise SchemaChangeError(
            f"column '{field.name}' has become {array.type} in its table and holds values that the "
            f"running query's {field.type} cannot: start the query again, it goes on where it "
            "stopped"
        ) from error


def _spark_type(kind: pa.DataType) -> pa.DataType:
    return pa.time64("ns") if pa.types.is_time(kind) else kind


def read_limits(options: Mapping[str, str]) -> tuple[int | None, int]:
    """The options `maxRowsPerTrigger` (None: no limit) and `parallelism` (default: all cores)."""
    rows = options.get("maxRowsPerTrigger")
    cores = str(os.cpu_count() or 1)
    return (
        None if rows is None else integer("maxRowsPerTrigger", rows, 1),
        integer("parallelism", options.get("parallelism", cores), 1),
    )


def spelled(options: Mapping[str, str], known: Iterable[str]) -> dict[str, str]:
    """The options without Spark's own, spelled as in `known`; Spark gives them in lower case."""
    spelling = {key.lower(): key for key in known}
    return {
        spelling.get(key.lower(), key): value
        for key, value in options.items()
        if key.lower() not in _FROM_SPARK
    }


class BoundedReader(DataSourceReader):
    """Rows of a source as of the time of planning; `partitions` plans them."""

    def __init__(
        self, source: Source, schema: StructType, partitions: Callable[[], Iterable[Any]]
    ) -> None:
        self._source, self._schema, self._partitions = source, schema, partitions

    def partitions(self) -> Sequence[InputPartition]:
        try:
            return list(map(InputPartition, self._partitions()))
        finally:
            self._source.close()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return for_spark(images(self._source.read(partition.value), self._schema), self._schema)


@runtime_checkable
class Holdable(Protocol):
    """A source that can stop at its current end, for Spark's `availableNow` trigger."""

    def hold(self) -> None: ...


class SourceStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Any `Source` as a Spark stream; columns are matched to `schema` by name.

    Without a `rowkind` column in `schema`, a changelog gives only the row after each change (`+I`,
    `+U`); deleted and replaced rows (`-D`, `-U`) are left out.
    """

    def __init__(
        self,
        source: Source,
        schema: StructType,
        max_rows: int | None = None,
        parallelism: int = 1,
    ) -> None:
        self._source = source
        self._schema = schema
        self._max_rows = max_rows
        self._parallelism = parallelism
        self._target: Offset | None = None
        self._available_now = False

    def initialOffset(self) -> Offset:
        return self._source.initial_offset()

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable() if self._max_rows is None else ReadMaxRows(self._max_rows)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        if self._available_now and not isinstance(self._source, Holdable):
            if self._target is None:
                self._target = self._source.latest_offset(start)
            return self._target
        return self.bounded(start, limit)

    def bounded(self, start: Offset, limit: ReadLimit) -> Offset:
        """The newest offset within a limit."""
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return self._source.latest_offset(start, rows)

    def prepareForTriggerAvailableNow(self) -> None:
        self._available_now = True
        if isinstance(self._source, Holdable):
            self._source.hold()

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        return list(map(InputPartition, self._source.partitions(start, end, self._parallelism)))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        batches = self._source.read(partition.value)
        return for_spark(images(batches, self._schema), self._schema)

    def commit(self, end: Offset) -> None:
        self._source.committed(end)

    def stop(self) -> None:
        self._source.close()


def images(batches: Iterator[pa.RecordBatch], schema: StructType) -> Iterator[pa.RecordBatch]:
    """Leave out `-U` and `-D` rows if `schema` has no `rowkind` column."""
    for batch in batches:
        if ROW_KIND in batch.schema.names and ROW_KIND not in schema.names:
            batch = batch.filter(pc.is_in(batch.column(ROW_KIND), pa.array(["+I", "+U"])))
        yield batch
