"""Expressions of Apache Flink's own tests (1.20), and the texts that they are there.

`fixtures/flink_expressions.json` has those of its ScalarFunctionsTest, TemporalTypesTest,
SqlExpressionTest, ScalarOperatorsTest, DecimalTypeTest, LiteralTest, ArrayTypeTest, MapTypeTest and
RowTypeTest that give the same here, in UTC. Flink compares the value cast to STRING. What differs,
and why, is in docs/reference/flink-differences.md.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import pytest

from streamhouse.sql.batch.bounded_query import analyze_bounded
from streamhouse.sql.functions.builtin_udfs import register
from streamhouse.sql.plan import CURRENT, AsOf, Column, Name, Resolver, TableInfo
from streamhouse.sql.statements.script import parse_script
from streamhouse.sql.syntax import Select
from streamhouse.sql.types import duck_type

FIXTURE = Path(__file__).parent / "fixtures" / "flink_expressions.json"
GROUPS: dict[str, Any] = json.loads(FIXTURE.read_text())
PART = 24
"""`make test` computes one in so many of them, `make soak` all."""


class Row(Resolver):
    """A table of one row, in a database of its own."""

    def __init__(self, columns: list[tuple[str, str, str]]) -> None:
        given = tuple(Column(name, kind) for name, kind, _ in columns)
        self._info = TableInfo(("default", "t"), given, (), (), (), {}, "paimon")
        self._from = " FROM t" if columns else ""
        self._db = duckdb.connect(":memory:")
        register(self._db)
        self._db.execute("SET TimeZone = 'UTC'")
        self._db.execute("SET VARIABLE now = TIMESTAMP '2024-05-06 07:08:09.123456'")
        values = [
            f'TRY_CAST({value} AS {duck_type(kind)}) AS "{name}"' for name, kind, value in columns
        ]
        self._db.execute(f"CREATE TABLE t AS SELECT {', '.join(values) or '1 AS one'}")

    def table(self, name: Name, as_of: AsOf = CURRENT) -> TableInfo:
        return self._info

    def text(self, expression: str) -> str:
        """What Flink's tests compare: the expression as a text, a null as `NULL`."""
        (statement,) = parse_script(f"SELECT CAST({expression} AS STRING) AS v{self._from}")
        assert isinstance(statement, Select)
        plan = analyze_bounded(statement.query, self, None, ())
        for scan in plan.scans:
            self._db.execute(f'CREATE OR REPLACE VIEW "{scan.relation}" AS SELECT * FROM t')
        result = self._db.execute(plan.sql).fetchone()
        assert result is not None
        return "NULL" if result[0] is None else str(result[0])

    def close(self) -> None:
        self._db.close()


@pytest.mark.parametrize(
    "part", [0, *(pytest.param(part, marks=pytest.mark.soak) for part in range(1, PART))]
)
@pytest.mark.parametrize("group", GROUPS)
def test_values_are_those_of_flink(group: str, part: int) -> None:
    row = Row(GROUPS[group]["columns"])
    cases = GROUPS[group]["cases"][part::PART]
    try:
        wrong = [(e, w, result) for e, w in cases if (result := row.text(e)) != w]
    finally:
        row.close()
    assert not wrong
