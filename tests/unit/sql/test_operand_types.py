"""An expression gives the same value and type for every source of its operand.

sqlglot does not know the types of most of these sources, so a rule that looked only at its types
would translate them differently from a column.
"""

from __future__ import annotations

import itertools
from typing import Any

import duckdb
import pytest
from tests.single_stream import analyze_stream

from streamhouse.errors import SqlError
from streamhouse.sql.batch.bounded_query import analyze_bounded
from streamhouse.sql.functions.builtin_udfs import register
from streamhouse.sql.plan import CURRENT, AsOf, Column, Name, Resolver, TableInfo
from streamhouse.sql.statements.script import parse_script
from streamhouse.sql.syntax import Query, Select
from streamhouse.sql.types import duck_type

COLUMNS = {
    "d": ("DOUBLE", "2.75"),
    "e": ("DOUBLE", "12345678.565"),
    "nan": ("DOUBLE", "'NaN'"),
    "f": ("FLOAT", "0.565"),
    "tiny": ("TINYINT", "7"),
    "m": ("DECIMAL(6, 3)", "-2.750"),
    "i": ("INT", "-7"),
    "l": ("BIGINT", "20"),
    "b": ("BOOLEAN", "TRUE"),
    "s": ("STRING", "'2024-01-02 03:04:05.6'"),
    "x": ("STRING", "'abc'"),
    "y": ("BYTES", "'abc'::BLOB"),
    "day_": ("DATE", "'2024-01-31'"),
    "clock": ("TIME(3)", "'13:45:06.789'"),
    "t3": ("TIMESTAMP(3)", "'2024-01-31 13:45:06.789'"),
    "t6": ("TIMESTAMP(6)", "'2024-01-31 13:45:06.789876'"),
    "t9": ("TIMESTAMP(9)", "'2024-01-31 13:45:06.789876543'"),
    "z": ("TIMESTAMP_LTZ(3)", "'2024-01-31 13:45:06.789+00'"),
    "ai": ("ARRAY<INT>", "[1, 2, 3]"),
    "ad": ("ARRAY<DOUBLE>", "[1e10, 2.5]"),
    "ab": ("ARRAY<BOOLEAN>", "[TRUE, FALSE]"),
    "md": ("MAP<STRING, DOUBLE>", "MAP {'a': 1e10}"),
    "r": ("ROW<a DOUBLE, b BOOLEAN>", "{'a': 1e10, 'b': TRUE}"),
}
"""Columns of a table of one row: their types, and values in DuckDB's terms."""
CAST_TARGETS = (
    "STRING VARCHAR(3) CHAR(30) BYTES BINARY(4) TINYINT BIGINT DOUBLE FLOAT DECIMAL(14,2) BOOLEAN "
    "DATE TIME TIMESTAMP(0) TIMESTAMP(3) TIMESTAMP TIMESTAMP(9) TIMESTAMP_LTZ(3)"
).split()
SCALARS = [
    *(f"CAST({{}} AS {target})" for target in CAST_TARGETS),
    *(f"TRY_CAST({{}} AS {target})" for target in CAST_TARGETS),
    "{} + INTERVAL '1' DAY", "INTERVAL '1' MONTH + {}", "{} - INTERVAL '1.5' SECOND",
    "{} / 2", "7 / {}", "{} * 2", "{} % 2", "CAST({} * 1.5 AS STRING)", "CAST({} / 3 AS STRING)",
    "{} > 1", "{} = 2.75", "{} <> 1", "{} = {}", "{} <> {}", "{} >= {}", "{} BETWEEN 0 AND 5",
    "FLOOR({})", "CEIL({})", "CAST(FLOOR({}) AS STRING)", "ROUND({}, 2)", "TRUNCATE({}, 1)",
    "TRUNCATE({})", "SIGN({})", "CAST(ABS({}) AS STRING)", "CAST(-{} AS STRING)",
    "FLOOR({} TO HOUR)", "FLOOR({} TO MONTH)", "CEIL({} TO DAY)", "EXTRACT(NANOSECOND FROM {})",
    "TIMESTAMPADD(DAY, 1, {})", "TIMESTAMPADD(HOUR, 1, {})", "DATEDIFF({}, {})",
    "DATE_FORMAT({}, 'yyyy-MM-dd HH:mm:ss.SSS')", "TO_TIMESTAMP({})",
    "{} || '!'", "CONCAT({}, '!')", "CONCAT_WS(',', {}, '!')", "UPPER({})", "TRIM({})",
    "SUBSTRING({} FROM 1 FOR 2)", "INITCAP({})", "REGEXP_INSTR({}, 'b')", "JSON_VALUE({}, '$.a')",
    "SHA256({})", "TO_BASE64({})", "TYPEOF({})", "COALESCE({}, {})",
    "CAST(COALESCE({}, 1) AS STRING)",
    "CASE {} WHEN {} THEN 1 ELSE 2 END", "CAST(CASE WHEN {} IS NULL THEN 1 ELSE {} END AS STRING)",
    "{}[1]", "{}[CAST(-1 AS INT)]", "CAST({}[1] AS STRING)", "CAST({}['a'] AS STRING)", "{}.a",
    "CAST(ARRAY[{}] AS STRING)", "CAST(MAP['k', {}] AS STRING)", "CAST(ROW({}, 1) AS STRING)",
    "CAST(ARRAY_REVERSE({}) AS STRING)", "JSON_ARRAY({})",
]  # fmt: skip
AGGREGATES = [
    "SUM({})", "AVG({})", "SUM({}) / 3", "CAST(SUM({}) AS STRING)", "CAST(AVG({}) AS STRING)",
    "CAST(MAX({}) AS STRING)", "CAST(FIRST_VALUE({}) AS STRING)", "CAST(LAST_VALUE({}) AS INT)",
    "CAST(ARRAY_AGG({}) AS STRING)", "CAST(COLLECT({}) AS STRING)",
]  # fmt: skip
EXPRESSIONS = [*SCALARS, *AGGREGATES]
OPERANDS = [
    "ELEMENT(ARRAY[{}])",
    "MAP['a', {}]['a']",
    "MAP_VALUES(MAP['a', {}])[1]",
    "ARRAY_REVERSE(ARRAY[{}])[1]",
    "ELEMENT(ELEMENT(ARRAY[ARRAY[{}]]))",
    "NULLIF({}, NULL)",
    "ELT(1, {}, {})",
    "CAST(ROW({}, 1) AS ROW<f %s, g INT>).f",
]
"""Expressions with the value of a column; `%s` is the column's type."""
QUERIES = [
    "SELECT {} AS v FROM (SELECT ELEMENT(ARRAY[{}]) AS q FROM t) AS u",
    "WITH u AS (SELECT ELEMENT(ARRAY[{}]) AS q FROM t) SELECT {} AS v FROM u",
    "SELECT {} AS v FROM t CROSS JOIN UNNEST(ARRAY[{}]) AS u(q)",
    "SELECT {} AS v FROM (SELECT ELEMENT(ARRAY[{}]) AS q FROM t UNION SELECT {} FROM t) AS u",
    "SELECT {} AS v FROM (SELECT FIRST_VALUE({}) OVER (ORDER BY i) AS q FROM t) AS u",
    "SELECT (SELECT {}) AS v FROM (SELECT ELEMENT(ARRAY[{}]) AS q FROM t) AS u",
]  # fmt: skip
"""Queries with a rule over `q`, whose value is that of a column."""
PART = 60
"""`make test` computes one in so many of them, `make soak` all."""
CASES = list(itertools.product(COLUMNS, EXPRESSIONS))


class Table(Resolver):
    """The table `t`, and queries of both planners over it."""

    def __init__(self) -> None:
        columns = tuple(Column(name, kind) for name, (kind, _) in COLUMNS.items())
        self._info = TableInfo(("default", "t"), columns, (), (), (), {}, "paimon")
        self._db = duckdb.connect(":memory:")
        register(self._db)
        self._db.execute("SET TimeZone = 'UTC'")
        values = (
            f'CAST({value} AS {duck_type(kind)}) AS "{name}"'
            for name, (kind, value) in COLUMNS.items()
        )
        self._db.execute(f"CREATE TABLE src AS SELECT {', '.join(values)}, 0::BIGINT AS _row")

    def table(self, name: Name, as_of: AsOf = CURRENT) -> TableInfo:
        return self._info

    def bounded(self, text: str) -> list[tuple[str, str]]:
        """The types and values of a query's columns; `SqlError` if it is refused."""
        plan = analyze_bounded(_query(text), self)
        for scan in plan.scans:
            self._db.execute(f'CREATE OR REPLACE VIEW "{scan.relation}" AS SELECT * FROM src')
        return self._result(plan.sql)

    def streamed(self, text: str) -> list[tuple[str, str]]:
        return self._result(analyze_stream(_query(text), self).rows.sql)

    def _result(self, sql: str) -> list[tuple[str, str]]:
        kinds = self._db.sql(sql).types
        try:
            row: Any = self._db.execute(sql).fetchone()
        except duckdb.Error:
            row = ["an error"] * len(kinds)
        return [(str(kind), repr(value)) for kind, value in zip(kinds, row, strict=True)]

    def close(self) -> None:
        self._db.close()


def _query(text: str) -> Query:
    (statement,) = parse_script(text)
    assert isinstance(statement, Select)
    return statement.query


@pytest.fixture(scope="module")
def table() -> Any:
    made = Table()
    yield made
    made.close()


def filled(template: str, *values: str) -> str:
    """A template with its first `{}` replaced by the first value, all others by the last one."""
    head, *rest = template.split("{}")
    texts = [*values, *[values[-1]] * len(rest)]
    return head + "".join(text + part for text, part in zip(texts, rest, strict=False))


@pytest.mark.parametrize(
    "part", [0, *(pytest.param(part, marks=pytest.mark.soak) for part in range(1, PART))]
)
def test_the_source_of_an_operand_makes_no_difference(table: Table, part: int) -> None:
    wrong: list[Any] = []
    for column, expression in CASES[part::PART]:
        try:
            (expected,) = table.bounded(f"SELECT {filled(expression, column)} AS v FROM t")
        except SqlError:
            continue
        kind = COLUMNS[column][0]
        operands = [filled(operand, column).replace("%s", kind) for operand in OPERANDS]
        items = ", ".join(
            f"{filled(expression, operand)} AS v{n}" for n, operand in enumerate(operands)
        )
        # A continuous aggregation needs a target.
        planners = [table.bounded] if expression in AGGREGATES else [table.bounded, table.streamed]
        for planned in planners:
            results = planned(f"SELECT {items} FROM t")
            wrong += [
                (expression, operand, result, expected)
                for operand, result in zip(operands, results, strict=True)
                if result != expected
            ]
        for query in QUERIES:
            over_q = filled(expression, "q")
            text = filled(query, *((column, over_q) if query[0] == "W" else (over_q, column)))
            (result,) = table.bounded(text)
            wrong += [(text, result, expected)] if result != expected else []
    assert not wrong


@pytest.mark.parametrize(
    ("expression", "value", "kind"),
    [
        ("tiny * 100", "700", "INT"),
        ("tiny + -100", "-93", "INT"),
        ("tiny + tiny", "14", "TINYINT"),
        ("tiny / 2", "3", "INT"),
        ("ELEMENT(ARRAY[tiny]) * 100", "700", "INT"),
        ("COALESCE(tiny, 1) * 100", "700", "INT"),
        ("CASE WHEN b THEN tiny ELSE 1 END * 100", "700", "INT"),
        ("GREATEST(tiny, 1) * 100", "700", "INT"),
        ("tiny * CAST(300 AS SMALLINT)", "2100", "SMALLINT"),
        ("f * 0.5", "0.2824999988079071", "DOUBLE"),
        ("f + m", "-2.185000002384186", "DOUBLE"),
        ("f / 0.5", "1.1299999952316284", "DOUBLE"),
        ("COALESCE(f, 0.5)", "0.5649999976158142", "DOUBLE"),
        ("CASE WHEN b THEN f ELSE 0.5 END", "0.5649999976158142", "DOUBLE"),
        ("f = 0.565", "FALSE", "BOOLEAN"),
        ("f * 2", "1.13", "FLOAT"),
        ("i * 0.5", "-3.5", "DECIMAL(12, 1)"),
        ("POSITION('2' IN s)", "1", "INT"),
    ],
)
def test_literals_and_reals_have_flinks_common_type(
    table: Table, expression: str, value: str, kind: str
) -> None:
    text = f"SELECT CAST({expression} AS STRING), TYPEOF({expression}) FROM t"
    assert [one for _, one in table.bounded(text)] == [repr(value), repr(kind)]
