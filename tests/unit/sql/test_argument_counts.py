"""Each function with each number of arguments runs, or is the user's error with its position."""

from __future__ import annotations

import pytest
from sqlglot.parser import Parser

from streamhouse.errors import SqlError
from streamhouse.sql.batch.bounded_query import analyze_bounded
from streamhouse.sql.functions import supported
from streamhouse.sql.plan import CURRENT, AsOf, Name, Resolver, TableInfo, ViewInfo
from streamhouse.sql.syntax import Query, TextPosition

NAMES = sorted({*supported.known(), *Parser.FUNCTION_PARSERS})
ARGUMENTS = ("1", "'a'", "ARRAY[1, 2]", "*")
MOST = 5
VARIADIC = {
    "ARRAY_CONCAT", "COALESCE", "CONCAT", "CONCAT_WS", "ELT", "GREATEST", "GROUPING", "GROUPING_ID",
    "JSON_ARRAY", "LEAST", "MAP", "MAP_UNION", "PRINTF", "ROW",
}  # fmt: skip


class Nothing(Resolver):
    """No table and no view."""

    def table(self, name: Name, as_of: AsOf = CURRENT) -> TableInfo:
        raise AssertionError(name)

    def view(self, name: Name) -> ViewInfo | None:
        raise AssertionError(name)


def analyze(call: str) -> None:
    analyze_bounded(Query(f"SELECT {call}", TextPosition(1, 1)), Nothing())


def accepted(call: str) -> bool:
    try:
        analyze(call)
    except SqlError as error:
        assert error.line == 1 and error.column, call
        assert "Traceback" not in str(error)
        return False
    return True


def is_accepted(name: str, count: int) -> bool:
    return any(accepted(f"{name}({', '.join([each] * count)})") for each in ARGUMENTS)


@pytest.mark.parametrize("part", range(4))
def test_every_count(part: int) -> None:
    for name in NAMES[part::4]:
        counts = [count for count in range(MOST + 1) if is_accepted(name, count)]
        assert len(counts) <= 3 or name in VARIADIC, (name, counts)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("CEIL()", r"CEIL takes 1 argument\(s\), not 0"),
        ("FLOOR()", r"FLOOR takes 1 argument\(s\), not 0"),
        ("CEIL(1.5, (SELECT 1, 2))", r"CEIL takes 1 argument\(s\), not 2"),
        ("POSITION('a', 'b', 1)", r"POSITION takes 1 to 2 argument\(s\), not 3"),
        ("SUBSTRING('abc', 1, 1, 1)", r"SUBSTRING takes 1 to 3 argument\(s\), not 4"),
    ],
)
def test_wrong_counts(call: str, message: str) -> None:
    with pytest.raises(SqlError, match=message):
        analyze(call)


@pytest.mark.parametrize(
    "call",
    ["CEIL(ROUND(1.55, 1))", "POSITION('b' IN 'ab')", "SUBSTRING('abc' FROM 2 FOR 1)",
     "FLOOR(ARRAY[1, 2][1])", "FLOOR(TIMESTAMP '2020-01-01 00:00:00' TO DAY)"],
)  # fmt: skip
def test_right_counts(call: str) -> None:
    assert accepted(call)
