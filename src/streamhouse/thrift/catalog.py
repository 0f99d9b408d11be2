"""Keeps the tables and views of a warehouse as views in Spark's catalog.

A view is SQL text, which Spark analyzes for each query, so each query plans its read again and sees
the newest snapshot. (A temporary view is a plan, with which Spark keeps what a Python data source
has planned: all queries would see the snapshot of the first one.) Each view reads a table of its
own in the database `streamhouse_sources`, since Spark treats two reads of one table in a query as
the same, whatever their options.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from streamhouse.errors import StreamhouseError
from streamhouse.paimon.catalog.views import Views
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.thrift.source import FORMAT, SERVED, served_schema

SOURCES = "streamhouse_sources"
_SPARK_NAME = re.compile(r"[A-Za-z0-9_]+")


@dataclass(frozen=True)
class _Found:
    """A table or view of the warehouse; its columns can have changed only if `stamp` has."""

    database: str
    name: str
    stamp: object

    @property
    def full(self) -> str:
        return f"{self.database}.{self.name}"


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
        self._seen: dict[str, _Found] = {}
        self._served: dict[str, _Served] = {}
        self._number = 0
        spark.sql(f"CREATE DATABASE IF NOT EXISTS {SOURCES}")

    @property
    def names(self) -> list[str]:
        """The served tables and views, as `database.table`, sorted."""
        return sorted(self._seen[key].full for key in self._served)

    def refresh(self) -> None:
        """Create views for new tables and changed columns, and drop those of removed tables."""
        # Spark's names are case-insensitive.
        there: dict[str, _Found] = {}
        for one in self._find():
            there.setdefault(one.full.lower(), one)
        for key in [key for key in self._seen if key not in there]:
            del self._seen[key]
            self._drop(self._served.pop(key, None))
        for key, found in there.items():
            if self._seen.get(key) != found:
                self._seen[key] = found
                self._serve(key, found)

    def _find(self) -> Iterator[_Found]:
        """The tables, then the views, whose columns depend on those of tables."""
        views: list[tuple[str, str]] = []
        tables: list[_Found] = []
        for database in self._warehouse.databases():
            for name in self._warehouse.tables(database):
                tables.append(_Found(database, name, self._columns(f"{database}.{name}")))
            views += [(database, name) for name in Views(self._warehouse).names(database)]
        yield from tables
        for database, name in views:
            query = self._query(database, name)
            yield _Found(database, name, (query, tuple(tables)))

    def _columns(self, name: str) -> object:
        try:
            return self._warehouse.table(name).arrow_schema
        except StreamhouseError as error:
            # `_serve` reports the error, if it persists.
            return str(error)

    def _query(self, database: str, name: str) -> str:
        try:
            view = Views(self._warehouse).find(database, name)
        except StreamhouseError as error:
            return str(error)
        return "" if view is None else view.query

    def _serve(self, key: str, found: _Found) -> None:
        wrong = [one for one in (found.database, found.name) if not _SPARK_NAME.fullmatch(one)]
        if wrong:
            why = f"'{wrong[0]}' is not of letters, digits and underscores, as Spark's names are"
            self._notice(f"{found.full} is not served: {why}")
            return
        old = self._served.get(key)
        try:
            schema = served_schema(self._warehouse, found.full)
            if old is None or old.schema != schema:
                self._served[key] = self._make(found, schema)
                self._forget(old)
        except (StreamhouseError, PySparkException) as error:
            why = str(error).strip().splitlines()[0]
            self._notice(f"{found.full} is not served: {why}")
            self._drop(self._served.pop(key, None))

    def _make(self, found: _Found, schema: StructType) -> _Served:
        self._number += 1
        source = f"{SOURCES}.`{found.database}__{found.name}__{self._number}`"
        view = f"`{found.database}`.`{found.name}`"
        self._spark.sql(f"CREATE DATABASE IF NOT EXISTS `{found.database}`")
        self._spark.catalog.createTable(source, source=FORMAT, schema=schema)
        self._spark.sql(
            f"CREATE OR REPLACE VIEW {view} AS "
            f"SELECT * FROM {source} WITH ('{SERVED}' = '{found.full}')"
        )
        return _Served(schema, source, view)

    def _drop(self, served: _Served | None) -> None:
        if served is not None:
            self._spark.sql(f"DROP VIEW IF EXISTS {served.view}")
            self._forget(served)

    def _forget(self, served: _Served | None) -> None:
        if served is not None:
            self._spark.sql(f"DROP TABLE IF EXISTS {served.source}")
