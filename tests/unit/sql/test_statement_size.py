"""Long statements take linear time; too deeply nested ones are an error."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any

import pytest

from streamhouse.errors import SqlError
from streamhouse.sql.batch.bounded_query import analyze_bounded
from streamhouse.sql.statements.script import parse_script
from streamhouse.sql.syntax import Insert, Select

if TYPE_CHECKING:
    from tests.unit.sql.conftest import Catalog


def _numbers(count: int) -> str:
    return ", ".join(map(str, range(count)))


def _rows(count: int) -> str:
    return ", ".join(
        f"({n}, {n}, 1.5, 'x{n}', TIMESTAMP '2024-01-01 00:00:00')" for n in range(count)
    )


def _case(count: int) -> str:
    return "CASE " + " ".join(f"WHEN id = {n} THEN 'v{n}'" for n in range(count)) + " END"


def _chain(count: int, word: str) -> str:
    return f" {word} ".join(f"id <> {n}" for n in range(count))


def _union(count: int) -> str:
    return " UNION ALL ".join(f"SELECT id + {n} FROM customers" for n in range(count))


def _with(count: int) -> str:
    queries = [f"w{n} AS (SELECT id FROM w{n - 1})" for n in range(1, count)]
    return f"WITH w0 AS (SELECT id FROM customers), {', '.join(queries)} SELECT * FROM w{count - 1}"


FORMS: dict[str, tuple[int, Callable[[int], str]]] = {
    "IN": (100, lambda n: f"SELECT id FROM customers WHERE id IN ({_numbers(n)})"),
    "CASE": (40, lambda n: f"SELECT {_case(n)} FROM customers"),
    "AND": (40, lambda n: f"SELECT id FROM customers WHERE {_chain(n, 'AND')}"),
    "OR": (40, lambda n: f"SELECT id FROM customers WHERE {_chain(n, 'OR')}"),
    "UNION ALL": (12, _union),
    "WITH": (12, _with),
    "columns": (40, lambda n: f"SELECT {', '.join(f'id + {i} AS c{i}' for i in range(n))} "
                               "FROM customers"),
    "VALUES": (20, lambda n: f"SELECT * FROM (VALUES {_rows(n)}) AS v"),
    "INSERT": (100, lambda n: f"INSERT INTO many VALUES {_rows(n)}"),
    "statements": (10, lambda n: ";\n".join(["SELECT id FROM customers"] * n)),
    "statement set": (20, lambda n: "BEGIN STATEMENT SET;\n" + "INSERT INTO plain SELECT "
                                    "country, 1, 2 FROM customers;\n" * n + "END"),
    "hints": (20, lambda n: ";\n".join(
        ["SELECT id FROM customers /*+ OPTIONS('scan.snapshot-id' = '1') */"] * n)),
    "secrets": (20, lambda n: ";\n".join(
        ["CREATE TABLE x (id INT) WITH ('password' = 'secret')"] * n)),
}  # fmt: skip
"""A form of statements, a length, and its text of a length."""


@pytest.mark.parametrize("form", FORMS)
def test_the_calls_that_a_statement_takes_grow_with_its_length(catalog: Catalog, form: str) -> None:
    catalog.add("CREATE TABLE many (a INT, b BIGINT, c DOUBLE, d STRING, e TIMESTAMP(3))")
    length, text = FORMS[form]
    _calls(catalog, text(length))
    once, longer = (_calls(catalog, text(times * length)) for times in (1, 4))
    # 4 if all of the work grows with the text; the square would be 16.
    assert longer / once < 5


def _calls(catalog: Catalog, text: str) -> int:
    """How many functions are called, also of the interpreter's own, to parse and plan."""
    count = 0

    def call(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(call)
    try:
        for statement in parse_script(text):
            if isinstance(statement, Select):
                analyze_bounded(statement.query, catalog)
            elif isinstance(statement, Insert):
                analyze_bounded(statement.query, catalog, catalog.table(statement.target))
    finally:
        sys.setprofile(before)
    return count


def _in_parentheses(depth: int) -> str:
    return f"SELECT {'(' * depth}id{')' * depth} FROM customers"


def _in_cases(depth: int) -> str:
    return f"SELECT {'CASE WHEN id > 1 THEN ' * depth}1{' ELSE 0 END' * depth} FROM customers"


def _in_queries(depth: int) -> str:
    ends = "".join(f") AS q{n}" for n in range(depth))
    return f"{'SELECT id FROM (' * depth}SELECT id FROM customers{ends}"


def _in_sums(depth: int) -> str:
    return f"SELECT {' + '.join(['id'] * depth)} FROM customers"


DEEP = [_in_parentheses, _in_cases, _in_queries, _in_sums]


@pytest.mark.parametrize("nested", DEEP, ids=lambda one: one.__name__)
def test_a_hundred_levels_can_be_planned(catalog: Catalog, nested: Callable[[int], str]) -> None:
    assert catalog.bounded(nested(100)).scans
    if nested is not _in_queries:
        assert catalog.stream(nested(100).replace("customers", "orders").replace("id", "order_id"))


@pytest.mark.parametrize("depth", [300, 1200])
@pytest.mark.parametrize("nested", DEEP, ids=lambda one: one.__name__)
def test_more_levels_are_planned_or_a_clear_error(
    catalog: Catalog, nested: Callable[[int], str], depth: int
) -> None:
    try:
        catalog.bounded(nested(depth))
    except SqlError as error:
        assert "nested too deeply" in error.message
        assert error.line == 1
    else:
        assert depth == 300


@pytest.mark.parametrize("place", [0, 5000])
def test_an_error_in_a_very_long_line_shows_a_part_of_it(place: int) -> None:
    names = [f"c{n}" for n in range(10000)]
    names[place] = "UUID()"
    with pytest.raises(SqlError) as raised:
        parse_script(f"SELECT {', '.join(names)} FROM t")
    _, line, carets = str(raised.value).split("\n")
    assert len(line) < 250
    assert line[carets.index("^") :].startswith("UUID")
