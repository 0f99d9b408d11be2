"""A catalog in a dictionary, and DuckDB to run what the planner writes."""

from __future__ import annotations

import atexit
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from tests.single_stream import analyze_stream

from streamhouse.close_matches import nearest
from streamhouse.connectors.registry import declared
from streamhouse.errors import TableError
from streamhouse.sql.batch.bounded_query import analyze_bounded
from streamhouse.sql.expressions.binder import describe
from streamhouse.sql.functions.builtin_udfs import register
from streamhouse.sql.plan import CURRENT, AsOf, BoundedQuery, Name, Resolver, StreamQuery, TableInfo
from streamhouse.sql.statements.script import parse_script
from streamhouse.sql.syntax import CreateTable, Insert, Query, Select
from streamhouse.sql.types import flink_type

NOW = "2024-05-06 07:08:09.123456"
Rows = Sequence[Mapping[str, Any]]

TABLES = """
CREATE TABLE orders (order_id BIGINT, customer_id INT, price DOUBLE, order_time TIMESTAMP(3),
  proc_time AS PROCTIME(), double_price AS price * 2);
CREATE TABLE customers (id INT, name STRING, country STRING, zip STRING,
  PRIMARY KEY (id) NOT ENFORCED);
CREATE TABLE rates (country STRING PRIMARY KEY NOT ENFORCED, rate DOUBLE);
CREATE TABLE customers_cdc (id INT PRIMARY KEY NOT ENFORCED, name STRING, country STRING)
  WITH ('connector' = 'mysql-cdc');
CREATE TABLE country_sales (country STRING, orders BIGINT, revenue DOUBLE,
  PRIMARY KEY (country) NOT ENFORCED) WITH ('merge-engine' = 'aggregation',
  'fields.orders.aggregate-function' = 'sum', 'fields.revenue.aggregate-function' = 'sum');
CREATE TABLE plain (country STRING, orders BIGINT, revenue DOUBLE);
CREATE TABLE typed (i INT, n BIGINT, d DOUBLE, s STRING, t TIMESTAMP(3), day_ DATE,
  m DECIMAL(10, 2), b BOOLEAN);
"""
_ARROW = {
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "DOUBLE": pa.float64(),
    "STRING": pa.string(),
    "TIMESTAMP(0)": pa.timestamp("ms"),
    "TIMESTAMP(2)": pa.timestamp("ms"),
    "TIMESTAMP(3)": pa.timestamp("ms"),
    "TIMESTAMP(6)": pa.timestamp("us"),
    "TIMESTAMP(9)": pa.timestamp("ns"),
    "TIMESTAMP_LTZ(3)": pa.timestamp("ms", "UTC"),
    "DATE": pa.date32(),
    "DECIMAL(10, 2)": pa.decimal128(10, 2),
    "DECIMAL(4, 3)": pa.decimal128(4, 3),
    "BOOLEAN": pa.bool_(),
}


class Catalog(Resolver):
    """Tables by their last name; plans queries and runs them over rows given as dicts."""

    def __init__(self, tables: Mapping[str, TableInfo] | None = None) -> None:
        self.tables = dict(tables or {})
        self.session_zone = "UTC"

    @property
    def zone(self) -> str:
        return self.session_zone

    def add(self, script: str) -> None:
        for made in parse_script(script):
            if isinstance(made, CreateTable):
                info = TableInfo(
                    ("default", made.name[-1]),
                    made.columns,
                    made.computed,
                    made.primary_key,
                    made.partitioned_by,
                    made.options,
                    made.options.get("connector", "paimon"),
                )
                self.tables[made.name[-1]] = declared(info)

    def table(self, name: Name, as_of: AsOf = CURRENT) -> TableInfo:
        if name[-1] not in self.tables:
            raise TableError(f"there is no table '{name[-1]}'; {nearest(name[-1], self.tables)}")
        return self.tables[name[-1]]

    def stream(self, text: str) -> StreamQuery:
        """The plan of a continuous SELECT or INSERT."""
        query, target, columns = self._parts(text)
        return analyze_stream(query, self, target, columns)

    def bounded(self, text: str) -> BoundedQuery:
        query, target, columns = self._parts(text)
        return analyze_bounded(query, self, target, columns)

    def _parts(self, text: str) -> tuple[Query, TableInfo | None, tuple[str, ...]]:
        (statement,) = parse_script(text)
        if isinstance(statement, Insert):
            return statement.query, self.table(statement.target), statement.columns
        assert isinstance(statement, Select)
        return statement.query, None, ()

    def rows(self, text: str, source: Rows, *dimensions: Rows) -> list[tuple[Any, ...]]:
        """What a continuous query gives for these rows of its source and dimensions."""
        plan = self.stream(text)
        return _run(plan.rows.sql, _relations(plan, source, dimensions))

    def misses(self, text: str, source: Rows, *dimensions: Rows) -> list[int]:
        """The places of the source rows that wait for a partner."""
        plan = self.stream(text)
        assert plan.misses_sql is not None
        result = _run(plan.misses_sql, _relations(plan, source, dimensions))
        return sorted(row[0] for row in result)

    def keys(
        self, text: str, number: int, source: Rows, *dimensions: Rows
    ) -> list[tuple[Any, ...]] | None:
        """What the source rows look for in lookup `number`, given the rows of those before it."""
        plan = self.stream(text)
        sql = plan.lookups[number].keys_sql
        if sql is None:
            return None
        rest: list[Rows] = [[] for _ in plan.lookups[len(dimensions) :]]
        relations = _relations(plan, source, [*dimensions, *rest])
        before = {k.relation for k in plan.lookups[:number]}
        there = {n: t for n, t in relations.items() if n == "src" or n in before}
        return sorted(_run(sql, there))

    def query(self, text: str, *tables: Rows) -> list[tuple[Any, ...]]:
        """What a bounded query gives, its tables in the order of the text."""
        plan = self.bounded(text)
        relations = {
            scan.relation: _table(scan.table, scan.columns, rows)
            for scan, rows in zip(plan.scans, tables, strict=True)
        }
        return _run(plan.sql, relations)

    def types(self, text: str) -> list[str]:
        """Flink's types of the columns of a query that reads no table."""
        return [flink_type(kind) for _, kind in describe(self.bounded(text).sql, {})]

    def value(self, expression: str, **row: Any) -> Any:
        """An expression over one row of the table `typed`, by both planners."""
        text = f"SELECT {expression} AS v FROM typed"
        (once,) = self.query(text, [row])
        (again,) = self.rows(text, [row])
        assert once == again
        return once[0]


def _table(info: TableInfo, names: Sequence[str], rows: Rows) -> pa.Table:
    kinds = {column.name: _ARROW[column.type] for column in info.columns}
    return pa.table(
        {name: pa.array([row.get(name) for row in rows], kinds[name]) for name in names}
    )


def _relations(plan: StreamQuery, source: Rows, dimensions: Sequence[Rows]) -> dict[str, pa.Table]:
    """Exactly the columns that the plan says it needs, so that a missing one is noticed."""
    table = _table(plan.source, plan.scan.columns, source)
    table = table.append_column("_row", pa.array(range(len(source)), pa.int64()))
    if plan.scan.changelog:
        table = table.append_column("rowkind", pa.array([row["rowkind"] for row in source]))
    result = {"src": table}
    for lookup, rows in zip(plan.lookups, dimensions, strict=True):
        result[lookup.relation] = _table(lookup.table, lookup.columns, rows)
    return result


@lru_cache
def _database() -> duckdb.DuckDBPyConnection:
    """One for all tests: opening it takes longer than most of them."""
    connection = duckdb.connect(":memory:")
    register(connection)
    atexit.register(connection.close)
    return connection


def _run(sql: str, relations: Mapping[str, pa.Table]) -> list[tuple[Any, ...]]:
    with _database().cursor() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute(f"SET VARIABLE now = TIMESTAMP '{NOW}'")
        for name, table in relations.items():
            connection.register(name, table)
        return connection.execute(sql).fetchall()


@lru_cache
def _tables() -> Mapping[str, TableInfo]:
    made = Catalog()
    made.add(TABLES)
    return made.tables


@pytest.fixture
def catalog() -> Catalog:
    """The tables of `TABLES`; a test may add more."""
    return Catalog(_tables())
