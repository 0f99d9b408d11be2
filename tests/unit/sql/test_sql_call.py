"""CALL in Flink's and Spark's spelling, and its errors."""

from __future__ import annotations

import pytest

from streamhouse.errors import SqlError
from streamhouse.sql.statements.script import parse_script
from streamhouse.sql.syntax import ArgumentValue, Call


def call(text: str) -> Call:
    (statement,) = parse_script(text)
    assert isinstance(statement, Call)
    return statement


def arguments(text: str) -> list[tuple[str | None, ArgumentValue]]:
    return [(argument.name, argument.value) for argument in call(text).arguments]


def test_arguments_by_place() -> None:
    assert arguments("CALL sys.compact('db.t', '', 'zorder', 'a,b');") == [
        (None, "db.t"),
        (None, ""),
        (None, "zorder"),
        (None, "a,b"),
    ]


def test_arguments_by_name_with_and_without_quotes() -> None:
    result = arguments("CALL sys.compact(`table` => 'db.t', table2 => 1, `where` => 'dt > ''a''')")
    assert result == [("table", "db.t"), ("table2", 1), ("where", "dt > 'a'")]
    assert arguments("call sys.compact(table => 'T', where => 'p>0', options => 'a=b')") == [
        ("table", "T"),
        ("where", "p>0"),
        ("options", "a=b"),
    ]


def test_literals() -> None:
    text = """CALL sys.x(CAST(10 AS BIGINT), -1, 1.5, TRUE, false, NULL,
        TIMESTAMP '2026-01-01 00:00:00', ARRAY['a', 'b'], map('k', 'v'))"""
    assert [value for _, value in arguments(text)] == [
        10, -1, 1.5, True, False, None, "2026-01-01 00:00:00", ("a", "b"), {"k": "v"},
    ]  # fmt: skip


def test_the_name_with_its_catalog() -> None:
    full = call("CALL lake.sys.rollback('db.t')")
    assert (full.catalog, full.procedure) == ("lake", "rollback")
    assert call("CALL sys.compact_database()").arguments == ()


@pytest.mark.parametrize(
    ("text", "said", "column"),
    [
        ("CALL compact('db.t')", "write CALL sys.compact", 6),
        ("CALL sys.compact('db.t'", "ends too early", 24),
        ("CALL sys.compact(table = 'db.t')", "write name => value", 24),
        ("CALL sys.compact(table => 'a', 'b')", "before the named ones", 32),
        ("CALL sys.compact(a => 1, a => 2)", "given twice", 26),
        ("CALL sys.compact(a => b)", "expected a literal", 23),
        ("CALL sys.compact('a') x", "end of the statement", 23),
        ("CALL sys.x(map('k'))", "takes pairs", 15),
    ],
)
def test_mistakes_have_a_place(text: str, said: str, column: int) -> None:
    with pytest.raises(SqlError) as caught:
        parse_script(text)
    assert said in str(caught.value)
    assert (caught.value.line, caught.value.column) == (1, column)
