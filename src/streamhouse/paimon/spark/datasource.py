"""The Spark data source `paimon`: batch and streaming reads and writes of Paimon tables."""

from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.datasource import Filter as SparkFilter
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxFiles,
    ReadMaxRows,
)
from pyspark.sql.types import StructType

from streamhouse.errors import OptionError
from streamhouse.options import integer
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.changelog.stream_source import PaimonSource
from streamhouse.paimon.read.conditions import Filter, push
from streamhouse.paimon.read.system_tables import SystemTable
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.read.time_travel import pinned, resolve, table_as_of
from streamhouse.paimon.spark.options import DataSourceOptions
from streamhouse.paimon.spark.sink import PaimonStreamWriter, PaimonWriter
from streamhouse.paimon.storage.split_groups import Bound, ScanPartition, scan_partitions
from streamhouse.paimon.write.rows import gathered
from streamhouse.spark import SourceStreamReader, for_spark, spark_schema
from streamhouse.sql.plan import AsOf

SPARK_BATCH_ROWS = 16_384
"""Rows per batch for Spark. The Rust core merges in batches of 1,024, whatever its options are."""


class PaimonDataSource(DataSource):
    """`spark.read`, `readStream`, `write` and `writeStream` with `format("paimon")`.

    Options: `warehouse` (and others of a Paimon catalog, such as `s3.*`), the table as the path.
    `DataSourceOptions` has all of them.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._parsed = DataSourceOptions.parse(options)

    @classmethod
    def name(cls) -> str:
        return "paimon"

    def schema(self) -> StructType:
        parsed = self._parsed
        table = _readable(parsed, AsOf() if parsed.is_stream else parsed.as_of)
        if isinstance(table, SystemTable):
            return spark_schema(table.read_schema(_columns(parsed, table)))
        return spark_schema(table.read_schema(_columns(parsed, table), parsed.row_kind))

    def reader(self, schema: StructType) -> DataSourceReader:
        reader_class = FilteringReader if self._parsed.push_filters else PaimonReader
        return reader_class(self._parsed, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return PaimonStreamReader(self._parsed, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return PaimonWriter(self._parsed, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        return PaimonStreamWriter(self._parsed, schema, overwrite)


class PaimonReader(DataSourceReader):
    """Batch read of one snapshot: the newest, or the one that `snapshot`, `tag`, … select."""

    def __init__(self, options: DataSourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._filter: Filter | None = None
        unused = [key for key in options.scan if key not in ("scan.snapshot-id", "scan.mode")]
        if unused or options.limits:
            bad = [*unused, *options.limits][0]
            raise OptionError(f"option '{bad}' is for streams; leave it out of spark.read")
        self._as_of = options.as_of
        self._schema_id: int | None = None

    def partitions(self) -> Sequence[InputPartition]:
        table = self._table()
        if isinstance(table, SystemTable):
            return [InputPartition(ScanPartition(()))]
        # Executors must read what was planned, not the newest at their time.
        if self._as_of:
            self._as_of = resolve(table, self._as_of)
            at = table_as_of(table, self._as_of)
        else:
            self._schema_id = table.schema_id
            at = pinned(table)
        planned = scan_partitions(at.splits(None, self._filter), self._options.parallelism)
        return list(map(InputPartition, planned)) or [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition.value is None:
            return iter(())
        table = self._table()
        if isinstance(table, SystemTable):
            return for_spark(table.read(_columns(self._options, table)), self._schema)
        batches = self._batches(table, partition.value.groups)
        batch_size = self._options.table.get("read.batch-size", str(SPARK_BATCH_ROWS))
        rows = integer("read.batch-size", batch_size, 1)
        return for_spark(gathered(batches, rows), self._schema)

    def _batches(self, table: Table, groups: Iterable[Sequence[bytes]]) -> Iterator[pa.RecordBatch]:
        for group in groups:
            yield from table.read(
                _columns(self._options, table),
                filter=self._filter,
                splits=group,
                row_kind=self._options.row_kind,
            )

    def _table(self) -> Table | SystemTable:
        table = _readable(self._options, self._as_of)
        if self._schema_id is None or isinstance(table, SystemTable):
            return table
        return table.version(self._schema_id)


class FilteringReader(PaimonReader):
    """Batch read with filter push-down, only for DataFrames that are used once.

    Spark 4.3 keeps the plan of a DataFrame's last filtered query. If the next query over the same
    DataFrame has no filters, Spark answers it from that plan.
    """

    def pushFilters(self, filters: list[SparkFilter]) -> Iterable[SparkFilter]:
        """Push filters down to save reading; returns all of them, so Spark applies them again."""
        table = self._table()
        if isinstance(table, Table):
            self._filter = push(filters, table.arrow_schema)
        return filters


def _columns(options: DataSourceOptions, table: Table | SystemTable) -> Sequence[str]:
    return table.shown_names if options.columns is None else options.columns


def _readable(options: DataSourceOptions, as_of: AsOf) -> Table | SystemTable:
    table = Warehouse(options.catalog).readable(
        options.identifier, as_of, dict(options.table) or None
    )
    if isinstance(table, SystemTable) and options.row_kind:
        raise OptionError(
            f"option 'rowkind': system table {options.identifier} has no row kinds; leave "
            "the option out, or read $audit_log for the row kinds of the table's changes"
        )
    return table


class PaimonStreamReader(SourceStreamReader):
    """Streaming read: a table's snapshot, then its changes, within the options' read limits."""

    def __init__(self, options: DataSourceOptions, schema: StructType) -> None:
        for key in options.travel:
            raise OptionError(
                f"option '{key}' is for spark.read; set where a stream starts with 'scan.mode'"
            )
        self._paimon = PaimonSource(
            options.catalog,
            options.identifier,
            options.columns,
            {**options.scan, **options.table},
            row_kinds=options.row_kind,
        )
        super().__init__(self._paimon, schema, parallelism=options.parallelism)
        self._limits = options.limits

    def getDefaultReadLimit(self) -> ReadLimit:
        for name, value in self._limits.items():
            return _LIMITS[name](value)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        # Spark calls this with `start` once the batch up to it is done. It calls `commit` only with
        # the next batch, and never after the last one.
        self._paimon.store_progress(start)
        return super().latestOffset(start, limit)

    def bounded(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        if isinstance(limit, ReadMaxFiles):
            return self._paimon.bounded_offset(start, Bound("files", limit.max_files))
        if isinstance(limit, ReadMaxBytes):
            return self._paimon.bounded_offset(start, Bound("bytes", limit.max_bytes))
        return super().bounded(start, limit)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        latest = self._paimon.table.latest_snapshot_id()
        return None if latest is None else {"snapshot": latest}


_LIMITS: dict[str, Callable[[int], ReadLimit]] = {
    "maxRowsPerTrigger": ReadMaxRows,
    "maxFilesPerTrigger": ReadMaxFiles,
    "maxBytesPerTrigger": ReadMaxBytes,
}
