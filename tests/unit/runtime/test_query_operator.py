"""Lookup joins and partial aggregation on Arrow chunks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import Decimal

import duckdb
import pyarrow as pa
import pytest

from streamhouse.duckdb_connection import LastingConnection
from streamhouse.errors import StreamhouseError, TableError
from streamhouse.runtime.query_operator import (
    QueryOperator,
    conformed,
    numbered,
    only,
    without,
)
from streamhouse.runtime.query_spec import PartialAggregation
from streamhouse.sql.plan import Column, OutputRows, StreamQuery, StreamScan, TableInfo

SALES = pa.schema(
    [pa.field("country", pa.string(), nullable=False), pa.field("revenue", pa.float64())]
)
OPTIONS = {"merge-engine": "aggregation", "fields.revenue.aggregate-function": "sum"}
COLUMNS = (Column("country", "STRING", False), Column("revenue", "DOUBLE"))
ORDERS = pa.table({"id": [1, 2, 1, 3], "price": [1.0, 2.0, 4.0, 8.0]})
PEOPLE = pa.table({"id": [1, 2], "country": ["NO", "CL"]})


def query(
    rows_sql: str,
    changelog: bool = False,
    columns: tuple[Column, ...] = COLUMNS,
    passed: Mapping[str, str] | None = None,
) -> StreamQuery:
    return StreamQuery(
        StreamScan(TableInfo(("c", "d", "orders"), ()), ("id", "price"), changelog),
        (),
        OutputRows(rows_sql, columns, passed=passed or {}, copies=bool(passed)),
        "f",
        misses_sql="SELECT src._row FROM src ANTI JOIN dim_0 USING (id)",
    )


def operator(
    rows_sql: str,
    combine: PartialAggregation | None = None,
    changelog: bool = False,
    passed: Mapping[str, str] | None = None,
) -> QueryOperator:
    made = QueryOperator(query(rows_sql, changelog, passed=passed), SALES, combine)
    made.bind(0)
    made.bind_dimension("dim_0", PEOPLE)
    return made


JOIN = "SELECT d.country, src.price AS revenue FROM src JOIN dim_0 d ON d.id = src.id"


def test_rows_are_joined_and_misses_reported() -> None:
    made = operator(JOIN)
    src = numbered(ORDERS, 100)
    misses = made.misses(src)
    assert misses.to_pylist() == [103]
    assert sorted(made.rows(without(src, misses)).column("revenue").to_pylist()) == [1.0, 2.0, 4.0]
    assert only(src, misses).column("id").to_pylist() == [3]


def test_a_new_version_of_a_dimension_takes_effect() -> None:
    made = operator(JOIN)
    src = numbered(ORDERS, 0)
    made.bind(0)
    made.bind_dimension("dim_0", pa.table({"id": [3], "country": ["JP"]}))
    assert made.rows(src).to_pylist() == [{"country": "JP", "revenue": 8.0}]


def test_rows_for_an_aggregation_table_are_combined() -> None:
    combine = PartialAggregation.of(COLUMNS, ["country"], OPTIONS)
    made = operator(JOIN, combine)
    rows = made.rows(numbered(ORDERS, 0)).sort_by("country")
    assert rows.to_pylist() == [
        {"country": "CL", "revenue": 2.0}, {"country": "NO", "revenue": 5.0}
    ]  # fmt: skip
    whole = made.combine([rows, rows]).sort_by("country")
    assert whole.column("revenue").to_pylist() == [4.0, 10.0]
    assert made.combine([]).num_rows == 0


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"merge-engine": "aggregation"},
        OPTIONS | {"sequence.field": "at"},
        OPTIONS | {"rowkind.field": "kind"},
        OPTIONS | {"fields.revenue.aggregate-function": "last_value"},
    ],
)
def test_rows_whose_order_matters_are_not_combined(options: dict[str, str]) -> None:
    assert PartialAggregation.of(COLUMNS, ["country"], options) is None
    assert PartialAggregation.of(COLUMNS, [], OPTIONS) is None


def test_the_time_of_the_batch_is_fixed() -> None:
    made = operator("SELECT strftime(getvariable('now'), '%Y-%m-%d %H:%M:%S.%g'), 1.0 FROM src")
    made.bind(1_700_000_000_123)
    rows = made.rows(numbered(ORDERS.slice(0, 1), 0))
    assert rows.column("country").to_pylist() == ["2023-11-14 22:13:20.123"]


def test_values_that_cannot_be_computed_or_stored_are_errors() -> None:
    src = numbered(ORDERS, 0)
    with pytest.raises(
        StreamhouseError, match="cannot compute a row: .* is not a valid INT; change"
    ):
        operator("SELECT 'x', CAST('abc' AS INT) FROM src").rows(src)
    with pytest.raises(TableError, match="column 'country' of the target cannot be null"):
        operator("SELECT NULL, price FROM src").rows(src)
    wide = pa.table({"n": pa.array([1 << 40])})
    with pytest.raises(TableError, match="cannot hold"):
        conformed(wide, pa.schema([("n", pa.int32())]))


_COPY = (
    "SELECT CAST(s.country AS TEXT) AS country, CAST(s.price AS DOUBLE) AS revenue FROM src AS s"
)


_PASSED = {"country": "country", "revenue": "price"}


def test_copied_columns_are_what_the_query_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    src = numbered(pa.table({"price": [1.5, None], "country": ["NO", "CL"]}), 0)
    copy = operator(_COPY, passed=_PASSED)
    computed = operator(f"{_COPY} WHERE true").rows(src)
    assert copy.rows(src) == computed
    monkeypatch.setattr(LastingConnection, "run", lambda *_, **__: pytest.fail("ran in DuckDB"))
    assert copy.rows(src) == computed
    with pytest.raises(TableError, match="column 'country' of the target cannot be null"):
        copy.rows(src.set_column(1, "country", pa.array(["NO", None])))


SAME_TYPES = {
    "BOOLEAN": pa.array([True, False, None]),
    "TINYINT": pa.array([-128, 127, None], pa.int8()),
    "SMALLINT": pa.array([-(2**15), 2**15 - 1, None], pa.int16()),
    "INT": pa.array([-(2**31), 2**31 - 1, None], pa.int32()),
    "BIGINT": pa.array([-(2**63), 2**63 - 1, None], pa.int64()),
    "DOUBLE": pa.array([-0.0, math.inf, 1e-308, None]),
    "STRING": pa.array(["", "a\0b", "é🙂", None]),
    "DATE": pa.array([-719162, 2932896, None], pa.int32()).cast(pa.date32()),
    "TIMESTAMP(3)": pa.array([-62135596800000, 253402300799999, None], pa.timestamp("ms")),
    "TIMESTAMP(6)": pa.array([-62135596800000000, 253402300799999999, None], pa.timestamp("us")),
    "DECIMAL(38, 9)": pa.array([Decimal("-1e28"), Decimal("0.000000001"), None],
                               pa.decimal128(38, 9)),
    "DECIMAL(4, 0)": pa.array([Decimal(-9999), Decimal(0), None], pa.decimal128(4, 0)),
}  # fmt: skip


@pytest.mark.parametrize("kind", SAME_TYPES)
def test_casts_to_the_own_type_need_no_duckdb(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    values = SAME_TYPES[kind]
    src, sql = numbered(pa.table({"a": values}), 0), "SELECT a FROM src"
    computed = LastingConnection().run(sql, src=src).column(0)
    assert (computed.type, computed.to_pylist()) == (values.type, values.to_pylist())
    monkeypatch.setattr(duckdb, "connect", lambda *_, **__: pytest.fail("opened DuckDB"))
    copied = query(sql, False, (Column("a", kind),), {"a": "a"})
    copy = QueryOperator(copied, pa.schema([("a", values.type)]), None)
    copy.bind(1_700_000_000_000)
    assert copy.rows(src).column("a").combine_chunks() == values


def test_copied_columns_of_other_types_are_cast() -> None:
    src = numbered(pa.table({"price": ["2.5"], "country": ["NO"]}), 0)
    assert operator(_COPY, passed=_PASSED).rows(src).column("revenue").to_pylist() == [2.5]
