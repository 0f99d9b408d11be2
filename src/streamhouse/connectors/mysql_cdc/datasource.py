"""The Spark data source `mysql-cdc`: streams a table's changes, or reads its current rows once."""

from collections.abc import MutableMapping
from contextlib import closing
from functools import partial

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StringType, StructType

from streamhouse.connectors.mysql_cdc.source import MySqlSource
from streamhouse.errors import OptionError
from streamhouse.mysql.options import KNOWN, WHERE, WITHOUT_EFFECT, refusal, without_effect
from streamhouse.options import boolean, check_known
from streamhouse.secret_references import resolve_secrets
from streamhouse.source import ROW_KIND
from streamhouse.spark import BoundedReader, SourceStreamReader, read_limits, spark_schema, spelled

_SPARK_KEYS = ("rowkind", "maxRowsPerTrigger", "parallelism")


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
        given = spelled(options, (*KNOWN, *WITHOUT_EFFECT, *_SPARK_KEYS))
        own = {key: value for key, value in given.items() if key not in _SPARK_KEYS}
        unknown = [key for key in own if key not in KNOWN and without_effect(key) is None]
        if not any(refusal(key, own[key]) for key in unknown):
            check_known(unknown, [*KNOWN, *_SPARK_KEYS], WHERE)
        self._source_options = resolve_secrets(own, WHERE)
        self._row_kind = boolean("rowkind", given.get("rowkind", "false"))
        self._max_rows, self._parallelism = read_limits(given)

    @classmethod
    def name(cls) -> str:
        return WHERE

    def schema(self) -> StructType:
        with closing(MySqlSource(self._source_options)) as source:
            schema = spark_schema(source.schema)
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
        source = MySqlSource(self._source_options)
        return BoundedReader(source, schema, partial(source.whole_table, self._parallelism))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        source = MySqlSource(self._source_options)
        return SourceStreamReader(source, schema, self._max_rows, self._parallelism)
