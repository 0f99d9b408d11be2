"""A dimension with a history, and one lookup join over it by any strategy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.single_stream import analyze_stream

from streamhouse.lookup.dimension import DimensionSpec
from streamhouse.lookup.strategies.selection import Choice
from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.write.commit import TableCommitter
from streamhouse.paimon.write.table_writer import TableWriter
from streamhouse.runtime.query_operator import QueryOperator, numbered
from streamhouse.runtime.streaming.dimensions.open_dimensions import Dimensions
from streamhouse.source import ROW_KIND
from streamhouse.sql.plan import CURRENT, AsOf, Column, Name, Resolver, StreamQuery, TableInfo
from streamhouse.sql.statements.script import parse_script
from streamhouse.sql.syntax import Select
from streamhouse.types import arrow_type

USER = "5b0e7f0a-8f0e-4b54-9d6e-0f0c7f3f6a11"
ORDERS = TableInfo(
    ("db", "orders"),
    (Column("n", "BIGINT"), Column("k", "INT"), Column("item", "STRING"), Column("day_", "STRING")),
)
Row = tuple[Any, ...]


class Lab:
    """Tables of one warehouse, each written commit by commit."""

    def __init__(self, path: Path) -> None:
        self.warehouse = Warehouse(str(path))
        self.warehouse.create_database("db")
        self._commits: dict[str, int] = {}

    def make(
        self,
        name: str,
        columns: Sequence[Column],
        key: Sequence[str],
        partition: Sequence[str],
        options: Mapping[str, str],
    ) -> Table:
        self.warehouse.create_table("db", name, columns, key, partition, options=options)
        return self.warehouse.table(f"db.{name}")

    def write(self, table: Table, rows: Sequence[Row], kinds: Sequence[str] | None = None) -> int:
        """Commit rows (by default inserts); the snapshot."""
        number = self._commits[table.name] = self._commits.get(table.name, 0) + 1
        columns = list(zip(*rows, strict=True))
        arrays = [
            pa.array(values, field.type)
            for values, field in zip(columns, table.arrow_schema, strict=True)
        ]
        batch = pa.RecordBatch.from_arrays(arrays, schema=table.arrow_schema)
        if kinds is not None:
            schema = batch.schema.append(pa.field(ROW_KIND, pa.string()))
            batch = pa.RecordBatch.from_arrays([*batch.columns, pa.array(kinds)], schema=schema)
        options = self.warehouse.options
        writer = TableWriter(options, table.identifier, USER)
        writer.write(batch)
        messages = writer.prepare(number)
        writer.close()
        TableCommitter(options, table.identifier, USER).commit(number, messages)
        latest = table.latest_snapshot_id()
        assert latest is not None
        return latest


@dataclass(frozen=True)
class Tables(Resolver):
    tables: Mapping[str, TableInfo]

    def table(self, name: Name, as_of: AsOf = CURRENT) -> TableInfo:
        return self.tables[name[-1]]


@dataclass
class Join:
    """A continuous SELECT over `ORDERS` and lookups, run by given strategies."""

    query: StreamQuery
    dimensions: Dimensions
    operator: QueryOperator

    @classmethod
    def of(
        cls,
        lab: Lab,
        text: str | StreamQuery,
        choices: Sequence[str],
        options: Mapping[str, str] | None = None,
    ) -> Join:
        query = plan(lab, text) if isinstance(text, str) else text
        specs = specs_of(lab, query, options)
        schema = pa.schema([pa.field(c.name, arrow_type(c.type)) for c in query.rows.columns])
        found = [Choice(choice, "the test says so") for choice in choices]
        return cls(query, Dimensions(specs, found), QueryOperator(query, schema, None))

    def rows(self, versions: Mapping[str, int], orders: Sequence[Row]) -> list[Row]:
        """What the query gives for orders, and after it the misses of lookups that retry."""
        src = source(self.query, orders)
        self.operator.bind(0)
        self.dimensions.at({"dims": versions})
        self.dimensions.bind(self.operator, src)
        found = sorted((tuple(r.values()) for r in self.operator.rows(src).to_pylist()), key=repr)
        return [*found, ("misses", *sorted(self.operator.misses(src).to_pylist()))]


def plan(lab: Lab, text: str) -> StreamQuery:
    tables = {"orders": ORDERS}
    for name in lab.warehouse.tables("db"):
        table = lab.warehouse.table(f"db.{name}")
        tables[name] = TableInfo(
            ("db", name), table.columns, primary_key=table.primary_key, options=table.options
        )
    (statement,) = parse_script(text)
    assert isinstance(statement, Select)
    return analyze_stream(statement.query, Tables(tables))


def specs_of(
    lab: Lab, query: StreamQuery, options: Mapping[str, str] | None = None
) -> list[DimensionSpec]:
    return [
        DimensionSpec(
            replace(lookup, options={**lookup.options, **(options or {})}),
            TableAddress(
                lab.warehouse.options,
                f"db.{lookup.table.name[-1]}",
                lab.warehouse.table(f"db.{lookup.table.name[-1]}").schema_id,
            ),
        )
        for lookup in query.lookups
    ]


def source(query: StreamQuery, orders: Sequence[Row]) -> pa.Table:
    columns = list(zip(*orders, strict=True))
    arrays = {
        column.name: pa.array(values, arrow_type(column.type))
        for column, values in zip(ORDERS.columns, columns, strict=True)
    }
    return numbered(pa.table(arrays).select(list(query.scan.columns)), 0)


class Oracle:
    """The same, every dimension read whole from its table as of its version.

    `read` gives the rows of a table as of a snapshot, by default as we read them.
    """

    def __init__(
        self,
        lab: Lab,
        query: StreamQuery,
        read: Callable[[str, int], pa.Table] | None = None,
    ) -> None:
        self._lab, self._query = lab, query
        self._read = read or self._as_we_do
        schema = pa.schema([pa.field(c.name, arrow_type(c.type)) for c in query.rows.columns])
        self._operator = QueryOperator(query, schema, None)

    def rows(self, versions: Mapping[str, int], orders: Sequence[Row]) -> list[Row]:
        whole = {}
        for lookup in self._query.lookups:
            name, version = f"db.{lookup.table.name[-1]}", versions[lookup.relation]
            names = list(lookup.columns)
            table = self._lab.warehouse.table(name).read_schema(names).empty_table()
            if version:
                table = self._read(name, version).select(names)
            whole[lookup.relation] = table
        self._operator.bind(0)
        for relation, table in whole.items():
            self._operator.bind_dimension(relation, table)
        src = source(self._query, orders)
        found = (tuple(row.values()) for row in self._operator.rows(src).to_pylist())
        misses = sorted(self._operator.misses(src).to_pylist())
        return [*sorted(found, key=repr), ("misses", *misses)]

    def _as_we_do(self, name: str, snapshot: int) -> pa.Table:
        table = self._lab.warehouse.table(name)
        return pa.Table.from_batches(table.read(snapshot=snapshot), table.arrow_schema)


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path / "warehouse")
