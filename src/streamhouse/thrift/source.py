"""The Spark data source `streamhouse`, which reads one table or view of a served warehouse.

Each connection to the Thrift server has a Spark session of its own, and a Python data source that
a session registers is known to that session only. Sources that Spark discovers are known to all
sessions: the classes `DefaultSource` of modules named `pyspark_…` on the Python path, such as the
one in the folder `on_path`. The catalog's options are passed in an environment variable, since all
clients can read the options of a table, and some are secret.
"""

import json
import os
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceWriter, InputPartition
from pyspark.sql.types import StructType

from streamhouse.errors import OptionError, TableError
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.spark.datasource import PaimonReader
from streamhouse.paimon.spark.options import DataSourceOptions
from streamhouse.serve.views.served_view import is_name
from streamhouse.serve.views.shown_table import ShownTable
from streamhouse.spark import for_spark, spark_schema
from streamhouse.types import mapped

FORMAT = "streamhouse"
SERVED = "served"
"""The option that names the table or view, as `database.table`."""

CATALOG_VARIABLE = "STREAMHOUSE_SERVED_CATALOG"
_ON_PATH = Path(__file__).parent / "on_path"


def make_discoverable(catalog: Mapping[str, str]) -> None:
    """Let all sessions of the Spark that this process starts next discover the source."""
    path = [str(_ON_PATH), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(path)
    os.environ[CATALOG_VARIABLE] = json.dumps(dict(catalog))


def served_schema(warehouse: Warehouse, name: str) -> StructType:
    """The Spark schema of a table or view; raises `TableError` or `SqlError` if it has none.

    A view's query is planned, but not run. TIME becomes text, since Spark's catalog has that type
    only in sessions that enable it.
    """
    from streamhouse.serve.feeds.view_feed import open_sql_view

    if _is_table(warehouse, name):
        return spark_schema(_without_times(ShownTable(warehouse.table(name)).read_schema()))
    feed = open_sql_view(warehouse, name)
    if feed is None:
        raise TableError(f"table or view '{name}' no longer exists")
    try:
        return spark_schema(_without_times(feed.schema))
    finally:
        feed.close()


class ServedSource(DataSource):
    """Reads the newest rows of the table or view in the option `served`; cannot write.

    Several tasks read a table. One task runs a view's query, or computes a table's columns, with
    the same semantics as `streamhouse query`.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        catalog = os.environ.get(CATALOG_VARIABLE)
        if catalog is None:
            raise OptionError(f"format '{FORMAT}' works only in `streamhouse thrift`; use 'paimon'")
        self._catalog: dict[str, str] = json.loads(catalog)
        self._name = options.get(SERVED, "")
        if not is_name(self._name):
            raise OptionError(
                f"format '{FORMAT}': '{SERVED}' is not a table's name; query the served views"
            )

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        return served_schema(Warehouse(self._catalog), self._name)

    def reader(self, schema: StructType) -> DataSourceReader:
        warehouse, name = Warehouse(self._catalog), self._name
        if _is_table(warehouse, name) and not ShownTable(warehouse.table(name)).computed:
            return PaimonReader(DataSourceOptions.parse({**self._catalog, "path": name}), schema)
        return ViewReader(self._catalog, name, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        raise TableError(f"'{self._name}' is read-only here; change it by `streamhouse execute`")


class ViewReader(DataSourceReader):
    """Reads the rows of a view, or of a table with computed columns, with the bounded engine."""

    def __init__(self, catalog: Mapping[str, str], name: str, schema: StructType) -> None:
        self._catalog = dict(catalog)
        self._name = name
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(self._name)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from streamhouse.serve.export_files import Extract

        extract = Extract(Warehouse(self._catalog), self._name)
        with extract.open(lambda rows: None) as (_, batches):
            yield from for_spark(batches, self._schema)


def _without_times(schema: pa.Schema) -> pa.Schema:
    return pa.schema(field.with_type(mapped(field.type, _without_time)) for field in schema)


def _without_time(kind: pa.DataType) -> pa.DataType:
    return pa.string() if pa.types.is_time(kind) else kind


def _is_table(warehouse: Warehouse, name: str) -> bool:
    database, _, table = name.partition(".")
    return warehouse.exists(database, table)
