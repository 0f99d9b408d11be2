"""Keeps the tables and views of a warehouse as views in Spark's catalog.

A view is SQL text, which Spark analyzes for each query, so each query plans its read again and sees
the newest snapshot. (A temporary view is a plan, which includes what a Python data source has
planned: all queries would see the snapshot of the first one.) Each view reads its own table in the
database `streamhouse_sources`, since Spark treats two reads of one table in a query as the same,
whatever their options.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from streamhouse.errors import StreamhouseError
from streamhouse.paimon.catalog.views import Views
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.serve.views.shown_table import ShownTable
from streamhouse.thrift.source import FORMAT, SERVED, served_schema

SOURCES = "streamhouse_sources"
_SPARK_NAME = re.compile(r"[A-Za-z0-9_]+")


@dataclass(frozen=True)
class _Served:
    schema: StructType
    source: str
    view: str


class ServedCatalog:
    """Creates and drops the views; calls `notice` with what cannot be served, and why."""

    def __init__(
        self, spark: SparkSession, warehouse: Warehouse, notice: Callable[[str], None]
    ) -> None:
        self._spark = spark
        self._warehouse = warehouse
        self._notice = notice
        self._entries: dict[str, tuple[str, object]] = {}
        """The tables and views, as `database.name`; columns can have changed only if the other
        value has."""
        self._served: dict[str, _Served] = {}
        self._number = 0
        spark.sql(f"CREATE DATABASE IF NOT EXISTS {SOURCES}")

    def refresh(self) -> None:
        """Create views for new tables and changed columns, and drop those of removed tables."""
        # Spark's names are case-insensitive.
        current: dict[str, tuple[str, object]] = {}
        for name, stamp in self._list():
            current.setdefault(name.lower(), (name, stamp))
        for key in [key for key in self._entries if key not in current]:
            del self._entries[key]
            self._drop(self._served.pop(key, None))
        for key, entry in current.items():
            if self._entries.get(key) != entry:
                self._entries[key] = entry
                self._serve(key, entry[0])

    def _list(self) -> Iterator[tuple[str, object]]:
        """The tables, then the views, whose columns depend on those of tables."""
        databases, tables = self._warehouse.databases(), dict[str, object]()
        for database in databases:
            for table in self._warehouse.tables(database):
                tables[f"{database}.{table}"] = self._columns(f"{database}.{table}")
        yield from tables.items()
        columns = tuple(tables.items())
        for database in databases:
            for view in Views(self._warehouse).names(database):
                yield f"{database}.{view}", (self._query(database, view), columns)

    def _columns(self, name: str) -> object:
        try:
            return ShownTable(self._warehouse.table(name)).read_schema()
        except StreamhouseError as error:
            # `_serve` reports the error, if it persists.
            return str(error)

    def _query(self, database: str, name: str) -> str:
        try:
            view = Views(self._warehouse).find(database, name)
        except StreamhouseError as error:
            return str(error)
        return "" if view is None else view.query

    def _serve(self, key: str, name: str) -> None:
        invalid = [part for part in name.partition(".")[::2] if not _SPARK_NAME.fullmatch(part)]
        if invalid:
            reason = f"Spark allows only letters, digits and underscores in '{invalid[0]}'"
            self._notice(f"{name} is not served: {reason}")
            return
        old = self._served.get(key)
        try:
            schema = served_schema(self._warehouse, name)
            if old is None or old.schema != schema:
                self._served[key] = self._create(name, schema)
                self._drop_source(old)
        except (StreamhouseError, PySparkException) as error:
            reason = str(error).strip().splitlines()[0]
            self._notice(f"{name} is not served: {reason}")
            self._drop(self._served.pop(key, None))

    def _create(self, name: str, schema: StructType) -> _Served:
        database, _, table = name.partition(".")
        self._number += 1
        source = f"{SOURCES}.`{database}__{table}__{self._number}`"
        view = f"`{database}`.`{table}`"
        self._spark.sql(f"CREATE DATABASE IF NOT EXISTS `{database}`")
        self._spark.catalog.createTable(source, source=FORMAT, schema=schema)
        self._spark.sql(
            f"CREATE OR REPLACE VIEW {view} AS SELECT * FROM {source} WITH ('{SERVED}' = '{name}')"
        )
        return _Served(schema, source, view)

    def _drop(self, served: _Served | None) -> None:
        if served is not None:
            self._spark.sql(f"DROP VIEW IF EXISTS {served.view}")
            self._drop_source(served)

    def _drop_source(self, served: _Served | None) -> None:
        if served is not None:
            self._spark.sql(f"DROP TABLE IF EXISTS {served.source}")
