"""The Spark data source `mysql-cdc`: streams a table's changes, or reads its current rows once."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, Sequence

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.types import StringType, StructType

from streamhouse.connectors.mysql_cdc.source import MySqlSource
from streamhouse.errors import OptionError
from streamhouse.mysql.options import KNOWN, WHERE
from streamhouse.mysql.passthrough import (
    WITHOUT_EFFECT,
    refusal,
    without_effect,
)
from streamhouse.options import boolean, check_known
from streamhouse.secret_references import resolve_secrets
from streamhouse.source import ROW_KIND
from streamhouse.spark import (
    SourcePartition,
    SourceStreamReader,
    for_spark,
    images,
    read_limits,
    spark_schema,
)

_SPARK_KEYS = ("rowkind", "maxRowsPerTrigger", "parallelism")
_FROM_SPARK = ("path", "checkpointlocation")


class MysqlCdcDataSource(DataSource):
    """`spark.read` and `readStream` with `format("mysql-cdc")`.

    Options: Flink CDC's (`hostname`, `username`, `database-name`, …, see
    `mysql.options`), and `rowkind` (`true` adds a column with `+I`, `-U`,
    `+U`, `-D`), `maxRowsPerTrigger` (about this many rows per micro-batch), `parallelism` (tasks of
    the snapshot; default the number of cores).

    `spark.read` returns the whole table as of one point in time. Without `rowkind`, a stream leaves
    out deletes. A replayed micro-batch has the same rows.

    Raises `OptionError`, `ConnectError`, `TableError`.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        spelling = {key.lower(): key for key in (*KNOWN, *WITHOUT_EFFECT, *_SPARK_KEYS)}
        spelled = {
            spelling.get(key.lower(), key): value
            for key, value in options.items()
            if key.lower() not in _FROM_SPARK
        }
        own = {key: value for key, value in spelled.items() if key not in _SPARK_KEYS}
        unknown = [key for key in own if key not in KNOWN and without_effect(key) is None]
        if not any(refusal(key, own[key]) for key in unknown):
            check_known(unknown, [*KNOWN, *_SPARK_KEYS], WHERE)
        self._source_options = resolve_secrets(own, WHERE)
        self._row_kind = boolean("rowkind", spelled.get("rowkind", "false"))
        self._max_rows, self._parallelism = read_limits(spelled)

    @classmethod
    def name(cls) -> str:
        return WHERE

    def schema(self) -> StructType:
        source = MySqlSource(self._source_options)
        try:
            schema = spark_schema(source.schema)
        finally:
            source.close()
        return schema.add(ROW_KIND, StringType()) if self._row_kind else schema

    def reader(self, schema: StructType) -> DataSourceReader:
        if self._source_options.get("scan.startup.mode", "initial") not in ("initial", "snapshot"):
            raise OptionError(
                "option 'scan.startup.mode' applies only to streams; leave it out of spark.read"
            )
        if self._max_rows is not None:
            raise OptionError(
                "option 'maxRowsPerTrigger' applies only to streams; leave it out of spark.read"
            )
        return MySqlReader(MySqlSource(self._source_options), schema, self._parallelism)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        source = MySqlSource(self._source_options)
        return SourceStreamReader(source, schema, self._max_rows, self._parallelism)


class MySqlReader(DataSourceReader):
    """The whole table as of one point in time."""

    def __init__(self, source: MySqlSource, schema: StructType, parallelism: int) -> None:
        self._source = source
        self._schema = schema
        self._parallelism = parallelism

    def partitions(self) -> Sequence[InputPartition]:
        try:
            partitions = self._source.whole_table(self._parallelism)
        finally:
            self._source.close()
        return [SourcePartition(partition) for partition in partitions]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, SourcePartition)
        return for_spark(images(self._source.read(partition.partition), self._schema), self._schema)
