"""ARRAY, MAP and ROW values: declared, constructed and written."""

from __future__ import annotations

import duckdb
import pytest
from tests.unit.sql.conftest import Catalog

from streamhouse.errors import SqlError
from streamhouse.sql.statements.script import parse_script
from streamhouse.sql.syntax import CreateTable

TABLES = """
CREATE TABLE nested (id BIGINT, tags ARRAY<STRING>, attrs MAP<STRING, INT>,
  home ROW<city STRING 'where', zip INT>, bits BYTES);
"""


@pytest.fixture
def nested(catalog: Catalog) -> Catalog:
    catalog.add(TABLES)
    return catalog


def test_values_of_all_kinds(nested: Catalog) -> None:
    plan = nested.bounded(
        "INSERT INTO nested VALUES (1, ARRAY['新', 'b'], MAP['k', 7], ROW('杭州', 310000), "
        "CAST('b' AS BYTES)), (2, NULL, MAP['a', 1, 'b', NULL], NULL, NULL)"
    )
    with duckdb.connect(":memory:") as connection:
        assert connection.execute(plan.sql).fetchall() == [
            (1, ["新", "b"], {"k": 7}, {"city": "杭州", "zip": 310000}, b"b"),
            (2, None, {"a": 1, "b": None}, None, None),
        ]


def test_values_of_a_stream(nested: Catalog) -> None:
    text = "INSERT INTO nested SELECT n, ARRAY[s], MAP[s, i], ROW(s, i), CAST(NULL AS BYTES) "
    text += "FROM typed"
    result = nested.rows(text, [{"n": 1, "s": "x", "i": 2}])
    assert result == [(1, ["x"], {"x": 2}, {"city": "x", "zip": 2}, None)]


@pytest.mark.parametrize("row", ["ROW(i, s)", "ROW(s)", "ROW(s, i, i)", "s"])
def test_a_row_that_does_not_fit_is_an_error(nested: Catalog, row: str) -> None:
    with pytest.raises(SqlError, match="column 'home' is ROW<city STRING, zip INT>, but the query"):
        nested.stream(f"INSERT INTO nested (home) SELECT {row} FROM typed")


def test_fields_may_have_comments() -> None:
    (made,) = parse_script(TABLES)
    assert isinstance(made, CreateTable)
    assert made.columns[3].type == "ROW<city STRING, zip INT>"
