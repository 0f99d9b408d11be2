"""The tree of a query that is parsed again."""

from __future__ import annotations

from sqlglot import exp

from streamhouse.sql.resolution.columns import parse_query
from streamhouse.sql.statements.script import parse_script
from streamhouse.sql.syntax import Query, Select
from streamhouse.sql.udf.registry import declaration_of


def _query(script: str) -> Query:
    statement = parse_script(script)[-1]
    assert isinstance(statement, Select)
    return statement.query


def test_a_planner_does_not_see_what_another_one_changed() -> None:
    query = _query("SELECT a, b FROM t")
    first = parse_query(query).tree
    first.expressions[0].pop()
    assert [each.name for each in parse_query(query).tree.expressions] == ["a", "b"]
    assert [each.name for each in first.expressions] == ["b"]


def test_functions_of_one_name_are_told_apart() -> None:
    """Scripts with equal texts of a query may declare different functions."""
    declared = "CREATE TEMPORARY FUNCTION f AS 'm.{}' LANGUAGE PYTHON; SELECT f(a) FROM t"
    targets = []
    for name in ("g", "h", "g"):
        call = parse_query(_query(declared.format(name))).tree.find(exp.Anonymous)
        assert call is not None
        declaration = declaration_of(call)
        assert declaration is not None
        targets.append(declaration.target)
    assert targets == ["m.g", "m.h", "m.g"]
