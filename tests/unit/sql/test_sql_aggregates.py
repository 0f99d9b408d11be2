"""Aggregates of bounded and continuous queries: Flink 1.20's types and values."""

from __future__ import annotations

import random
from decimal import Decimal
from typing import TYPE_CHECKING

import duckdb
import pytest

from streamhouse.sql.expressions.value_errors import readable

if TYPE_CHECKING:
    from tests.unit.sql.conftest import Catalog

ROWS = (
    "(VALUES (1, CAST(NULL AS INT), 0.01, CAST(1.5 AS FLOAT)), (2, 5, 0.02, CAST(2 AS FLOAT)), "
    "(2, CAST(NULL AS INT), 0.02, CAST(2 AS FLOAT)), (4, 6, CAST(NULL AS DECIMAL(3, 2)), "
    "CAST(NULL AS FLOAT))) AS t (x, y, m, f)"
)
HUGE = 9007199254740993


@pytest.mark.parametrize(
    ("aggregate", "kind", "value"),
    [
        ("SUM(x)", "INT", 9),
        ("SUM(CAST(x AS TINYINT))", "TINYINT", 9),
        ("SUM(CAST(x AS BIGINT))", "BIGINT", 9),
        ("SUM(m)", "DECIMAL(38, 2)", Decimal("0.05")),
        ("SUM(f)", "FLOAT", 5.5),
        ("AVG(x)", "INT", 2),
        ("AVG(-x)", "INT", -2),
        ("AVG(CAST(x AS SMALLINT))", "SMALLINT", 2),
        ("AVG(DISTINCT x)", "INT", 2),
        ("AVG(m)", "DECIMAL(38, 6)", Decimal("0.016667")),
        ("AVG(-m)", "DECIMAL(38, 6)", Decimal("-0.016667")),
        ("AVG(m * x)", "DECIMAL(38, 6)", Decimal("0.030000")),
        ("AVG(m) + 1", "DECIMAL(38, 6)", Decimal("1.016667")),
        ("AVG(CAST(m AS DECIMAL(20, 10)))", "DECIMAL(38, 10)", Decimal("0.0166666667")),
        ("AVG(m) FILTER (WHERE x = 2)", "DECIMAL(38, 6)", Decimal("0.020000")),
        ("AVG(m) FILTER (WHERE x = 9)", "DECIMAL(38, 6)", None),
        ("AVG(x) FILTER (WHERE x = 9)", "INT", None),
        ("AVG(CAST(x AS DOUBLE))", "DOUBLE", 2.25),
        ("AVG(f)", "FLOAT", pytest.approx(1.8333333)),
        (f"AVG(x - x + CAST({HUGE} AS BIGINT))", "BIGINT", HUGE),
        ("FIRST_VALUE(y)", "INT", 5),
        ("LAST_VALUE(y)", "INT", 6),
        ("FIRST_VALUE(y) FILTER (WHERE x > 2)", "INT", 6),
        ("ARRAY_AGG(y)", "ARRAY<INT>", [None, 5, None, 6]),
        ("ARRAY_AGG(y IGNORE NULLS)", "ARRAY<INT>", [5, 6]),
        ("ARRAY_AGG(y) FILTER (WHERE x > 9)", "ARRAY<INT>", None),
        ("CARDINALITY(ARRAY_AGG(DISTINCT y))", "INT", 3),
        ("COLLECT(x)", "MAP<INT, INT>", {1: 1, 2: 2, 4: 1}),
        ("COLLECT(DISTINCT y)", "MAP<INT, INT>", {5: 1, 6: 1}),
        ("COLLECT(x) FILTER (WHERE x > 9)", "MAP<INT, INT>", {}),
        ("CAST(COLLECT(x) AS STRING)", "STRING", "{1=1, 2=2, 4=1}"),
        ("PERCENTILE(m, 0.5)", "DOUBLE", 0.02),
        ("PERCENTILE(x, ARRAY[0.5, 1.0])", "ARRAY<DOUBLE>", [2.0, 4.0]),
        ("JSON_ARRAYAGG(y)", "STRING", "[5,6]"),
        ("JSON_ARRAYAGG(y NULL ON NULL)", "STRING", "[null,5,null,6]"),
        ("JSON_ARRAYAGG(y) FILTER (WHERE x > 9)", "STRING", "[]"),
        (
            "JSON_OBJECTAGG(KEY CONCAT('k', CAST(y AS STRING)) VALUE x) FILTER (WHERE y > 0)",
            "STRING",
            '{"k5":2,"k6":4}',
        ),
        (
            "JSON_OBJECT('r' VALUE JSON_ARRAYAGG(JSON_OBJECT('y' VALUE y) ))",
            "STRING",
            '{"r":[{"y":null},{"y":5},{"y":null},{"y":6}]}',
        ),
        ("PERCENTILE(x, 0.45, y)", "DOUBLE", 3.0),
        ("PERCENTILE(x, ARRAY[0.1, 0.9], y) FILTER (WHERE y > 5)", "ARRAY<DOUBLE>", [4.0, 4.0]),
        ("ANY_VALUE(y)", "INT", 6),
        ("BIT_AND(y)", "INT", 4),
        ("BIT_OR(y) FILTER (WHERE y > 5)", "INT", 6),
        ("BIT_XOR(y)", "INT", 3),
        ("BOOL_AND(y > 5)", "BOOLEAN", False),
        ("BOOL_OR(y > 5)", "BOOLEAN", True),
        ("EVERY(x > 0)", "BOOLEAN", True),
        ("ROUND(CORR(x, x * 2), 3)", "DOUBLE", 1.0),
        ("ROUND(REGR_SLOPE(x * 2, x) + REGR_INTERCEPT(x, x) + REGR_R2(x, x), 3)", "DOUBLE", 3.0),
        ("REGR_COUNT(x, y)", "BIGINT", 2),
        ("REGR_AVGX(x, y) + REGR_AVGY(y, x)", "DOUBLE", 11.0),
        ("ROUND(REGR_SXX(y, x) + REGR_SYY(x, y) + REGR_SXY(x, y), 3)", "DOUBLE", 5.0),
        ("MAX_BY(y, x)", "INT", 6),
        ("MIN_BY(x, y)", "INT", 2),
        ("MEDIAN(x)", "DOUBLE", 2.0),
        ("PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY y)", "DOUBLE", 5.5),
        ("PERCENTILE_DISC(0.5) WITHIN GROUP (ORDER BY y DESC)", "INT", 6),
        ("ROUND(SKEWNESS(x), 3)", "DOUBLE", 1.129),
        ("KURTOSIS(x) IS NOT NULL", "BOOLEAN", True),
        ("STRING_AGG(CAST(x AS STRING), '-' ORDER BY x DESC)", "STRING", "4-2-2-1"),
        ("POW(MAX(x), 2)", "DOUBLE", 16.0),
        ("TYPEOF(SUM(x))", "STRING", "INT"),
        ("TYPEOF(MAX(CAST('2020-01-01 00:00:00' AS TIMESTAMP(3))))", "STRING", "TIMESTAMP(3)"),
        ("APPROX_COUNT_DISTINCT(x)", "BIGINT", 3),
        ("COUNT(DISTINCT x)", "BIGINT", 3),
    ],
)
def test_types_and_values(catalog: Catalog, aggregate: str, kind: str, value: object) -> None:
    plan = catalog.query(f"SELECT {aggregate} AS v FROM {ROWS}")
    assert plan == [(value,)]
    assert catalog.types(f"SELECT {aggregate} AS v FROM {ROWS}") == [kind]


@pytest.mark.parametrize(
    ("function", "values"),
    [
        ("FIRST_VALUE(y)", [None, 5, 5, 5]),
        ("LAST_VALUE(y)", [None, 5, 5, 6]),
        ("SUM(y) FILTER (WHERE y > 5)", [None, None, None, 6]),
        ("AVG(m)", [Decimal(one) for one in ("0.010000", "0.015000", "0.016667", "0.016667")]),
        ("RANK()", [1, 2, 2, 4]),
        ("NTILE(2)", [1, 1, 2, 2]),
        ("CUME_DIST()", [0.25, 0.75, 0.75, 1.0]),
        ("PERCENT_RANK()", [0.0, 1 / 3, 1 / 3, 1.0]),
    ],
)
def test_windows(catalog: Catalog, function: str, values: list[object]) -> None:
    rows = "" if function.endswith("()") or "NTILE" in function else " ROWS UNBOUNDED PRECEDING"
    over = f"OVER (ORDER BY x, y NULLS LAST{rows})"
    over = over if rows else "OVER (ORDER BY x)"
    result = catalog.query(f"SELECT {function} {over} AS v FROM {ROWS} ORDER BY x, y NULLS LAST")
    assert [row[0] for row in result] == values


@pytest.mark.parametrize(
    ("aggregate", "message"),
    [
        ("JSON_OBJECTAGG(KEY 'k' VALUE i)", "JSON_OBJECTAGG: a key occurs more than once"),
        ("JSON_OBJECTAGG(KEY s VALUE i)", "JSON_OBJECTAGG: a key must not be NULL"),
    ],
)
def test_keys_of_a_json_object(catalog: Catalog, aggregate: str, message: str) -> None:
    with pytest.raises(duckdb.Error) as caught:
        catalog.query(f"SELECT {aggregate} AS v FROM typed", [{"i": 1}, {"i": 2}])
    assert readable(str(caught.value)) == message


def test_grouping_sets_are_distinguished(catalog: Catalog) -> None:
    text = (
        "SELECT GROUPING(s), GROUPING_ID(s, i), s, i, SUM(n) FROM typed "
        "GROUP BY GROUPING SETS ((s, i), (s), ()) ORDER BY 2"
    )
    assert catalog.query(text, [{"s": "a", "i": 1, "n": 3}]) == [
        (0, 0, "a", 1, 3),
        (0, 1, "a", None, 3),
        (1, 3, None, None, 3),
    ]


def test_a_sum_beyond_its_type_is_an_error(catalog: Catalog) -> None:
    with pytest.raises(duckdb.Error) as caught:
        catalog.query("SELECT SUM(i) AS v FROM typed", [{"i": 2**31 - 1}, {"i": 1}])
    assert readable(str(caught.value)) == "2147483648 does not fit into INT"


def test_a_sum_is_as_wide_as_its_target_column(catalog: Catalog) -> None:
    catalog.add(
        "CREATE TABLE wide (s STRING PRIMARY KEY NOT ENFORCED, total BIGINT) WITH "
        "('merge-engine' = 'aggregation', 'fields.total.aggregate-function' = 'sum')"
    )
    rows = [{"s": "a", "i": 2**31 - 1}, {"s": "a", "i": 1}]
    text = "INSERT INTO wide SELECT s, SUM(i) FROM typed GROUP BY s"
    assert catalog.query(text, rows) == [("a", 2**31)]
    assert catalog.rows(text, rows) == [("a", 2**31)]


def test_a_sum_in_a_subquery_that_reads_the_query_around_it(catalog: Catalog) -> None:
    text = "SELECT (SELECT SUM(a.n * 2) FROM typed a WHERE a.i = b.i) AS v FROM typed b"
    rows = [{"i": 1, "n": 2}, {"i": 1, "n": 3}]
    assert catalog.query(text, rows, rows) == [(10,), (10,)]


@pytest.mark.parametrize("seed", range(2))
def test_aggregates_of_distinct_values_are_those_of_the_distinct_rows(
    catalog: Catalog, seed: int
) -> None:
    rng = random.Random(seed)
    rows = [(rng.choice((None, 1, 2, 3, 5)), rng.choice((None, 1, 4))) for _ in range(12)]
    listed = ", ".join(f"(CAST({x or 'NULL'} AS INT), CAST({y or 'NULL'} AS INT))" for x, y in rows)
    table = f"(VALUES {listed}) AS t (x, y)"
    ordered = "WITHIN GROUP (ORDER BY CAST(x AS STRING) DESC)"
    calls = {
        "x": (
            "COUNT({}x)", "SUM({}x)", "AVG({}x)", "MIN({}x)", "MAX({}x)", "STDDEV_POP({}x)",
            "VAR_SAMP({}x)", "COLLECT({}x)", "PERCENTILE({}x, 0.3)", "ARRAY_SORT(ARRAY_AGG({}x))",
            f"LISTAGG({{}}CAST(x AS STRING), '; ') {ordered}",
            "ARRAY_SORT(SPLIT(LISTAGG({}CAST(x AS STRING), '; '), '; '))",
        ),
        "x, y": ("COUNT(*) FILTER (WHERE x IS NOT NULL AND y IS NOT NULL)", "COVAR_POP({}x, y)"),
    }  # fmt: skip
    for columns, templates in calls.items():
        for call in templates:
            written = call if "{}" in call else "COUNT({}x, y)"
            found = catalog.query(f"SELECT {written.format('DISTINCT ')} FROM {table}")
            distinct = f"(SELECT DISTINCT {columns} FROM {table}) AS d"
            assert found == catalog.query(f"SELECT {call.format('')} FROM {distinct}"), written
