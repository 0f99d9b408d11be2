"""Sources as Spark data sources: what is common to all of them, and their registration."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from streamhouse.errors import SchemaChangeError
from streamhouse.source import ROW_KIND, Offset, Source

_DATA_SOURCES = (
    ("streamhouse.paimon.spark.datasource", "PaimonDataSource"),
    ("streamhouse.connectors.mysql_cdc.datasource", "MysqlCdcDataSource"),
)

_BYTES_OF_BATCH = "spark.sql.execution.arrow.maxBytesPerBatch"
"""With any bound but the greatest, Spark adds up the sizes of all columns after each row: measured
on five columns, 5.1 s of processor time for five million rows instead of 1.6."""


def register(spark: SparkSession) -> None:
    """Make Streamhouse's data sources known to a Spark session, and push-down of filters to them.

    Unless the session says otherwise, Spark no longer bounds the bytes of a batch that it hands to
    Python, only its rows (`spark.sql.execution.arrow.maxRecordsPerBatch`).

    Example: `register(spark)`, then
    `spark.read.format("paimon").option("warehouse", "/data").load("db.orders")`.
    """
    for module, name in _DATA_SOURCES:
        if importlib.util.find_spec(module) is not None:
            source: type[DataSource] = getattr(importlib.import_module(module), name)
            spark.dataSource.register(source)
    prepare(spark)


def prepare(spark: SparkSession) -> None:
    """Set what `register` sets."""
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    if _BYTES_OF_BATCH not in spark.conf.getAll:
        spark.conf.set(_BYTES_OF_BATCH, str(2**31 - 1))


def loopback(master: str) -> dict[str, str]:
    """Spark settings that keep a local session's ports to this machine and to its own user.

    By default Spark's driver and block manager listen on the address of the network, and trust
    whoever connects. With these they listen on the loopback interface, and a connection needs the
    secret that Spark makes for each local session. Empty for a cluster, whose own settings hold.
    """
    if not master.startswith("local"):
        return {}
    return {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.authenticate": "true",
    }


def active_session() -> SparkSession:
    """The active session, or else a new one with Spark's own settings and those of `loopback`."""
    found = SparkSession.getActiveSession()
    if found is not None:
        return found
    # Reads spark-defaults.conf, or what spark-submit was given.
    SparkContext._ensure_initialized()
    given = SparkConf()
    ours = loopback(given.get("spark.master", "local[*]"))
    for key, value in ours.items():
        given.setIfMissing(key, value)
    session: SparkSession = SparkSession.builder.config(conf=given).getOrCreate()
    return session


def spark_schema(schema: pa.Schema) -> StructType:
    """Spark's types for a source's columns; zoneless timestamps are TIMESTAMP_NTZ."""
    plain = pa.schema(pa.field(one.name, _spark_type(one.type), one.nullable) for one in schema)
    return from_arrow_schema(plain, prefer_timestamp_ntz=True)


def for_spark(batches: Iterator[pa.RecordBatch], schema: StructType) -> Iterator[pa.RecordBatch]:
    """Batches in the Arrow types that Spark takes for these columns (microseconds, UTC)."""
    wanted = to_arrow_schema(schema, timezone="UTC")
    for batch in batches:
        arrays = [_for_spark(batch.column(field.name), field) for field in wanted]
        yield pa.RecordBatch.from_arrays(arrays, schema=wanted)


def _for_spark(array: pa.Array, field: pa.Field) -> pa.Array:
    if array.type == field.type:
        return array
    plain = pa.types.is_integer(field.type) or pa.types.is_floating(field.type)
    try:
        # Nanoseconds, which Spark does not have, are cut off; no other value may be.
        return array.cast(field.type, safe=plain)
    except pa.ArrowInvalid as error:
        raise SchemaChangeError(
            f"column '{field.name}' has become {array.type} in its table and holds values that the "
            f"running query's {field.type} cannot: start the query again, it goes on where it "
            "stopped"
        ) from error


def _spark_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_time(kind):
        return pa.time64("ns")
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_spark_type(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_spark_type(field.type)) for field in kind])
    return kind


@dataclass
class SourcePartition(InputPartition):
    """One piece of a source's range."""

    piece: Any

    def __init__(self, piece: Any) -> None:
        super().__init__(None)
        self.piece = piece


@runtime_checkable
class Holdable(Protocol):
    """A source that can be told to go no further than what there is now."""

    def hold(self) -> None: ...


class SourceStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Any `Source` as a Spark stream; columns of `schema` are taken by name.

    Without a `rowkind` column in `schema`, a changelog gives the rows that are there after each
    change: `+I` and `+U`; what was deleted or replaced is left out.
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
        pieces = self._source.partitions(start, end, self._parallelism)
        return [SourcePartition(piece) for piece in pieces]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, SourcePartition)
        batches = self._source.read(partition.piece)
        return for_spark(images(batches, self._schema), self._schema)

    def commit(self, end: Offset) -> None:
        self._source.committed(end)

    def stop(self) -> None:
        self._source.close()


def images(batches: Iterator[pa.RecordBatch], schema: StructType) -> Iterator[pa.RecordBatch]:
    """Only the rows that are there afterwards, where nobody asked for row kinds."""
    for batch in batches:
        if ROW_KIND in batch.schema.names and ROW_KIND not in schema.names:
            batch = batch.filter(pc.is_in(batch.column(ROW_KIND), pa.array(["+I", "+U"])))
        yield batch
