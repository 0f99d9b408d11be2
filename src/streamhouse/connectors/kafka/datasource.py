"""The Spark data source `kafka-records`: records of topics as rows, as a stream or once."""

from collections.abc import MutableMapping
from functools import partial

from pyspark.errors import PySparkTypeError
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import DataType, StructType

from streamhouse import types
from streamhouse.connectors.bad_records import FAIL
from streamhouse.connectors.base import partitions_to_end
from streamhouse.connectors.kafka.options import KafkaOptions, known_keys, parse
from streamhouse.connectors.kafka.records import RecordLayout
from streamhouse.connectors.kafka.source import KafkaSource
from streamhouse.errors import OptionError
from streamhouse.secret_references import resolve_secrets
from streamhouse.source import ROW_KIND
from streamhouse.spark import BoundedReader, SourceStreamReader, read_limits, spelled
from streamhouse.sql.plan import Column

WHERE = "kafka-records"
_METADATA = "metadata."
_SPARK_KEYS = ("maxRowsPerTrigger", "parallelism")


class KafkaDataSource(DataSource):
    """`spark.read` and `readStream` with `format("kafka-records")` and a `schema`.

    Options: those of the `kafka` connector, except that a bad record is always an error;
    `metadata.<column>` (the column holds that metadata key, such as `offset`), `maxRowsPerTrigger`
    (about this many rows per micro-batch), `parallelism` (tasks; default the number of cores). A
    column `rowkind` of the schema has the row kind.

    `spark.read` returns the records from `scan.startup.mode` (default: the beginning) to the end at
    that point in time. A replayed micro-batch has the same rows. Raises `OptionError`,
    `ConnectError`, `TableError`, and `DataLossError` if records were deleted unread.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        given = spelled(options, (*known_keys(), *_SPARK_KEYS))
        self._metadata = {
            key.removeprefix(_METADATA).lower(): value
            for key, value in given.items()
            if key.startswith(_METADATA)
        }
        own = {
            key: value
            for key, value in given.items()
            if key not in _SPARK_KEYS and not key.startswith(_METADATA)
        }
        self._options = parse(resolve_secrets(own, WHERE), WHERE)
        if self._options.bad_records.mode != FAIL:
            raise OptionError(f"{WHERE}: 'bad-records' can only be '{FAIL}' here; leave it out")
        self._max_rows, self._parallelism = read_limits(given)

    @classmethod
    def name(cls) -> str:
        return WHERE

    def schema(self) -> StructType:
        raise OptionError(
            f"{WHERE} needs the columns of the records: call .schema('id BIGINT, name STRING') "
            "before .load()"
        )

    def reader(self, schema: StructType) -> DataSourceReader:
        source = self._source(self._options.for_bounded_read(), schema)
        if source.changelog:
            raise OptionError(f"{WHERE}: records of changes can only be read as a stream")
        return BoundedReader(source, schema, partial(partitions_to_end, source, self._parallelism))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        source = self._source(self._options, schema)
        return SourceStreamReader(source, schema, self._max_rows, self._parallelism)

    def _source(self, options: KafkaOptions, schema: StructType) -> KafkaSource:
        columns = [
            Column(
                field.name,
                flink_type(field.dataType, field.name),
                field.nullable,
                metadata=self._metadata.get(field.name.lower()),
            )
            for field in schema.fields
            if field.name != ROW_KIND
        ]
        return KafkaSource(options, RecordLayout.of(columns, options, WHERE))


def flink_type(kind: DataType, name: str) -> str:
    """Flink's type for a Spark type; `OptionError` if there is none."""
    try:
        return types.flink_type(to_arrow_type(kind, timezone="UTC"))
    except PySparkTypeError:
        raise OptionError(
            f"{WHERE}: column '{name}': type {kind.simpleString()} is not supported"
        ) from None
