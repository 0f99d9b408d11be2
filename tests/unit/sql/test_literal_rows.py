"""Long lists of VALUES give the same rows whether each cell is parsed, or one of each form."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamhouse.duckdb_engine import no_tables, run_bounded
from streamhouse.errors import QueryError, SqlError, StreamhouseError, TableError
from streamhouse.sql.batch.bounded_query import analyze_bounded
from streamhouse.sql.parser import literal_reader
from streamhouse.sql.plan import CURRENT, AsOf, Column, Name, Resolver, TableInfo
from streamhouse.sql.statements.script import parse_script
from streamhouse.sql.syntax import Insert, Query


class _NoTables(Resolver):
    def table(self, name: Name, as_of: AsOf = CURRENT) -> TableInfo:
        raise TableError(f"there is no table {name}")


_LINE = ",\n"


@pytest.fixture(autouse=True, scope="module")
def _each_list_is_long() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(literal_reader, "LEAST_TOKENS", 1)
        yield


def inserted(rows: Sequence[str]) -> Query:
    """The query of an INSERT of these rows."""
    (statement,) = parse_script(f"INSERT INTO t VALUES {_LINE.join(rows)};")
    assert isinstance(statement, Insert)
    return statement.query


def both(rows: Sequence[str], target: TableInfo | None = None) -> tuple[Any, Any]:
    """What the rows give, read by their forms and parsed; or the error of each."""
    query = inserted(rows)
    parsed = dataclasses.replace(query, rows=None)
    return _answer(query, target), _answer(parsed, target)


def _answer(query: Query, target: TableInfo | None) -> Any:
    try:
        return run_bounded(analyze_bounded(query, _NoTables(), target), no_tables)
    except StreamhouseError as error:
        return type(error).__name__


def table(*types: str) -> TableInfo:
    return TableInfo(("t",), tuple(Column(f"c{i}", kind) for i, kind in enumerate(types)))


def same(rows: Sequence[str], target: TableInfo | None = None) -> pa.Table:
    """The rows of `both`, which are those that the parser gives."""
    query = inserted(rows)
    assert query.rows is not None, "the rows are not read by their forms"
    planned = analyze_bounded(query, _NoTables(), target)
    assert planned.rows is not None, "the rows are analyzed one by one"
    ours, theirs = both(rows, target)
    assert isinstance(theirs, pa.Table), theirs
    assert ours.schema == theirs.schema
    assert ours.to_pylist() == theirs.to_pylist()
    return ours


CELLS = {
    "INT": ["1", "-1", "0", "2147483647", "-2147483648", "NULL", "CAST('7' AS INT)", "1 + 2"],
    "BIGINT": ["1", "9223372036854775807", "-9223372036854775808", "2147483648", "NULL"],
    "DECIMAL(12, 2)": ["1.5", "-10.25", "0.05", "7", "NULL", "CAST(1.005 AS DECIMAL(10, 3))"],
    "DOUBLE": ["1e5", "-2.5E-3", "0.1", "3", "CAST(1.5 AS FLOAT)", "NULL"],
    "STRING": ["'a'", "''", "'it''s'", "'(,);--'", "NULL", "UPPER('x')", "CAST(5 AS STRING)",
               "LOWER('É')", "'two\nlines'", "CAST(TRUE AS STRING)"],
    "BOOLEAN": ["TRUE", "false", "NULL", "1 > 2"],
    "DATE": ["DATE '2024-02-29'", "CAST('2024-01-31' AS DATE)", "TO_DATE('2020-01-01')", "NULL"],
    "TIMESTAMP(3)": ["TIMESTAMP '2024-01-01 00:00:00'", "TIMESTAMP '2024-01-01 00:00:00.123'",
                     "TO_TIMESTAMP('2024-05-06 07:08:09')",
                     "TIMESTAMP '2024-01-01 01:02:03.123456'",
                     "CAST('2024-01-01 10:00:00.5' AS TIMESTAMP(3))", "NULL",
                     "TO_TIMESTAMP_LTZ(1700000000123, 3)", "TO_TIMESTAMP('no time')"],
    "TIME": ["TIME '10:11:12'", "NULL"],
    "ARRAY<INT>": ["ARRAY[1, 2]", "ARRAY[3, NULL]", "ARRAY[ -1 ]"],
    "MAP<STRING, INT>": ["MAP['a', 1]", "MAP['b', 2, 'c', 3]"],
}  # fmt: skip
"""Columns with cells that can stand in them."""


@pytest.mark.parametrize("kind", CELLS)
def test_each_cell_separately_and_all_cells_of_a_type_together(kind: str) -> None:
    cells = CELLS[kind]
    around = zip(cells, cells, reversed(cells), strict=True)
    rows = [f"({', '.join([*cells, one, other])})" for _, one, other in around]
    same(rows, table(*[kind] * (len(cells) + 2)))


@settings(max_examples=15)
@given(data=st.data())
def test_any_mixture_of_cells(data: st.DataObject) -> None:
    kinds = data.draw(st.lists(st.sampled_from(sorted(CELLS)), min_size=1, max_size=4))
    cells = st.tuples(*(st.sampled_from(CELLS[kind]) for kind in kinds))
    rows = data.draw(st.lists(cells, min_size=1, max_size=8))
    same([f"({', '.join(row)})" for row in rows], table(*kinds))


@settings(max_examples=15)
@given(rows=st.lists(st.tuples(
    st.one_of(st.integers(-(2**63), 2**63 - 1), st.none()),
    st.one_of(st.decimals(-10**9, 10**9, places=2, allow_nan=False), st.none()),
    st.one_of(st.text(st.characters(codec="utf-8", exclude_characters="\0")),
              st.none()),
), min_size=1, max_size=20))  # fmt: skip
def test_any_values(rows: list[tuple[Any, Any, str | None]]) -> None:
    def literal(value: Any) -> str:
        if value is None:
            return "NULL"
        if isinstance(value, str):
            return "'" + value.replace("'", "''") + "'"
        return format(value, "f") if not isinstance(value, int) else str(value)

    written = [f"({', '.join(map(literal, row))})" for row in rows]
    target = table("BIGINT", "DECIMAL(20, 2)", "STRING")
    result = same(written, target).slice(0, len(rows)).to_pylist()
    assert [tuple(row.values()) for row in result] == rows


@pytest.mark.parametrize(
    "rows",
    [
        ["('a', 1)", "(2, 'b')"],
        ["(1, 2)", "(1)"],
        ["(DATE '2024-02-31')"],
        ["(DATE '2024-02-28')", "(DATE '2024-02-31')"],
        ["(CAST('x' AS INT))"],
        ["(1)", "('x')"],
        ["(UNKNOWN_FUNCTION(1))"],
        ["(id)"],
        ["(1,)"],
        ["()"],
        ["(SELECT 1)"],
        ["[1]"],
        ["(1]"],
        ["(1", "(2)"],
    ],
    ids=" ".join,
)
def test_invalid_values_are_errors_in_both_readers(rows: list[str]) -> None:
    wide = table(*["INT"] * (rows[0].count(",") + 1))
    try:
        answers = both(rows, wide)
    except SqlError:
        return
    assert all(isinstance(answer, str) for answer in answers), answers


def test_rows_keep_the_order_of_the_text() -> None:
    query = inserted([f"({n % 7}, {n})" for n in range(5000)])
    assert query.rows is not None
    result = _answer(query, table("INT", "BIGINT"))
    assert result["c1"].to_pylist() == list(range(5000))


def test_comments_and_line_breaks_between_rows_and_cells() -> None:
    row = "( 1 -- one\n , /* two, (2) */ 'a' )"
    result = same([row, "(2,\n'b''--')  -- two\n"], table("INT", "STRING"))
    assert result.slice(0, 2).to_pylist() == [{"c0": 1, "c1": "a"}, {"c0": 2, "c1": "b'--"}]


@pytest.mark.parametrize(
    "text",
    [
        "INSERT INTO t SELECT * FROM (VALUES {}) AS v (a, b)",
        "INSERT INTO t VALUES {} UNION ALL VALUES (1, 'b')",
        "VALUES {}",
    ],
)
def test_other_queries_are_parsed_whole(text: str) -> None:
    text = text.format("(1, 'a'), (2, 'b')")
    (statement,) = parse_script(text)
    assert statement.query.rows is None  # type: ignore[attr-defined]


def test_every_statement_of_a_script_finds_its_rows() -> None:
    rows = "(1, 'a'), (2, 'b')"
    text = (
        f"SET 'k' = 'VALUES (';\nINSERT INTO a VALUES {rows};\n-- VALUES (1), (2)\n"
        f"BEGIN STATEMENT SET INSERT INTO b (x, y) VALUES {rows}; "
        f"INSERT INTO c SELECT 1, 'x'; END;\nEXPLAIN INSERT INTO d VALUES {rows}"
    )
    _, first, group, explained = parse_script(text)
    inserts = [first, *group.inserts, explained.statement]  # type: ignore[attr-defined]
    assert [insert.target for insert in inserts] == [("a",), ("b",), ("c",), ("d",)]
    assert [insert.query.rows is not None for insert in inserts] == [True, True, False, True]
    assert first.query.text == f"VALUES {rows}"  # type: ignore[attr-defined]


def test_short_lists_are_parsed_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(literal_reader, "LEAST_TOKENS", 20)
    assert inserted(["(1)", "(2)"]).rows is None
    assert inserted(["(1)"] * 10).rows is not None


def test_an_error_in_a_cell_has_its_line_and_column() -> None:
    rows = [*["(1, 'a')"] * 9, "(2, LENGTH('b'))"]
    with pytest.raises(SqlError, match="CHAR_LENGTH") as raised:
        inserted(rows)
    assert (raised.value.line, raised.value.column) == (len(rows), 5)


def test_an_invalid_date_is_an_error() -> None:
    rows = ["(DATE '2024-01-01')", "(DATE '2024-02-31')"]
    with pytest.raises(QueryError, match="2024-02-31"):
        query = inserted(rows)
        run_bounded(analyze_bounded(query, _NoTables(), table("DATE")), no_tables)


def test_columns_with_too_many_forms_are_parsed_whole() -> None:
    rows = [f"(1 + {n}, 'a')" for n in range(literal_reader.MOST_FORMS * 10)]
    assert inserted(rows).rows is None
    ours = _answer(inserted(rows), table("INT", "STRING"))
    assert ours["c0"].to_pylist() == [1 + n for n in range(len(rows))]
