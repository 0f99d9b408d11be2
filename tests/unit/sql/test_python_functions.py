"""Python functions in SQL: their statements, types, values, nulls and errors."""

from __future__ import annotations

import itertools
import pickle
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from tests.single_stream import analyze_stream
from tests.unit.sql.conftest import Catalog

from streamhouse.duckdb_connection import LastingConnection
from streamhouse.duckdb_engine import run_bounded
from streamhouse.errors import QueryError, SqlError
from streamhouse.sql.batch.bounded_query import analyze_bounded
from streamhouse.sql.expressions.udf_conversion import widens
from streamhouse.sql.statements.script import parse_script
from streamhouse.sql.syntax import CreateFunction, Drop, Insert, Select
from streamhouse.sql.udf import registry
from streamhouse.sql.udf_modules import module

HEAD = """
import datetime
from decimal import Decimal
from typing import Annotated
import pyarrow as pa
import pyarrow.compute as pc
"""
PLUS = "def plus(a: int, b: int) -> int:\n    return a + b\n"
_numbers = itertools.count()


@pytest.fixture
def created(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """Writes a module of functions; the statements that create them all."""
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])

    def create(text: str) -> str:
        name = f"functions_{next(_numbers)}"
        (tmp_path / f"{name}.py").write_text(HEAD + dedent(text))
        names = [line[4:].split("(")[0] for line in dedent(text).splitlines() if line[:4] == "def "]
        return "".join(
            f"CREATE TEMPORARY FUNCTION {one} AS '{name}.{one}' LANGUAGE PYTHON;\n" for one in names
        )

    return create


def selected(sql: str, catalog: Catalog | None = None) -> list[tuple[Any, ...]]:
    """The rows of the SELECT at the end of a script that only creates functions before it."""
    *before, last = parse_script(sql)
    for statement in before:
        assert isinstance(statement, CreateFunction)
        module.define(statement.declaration)
    assert isinstance(last, Select)
    plan = analyze_bounded(last.query, catalog or Catalog())
    table = run_bounded(plan, lambda scan: pytest.fail("reads no table"))
    return [tuple(row.values()) for row in table.to_pylist()]


def refused(sql: str, kind: type[SqlError] = SqlError) -> SqlError:
    with pytest.raises(kind) as caught:
        selected(sql)
    return caught.value


def test_the_statements() -> None:
    text = (
        "CREATE TEMPORARY SYSTEM FUNCTION IF NOT EXISTS One AS 'a.b.one' LANGUAGE PYTHON;"
        "CREATE FUNCTION c.d.two AS 'a.two' LANGUAGE PYTHON;"
        "CREATE FUNCTION IF NOT EXISTS two AS 'a.other' LANGUAGE PYTHON;"
        "SELECT one(1), TWO(2);"
        "DROP TEMPORARY SYSTEM FUNCTION one; DROP FUNCTION IF EXISTS one; DROP FUNCTION d.two"
    )
    one, two, again, select, *drops = parse_script(text)
    assert isinstance(one, CreateFunction) and isinstance(two, CreateFunction)
    assert (one.declaration.name, one.declaration.module) == ("one", "a.b")
    assert (one.permanent, two.permanent, two.declaration.attribute) == (False, True, "two")
    assert isinstance(again, CreateFunction) and again.already_exists and isinstance(select, Select)
    assert {key: value.target for key, value in select.query.functions.items()} == {
        "one": "a.b.one", "two": "a.two",
    }  # fmt: skip
    assert [drop.kind for drop in drops if isinstance(drop, Drop)] == ["FUNCTION"] * 3


@pytest.mark.parametrize(
    ("sql", "message", "column"),
    [
        ("CREATE FUNCTION f AS 'f' LANGUAGE PYTHON", "write 'module.function'", 22),
        ("CREATE FUNCTION f AS 'a b.f' LANGUAGE PYTHON", "write 'module.function'", 22),
        ("CREATE FUNCTION f AS 'a.f' LANGUAGE PYTON", "did you mean PYTHON", 37),
        ("CREATE FUNCTION Upper AS 'a.f' LANGUAGE PYTHON", "UPPER is a built-in function", 17),
        ("CREATE FUNCTION cast AS 'a.f' LANGUAGE PYTHON", "CAST is a built-in function", 17),
        ("CREATE FUNCTION tumble AS 'a.f' LANGUAGE PYTHON", "TUMBLE is a built-in", 17),
        ("CREATE FUNCTION `select` AS 'a.f' LANGUAGE PYTHON", "SELECT is a SQL keyword", 17),
        ("CREATE FUNCTION `a-b` AS 'a.f' LANGUAGE PYTHON", "letters, digits and _", 17),
        ("CREATE TEMPORARY SYSTEM FUNCTION d.f AS 'a.f' LANGUAGE PYTHON", "has no database", 34),
        ("DROP FUNCTION f", "the script has created none", 15),
        ("DROP FUNCTION upper", "it is built in", 15),
        ("SELECT f(1)", "function 'f' is not supported", 8),
    ],
)
def test_invalid_statements_have_a_position_and_a_message(
    sql: str, message: str, column: int
) -> None:
    with pytest.raises(SqlError) as caught:
        parse_script(f"SELECT 1;\n{sql}")
    assert message in str(caught.value)
    assert (caught.value.line, caught.value.column) == (2, column)


def test_names_are_those_of_the_text_above(created: Callable[[str], str]) -> None:
    create = created(PLUS)
    for sql, message in (
        (f"{create}{create}", "already exists; DROP it"),
        (f"{create}DROP FUNCTION plus; SELECT plus(1, 2)", "function 'plus' is not supported"),
        (f"SELECT plus(1, 2);{create}", "function 'plus' is not supported"),
        (f"{create}DROP FUNCTION pluss", "did you mean 'plus'"),
        (f"{create}SELECT d.plus(1, 2)", "write plus(…)"),
        (f"{create}SELECT plus(DISTINCT 1, 2)", "expected ')'"),
        (f"{create}SELECT plus(*)", "expected ')'"),
        (f"{create}CREATE TABLE t (a INT, b AS plus(a, 1))", "belongs only to the script"),
        (f"{create}CREATE TABLE t (a TIMESTAMP(3), WATERMARK FOR a AS plus(a, 1))", "belongs only"),
    ):
        with pytest.raises(
            SqlError, match="(?s)" + message.replace("(", r"\(").replace(")", r"\)")
        ):
            parse_script(sql)


ROUND_TRIPS: Sequence[tuple[str, str, str]] = (
    ("bool", "TRUE", "True"),
    ("int", "CAST(7 AS TINYINT)", "7"),
    ("float", "CAST(1.5 AS FLOAT)", "1.5"),
    ("float", "CAST(2 AS BIGINT)", "2.0"),
    ("str", "'ä'", "'ä'"),
    ("bytes", "X'00FF'", "b'\\x00\\xff'"),
    ("datetime.date", "DATE '2024-02-29'", "datetime.date(2024, 2, 29)"),
    ("datetime.time", "TIME '01:02:03'", "datetime.time(1, 2, 3)"),
    ("datetime.datetime", "TIMESTAMP '2024-02-29 01:02:03.004'",
     "datetime.datetime(2024, 2, 29, 1, 2, 3, 4000)"),
    ('Annotated[Decimal, "DECIMAL(10, 2)"]', "CAST(1.5 AS DECIMAL(4, 1))", "Decimal('1.50')"),
    ('Annotated[int, "SMALLINT"]', "300", "300"),
    ('Annotated[list, "ARRAY<STRING>"]', "ARRAY['a', CAST(NULL AS STRING)]", "['a', None]"),
    ('Annotated[dict, "MAP<STRING, INT>"]', "MAP['a', 1]", "{'a': 1}"),
    ('Annotated[datetime.datetime, "TIMESTAMP_LTZ(3)"]', "TO_TIMESTAMP_LTZ(1000, 3)",
     "datetime.datetime(1970, 1, 1, 0, 0, 1, tzinfo=<UTC>)"),
)  # fmt: skip


@pytest.mark.parametrize(("hint", "sql", "seen"), ROUND_TRIPS)
def test_values_come_and_go(created: Callable[[str], str], hint: str, sql: str, seen: str) -> None:
    create = created(f"""
        def same(a: {hint}) -> {hint}:
            return a
        def seen(a: {hint}) -> str:
            return repr(a)
        """)
    ((same, displayed, null),) = selected(f"{create}SELECT same({sql}), seen({sql}), same(NULL)")
    assert null is None
    assert displayed.replace("datetime.timezone.utc", "<UTC>").replace(
        "zoneinfo.ZoneInfo(key='UTC')", "<UTC>"
    ) == seen  # fmt: skip
    if "tzinfo" not in seen and "MAP" not in hint:
        assert repr(same) == seen


@pytest.mark.parametrize(
    ("kind", "sql", "arrow"),
    [
        ("pa.int8()", "CAST(1 AS TINYINT)", "int8"),
        ("pa.float32()", "CAST(1 AS FLOAT)", "float"),
        ('"TIMESTAMP(3)"', "TIMESTAMP '2024-01-01 00:00:00.123'", "timestamp[ms]"),
        ('pa.timestamp("ns")', "CAST('2024-01-01 00:00:00.123456789' AS TIMESTAMP(9))",
         "timestamp[ns]"),
        ('"TIMESTAMP_LTZ(6)"', "TO_TIMESTAMP_LTZ(1, 3)", "timestamp[us, tz=UTC]"),
        ("pa.decimal128(12, 3)", "CAST(1.25 AS DECIMAL(12, 3))", "decimal128(12, 3)"),
        ("pa.list_(pa.int32())", "ARRAY[1, 2]", "list<l: int32>"),
        ('"MAP<STRING, DOUBLE>"', "MAP['a', CAST(1 AS DOUBLE)]", "map<string, double>"),
        ('"ROW<a INT, b STRING>"', "CAST(ROW(1, 'x') AS ROW<a INT, b STRING>)",
         "struct<a: int32, b: string>"),
    ],
)  # fmt: skip
def test_arrays_have_the_types_that_are_declared(
    created: Callable[[str], str], kind: str, sql: str, arrow: str
) -> None:
    create = created(f"""
        def same(a: Annotated[pa.Array, {kind}]) -> Annotated[pa.Array, {kind}]:
            assert isinstance(a, pa.Array), type(a)
            return a
        def shown(a: Annotated[pa.Array, {kind}]) -> Annotated[pa.Array, "STRING"]:
            return pa.array([f"{{a.type}} {{a.null_count}}"] * len(a))
        """)
    rows = selected(
        f"{create}SELECT shown(x), shown(NULL), same(x) IS NOT NULL FROM (VALUES ({sql})) AS v (x)"
    )
    assert rows == [(f"{arrow} 0", f"{arrow} 1", True)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def f(a) -> int: ...", "parameter 'a' has no type; annotate it"),
        ("def f(a: int): ...", "its result has no type"),
        ("def f() -> int: ...", "it has no parameters"),
        ("def f(a: Decimal) -> int: ...", 'write Annotated[Decimal, "DECIMAL(10, 2)"]'),
        ("def f(a: list[int]) -> int: ...", "parameter 'a' has no SQL type"),
        ("def f(a: pa.Array) -> int: ...", 'write Annotated[pa.Array, "BIGINT"]'),
        ("def f(a: int | str) -> int: ...", "parameter 'a' has no SQL type"),
        ("def f(a: int) -> Annotated[pa.Array, 'INT']: ...", "arrays and single values"),
        ("def f(a: Annotated[int, 'INTEGR']) -> int: ...", "'INTEGR' is not a SQL type"),
        ("def f(a: Annotated[int, 'INT x']) -> int: ...", "'INT x' is not a SQL type"),
        ("def f(a: Annotated[str, 'VARCHAR(3)']) -> int: ...", "have no length, write STRING"),
        ("def f(a: Annotated[str, 'TIMESTAMP(2)']) -> int: ...", "write TIMESTAMP(0) or"),
        ("def f(a: Annotated[str, 'TIMESTAMP(9)']) -> int: ...", "datetime cannot hold"),
        ("def f(a: Annotated[pa.Array, pa.uint8()]) -> int: ...", "Arrow's uint8"),
        ("def f(a: Annotated[pa.Array, 'INT', 'INT']) -> int: ...", "has two types"),
        ("def f(*a: int) -> int: ...", "cannot be passed by position"),
        ("def f(a: int, *, b: int) -> int: ...", "parameter 'b' cannot be passed by position"),
        ("def f(a: 'Nothing') -> int: ...", "its annotations cannot be read"),
        ("async def f(a: int) -> int: ...", "asynchronous"),
        ("def f(a: int) -> int:\n    yield a", "generator"),
        ("class f:\n    pass", "it is not a function"),
        ("f = 1", "it is not a function"),
        ("g = 1", "has no function 'f'"),
        ("1 / 0", "cannot be imported: ZeroDivisionError: division by zero"),
        ("import nothing_of_this_name", "cannot be imported: ModuleNotFoundError"),
        ("def f(:", "cannot be imported: SyntaxError"),
        ("raise SystemExit(3)", "cannot be imported: SystemExit"),
    ],
)
def test_functions_that_sql_cannot_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, message: str
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    name = f"functions_{next(_numbers)}"
    (tmp_path / f"{name}.py").write_text(HEAD + text)
    error = refused(f"CREATE FUNCTION f AS '{name}.f' LANGUAGE PYTHON; SELECT 1")
    assert message in str(error)


def test_a_missing_module() -> None:
    error = refused("CREATE FUNCTION f AS 'no_such_module.f' LANGUAGE PYTHON; SELECT 1")
    assert "put no_such_module.py next to the script" in str(error)


WIDE = """
def whole(a: int) -> int:
    return a
def small(a: Annotated[int, "SMALLINT"]) -> int:
    return a
def price(a: Annotated[Decimal, "DECIMAL(10, 2)"]) -> str:
    return str(a)
def word(a: str) -> str:
    return a
def instant(a: Annotated[datetime.datetime, "TIMESTAMP(3)"]) -> str:
    return str(a)
"""


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("whole(1, 2)", "whole takes 1 argument(s), not 2; write whole(BIGINT)"),
        ("whole()", "whole takes 1 argument(s), not 0"),
        ("whole('1')", "argument 1 of whole is STRING, but the function takes BIGINT; write CAST("),
        ("whole(1.5)", "is DECIMAL(2, 1), but the function takes BIGINT"),
        ("whole(CAST(1 AS DOUBLE))", "is DOUBLE, but the function takes BIGINT"),
        ("small(40000)", "is INT, but the function takes SMALLINT"),
        ("small(CAST(1 AS INT))", "is INT, but the function takes SMALLINT"),
        ("price(CAST(1 AS INT))", "is INT, but the function takes DECIMAL(10, 2)"),
        ("price(CAST(1 AS DOUBLE))", "is DOUBLE, but the function takes DECIMAL(10, 2)"),
        ("price(1.234)", "is DECIMAL(4, 3), but the function takes DECIMAL(10, 2)"),
        ("price(CAST(1 AS DECIMAL(4, 2)) / 3)", "the function takes DECIMAL(10, 2)"),
        ("word(1)", "is INT, but the function takes STRING"),
        ("word(DATE '2024-01-01')", "is DATE, but the function takes STRING"),
        ("instant(DATE '2024-01-01')", "is DATE, but the function takes TIMESTAMP(3)"),
        ("instant(TIMESTAMP '2024-01-01 00:00:00.123456')", "is TIMESTAMP(6), but the"),
        ("whole(INTERVAL '1' DAY)", "is INTERVAL, but the function takes BIGINT"),
    ],
)
def test_wrong_arguments_are_errors_at_the_call(
    created: Callable[[str], str], call: str, message: str
) -> None:
    error = refused(f"{created(WIDE)}SELECT 1,\n  {call}")
    assert message in str(error) and (error.line, error.column) == (7, 3)


def test_arguments_are_widened(created: Callable[[str], str]) -> None:
    sql = (
        "SELECT whole(CAST(x AS TINYINT)), whole(x), whole(x / 2), small(-32768), price(12345678), "
        "price(CAST(x AS SMALLINT)), price(CAST(x AS DECIMAL(3, 1))), word(s), word(CAST('a' AS "
        "CHAR(2))), instant(TIMESTAMP '2024-01-01 00:00:00'), whole(whole(x) + small(1)) "
        "FROM (VALUES (5, 'a')) AS v (x, s)"
    )
    ((*result,),) = selected(created(WIDE) + sql)
    assert result == [
        5, 5, 2, -32768, "12345678.00", "5.00", "5.00", "a", "a ", "2024-01-01 00:00:00", 6,
    ]  # fmt: skip


def test_no_conversion_loses_anything_or_changes_the_kind() -> None:
    for source, target in (
        ("BIGINT", "INT"), ("BIGINT", "DECIMAL(18, 0)"), ("INT", "FLOAT"), ("INT", "STRING"),
        ("DECIMAL(10, 2)", "DECIMAL(10, 3)"), ("DECIMAL(10, 2)", "BIGINT"), ("DOUBLE", "FLOAT"),
        ("TIMESTAMP(6)", "TIMESTAMP(3)"), ("TIMESTAMP_LTZ(6)", "TIMESTAMP(3)"), ("DATE", "TIME(0)"),
        ("ARRAY<INT>", "ARRAY<BIGINT>"), ("STRING", "BYTES"), ("BOOLEAN", "INT"),
        ("ROW<`a` INT>", "ROW<`b` INT>"),
    ):  # fmt: skip
        assert not widens(source, target), (source, target)
    for source, target in (
        ("NULL", "ARRAY<INT>"), ("INT", "BIGINT"), ("BIGINT", "DECIMAL(19, 0)"),
        ("BIGINT", "DOUBLE"), ("SMALLINT", "FLOAT"), ("FLOAT", "DOUBLE"),
        ("DECIMAL(10, 2)", "DECIMAL(12, 3)"), ("DECIMAL(38, 10)", "DOUBLE"),
        ("TIMESTAMP(3)", "TIMESTAMP(6)"), ("TIME(6)", "TIME(3)"),
        ("TIMESTAMP_LTZ(6)", "TIMESTAMP_LTZ(3)"), ("TIMESTAMP(3)", "TIMESTAMP_LTZ(3)"),
        ("ARRAY<INT>", "ARRAY<INT>"),
    ):  # fmt: skip
        assert widens(source, target), (source, target)


def test_nulls(created: Callable[[str], str]) -> None:
    create = created("""
        def strict(a: int, b: str | None) -> str:
            return f"{a} {b}"
        def known(a: Annotated[pa.Array, "BIGINT"]) -> Annotated[pa.Array, "BOOLEAN"]:
            return a.is_valid()
        def odd(a: int) -> int | None:
            return a if a % 2 else None
        """)
    rows = selected(
        f"{create}SELECT strict(x, s), known(x), odd(x), odd(NULL) FROM "
        "(VALUES (1, 'a'), (2, CAST(NULL AS STRING)), (CAST(NULL AS INT), 'c')) AS v (x, s)"
    )
    assert rows == [
        ("1 a", True, 1, None), ("2 None", True, None, None), (None, False, None, None),
    ]  # fmt: skip


ARRAYS = "def f(a: Annotated[pa.Array, {0}]) -> Annotated[pa.Array, {1}]:\n    return {2}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (ARRAYS.format('"INT"', '"INT"', "a.slice(1)"), "returned 1 values for 2 rows"),
        (ARRAYS.format('"INT"', '"INT"', "list(a)"), "a list; return a pyarrow.Array"),
        (ARRAYS.format('"INT"', '"INT"', "None"), "a NoneType; return a pyarrow.Array"),
        (ARRAYS.format('"INT"', '"STRING"', "a"), "an array of int32, declared as STRING"),
        (ARRAYS.format('"INT"', '"INT"', "a.cast(pa.float64())"), "an array of double"),
        (ARRAYS.format('"INT"', '"TINYINT"', "pc.add(a, 1000)"), "is not of type TINYINT"),
        (ARRAYS.format('"INT"', '"FLOAT"', "a.cast(pa.float64())"), "an array of double"),
        (ARRAYS.format('"INT"', '"TIMESTAMP(0)"', "a.cast(pa.int64()).cast(pa.timestamp('ms'))"),
         "a value that is not of type TIMESTAMP(0)"),
        (ARRAYS.format('"INT"', '"INT"', "1 / 0"), "raised ZeroDivisionError: division by zero"),
        ("def f(a: int) -> int:\n    return str(a)", "returned '1' for (1), which is not of type"),
        ("def f(a: int) -> int:\n    return True", "returned True for (1), which is not of type"),
        ("def f(a: int) -> int:\n    return 1.0", "returned 1.0 for (1), which is not of type"),
        ("def f(a: int) -> int:\n    return 2**63", "which is not of type BIGINT"),
        ("def f(a: int) -> str:\n    return b'a'", "which is not of type STRING"),
        ("def f(a: int) -> int:\n    pass", "returned None for (1); annotate the result as … | "),
        ("def f(a: int) -> Annotated[Decimal, 'DECIMAL(4, 1)']:\n    return Decimal('0.12')",
         "which is not of type DECIMAL(4, 1)"),
        ("def f(a: int) -> datetime.date:\n    return datetime.datetime(2024, 1, 1)", "type DATE"),
        ("def f(a: int) -> datetime.datetime:\n"
         "    return datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)", "has a time zone"),
        ("def f(a: int) -> Annotated[datetime.datetime, 'TIMESTAMP_LTZ(3)']:\n"
         "    return datetime.datetime(2024, 1, 1)", "has no time zone"),
        ("def f(a: int) -> Annotated[datetime.datetime, 'TIMESTAMP(3)']:\n"
         "    return datetime.datetime(2024, 1, 1, 0, 0, 0, 1)", "is not of type TIMESTAMP(3)"),
        ("def f(a: int) -> datetime.time:\n    return datetime.time(1, 1, 1, 1)", "type TIME(3)"),
        ("def f(a: int) -> int:\n    raise KeyError('lost\\nand found')",
         "raised KeyError: 'lost\\nand found' (functions_"),
        ("def f(a: int) -> int:\n    raise SystemExit", "raised SystemExit"),
    ],
)  # fmt: skip
def test_errors_while_rows_are_computed(
    created: Callable[[str], str], text: str, message: str
) -> None:
    create = created(text)
    with pytest.raises(QueryError) as caught:
        selected(f"{create}SELECT f(x) FROM (VALUES (1), (2)) AS v (x)")
    assert message in str(caught.value) and str(caught.value).startswith("function f ('functions_")
    assert "UDF" not in str(caught.value) and "\n" not in str(caught.value)


def test_arrays_may_be_of_another_type_of_the_same_kind(created: Callable[[str], str]) -> None:
    create = created("""
        def narrow(a: Annotated[pa.Array, "INT"]) -> Annotated[pa.Array, "BIGINT"]:
            return a.cast(pa.int8())
        def large(a: Annotated[pa.Array, "STRING"]) -> Annotated[pa.Array, "STRING"]:
            return a.cast(pa.large_string())
        def coded(a: Annotated[pa.Array, "STRING"]) -> Annotated[pa.Array, "STRING"]:
            return a.dictionary_encode()
        def nothing(a: Annotated[pa.Array, "STRING"]) -> Annotated[pa.Array, "DECIMAL(4, 1)"]:
            return pa.nulls(len(a))
        def chunks(a: Annotated[pa.Array, "INT"]) -> Annotated[pa.Array, "INT"]:
            return pa.chunked_array([a.slice(0, 1), a.slice(1)])
        def exact(a: Annotated[pa.Array, "INT"]) -> Annotated[pa.Array, "DECIMAL(4, 1)"]:
            return a
        """)
    rows = selected(
        f"{create}SELECT narrow(x), large(s), coded(s), nothing(s), chunks(x), CAST(exact(x) AS "
        "STRING) FROM (VALUES (1, 'a'), (2, 'a')) AS v (x, s)"
    )
    assert rows == [(1, "a", "a", None, 1, "1.0"), (2, "a", "a", None, 2, "2.0")]


def test_results_have_their_types_in_enclosing_expressions(created: Callable[[str], str]) -> None:
    create = created("""
        def half(a: int) -> Annotated[Decimal, "DECIMAL(6, 2)"]:
            return Decimal(a) / 2
        def at(a: int) -> Annotated[datetime.datetime, "TIMESTAMP(0)"]:
            return datetime.datetime(2024, 1, 1, 0, 0, a)
        """)
    rows = selected(
        f"{create}SELECT half(7) / 3, half(x) + 1, CAST(at(x) AS STRING), at(x) + INTERVAL '1' DAY "
        "> at(x), x / CAST(half(4) AS INT), UPPER(CAST(half(x) AS STRING)) "
        "FROM (VALUES (5)) AS v (x)"
    )
    text = [str(row) for row in rows[0]]
    assert text == ["1.1666666666667", "3.50", "2024-01-01 00:00:05", "True", "2", "2.50"]
    error = refused(f"{create}SELECT half(1) || 'x' FROM (VALUES (5)) AS v (x) WHERE half(x)")
    assert "must be BOOLEAN" in str(error)


def test_calls_are_allowed_wherever_an_expression_is(created: Callable[[str], str]) -> None:
    create = created("def twice(a: int) -> int:\n    return a * 2")
    assert selected(
        f"""{create}
        WITH q AS (SELECT twice(x) AS y, x FROM (VALUES (1), (2), (3)) AS v (x))
        SELECT twice(SUM(twice(y))), CASE WHEN MAX(x) > 2 THEN `twice`(MAX(x)) END,
          twice((SELECT MIN(y) FROM q)), COUNT(*) FILTER (WHERE twice(x) > 2)
        FROM q JOIN (VALUES (4), (8)) AS w (z) ON twice(q.y) = w.z
        WHERE twice(x) IN (2, 4) OR EXISTS (SELECT 1 FROM q AS r WHERE twice(CAST(q.x AS INT)) > 99)
        GROUP BY twice(x) HAVING twice(MIN(x)) > 0 ORDER BY twice(MIN(x)) DESC
        """
    ) == [(16, None, 4, 1), (8, None, 4, 0)]
    assert selected(
        f"{create}SELECT (SELECT MAX(twice(r.y)) FROM (VALUES (1)) AS q (x)) "
        "FROM (VALUES (1)) AS r (y)"
    ) == [(2,)]


def test_many_rows_and_constants(created: Callable[[str], str]) -> None:
    create = created("""
        Whole = Annotated[pa.Array, "BIGINT"]
        def add(a: Whole, b: Whole) -> Whole:
            return pc.add(a, b)
        """)
    values = ", ".join(f"({number})" for number in range(5_000))
    ((total, rows),) = selected(
        f"{create}SELECT SUM(add(x, 1)), COUNT(*) FROM (VALUES {values}) AS v (x) "
        "WHERE MOD(add(x, x), 4) = 0"
    )
    assert (total, rows) == (sum(x + 1 for x in range(0, 5_000, 2)), 2_500)


def test_binding_a_query_runs_no_function(created: Callable[[str], str]) -> None:
    create = created("def boom(a: int) -> int:\n    raise ValueError(a)")
    *_, last = parse_script(f"{create}SELECT boom(1), boom(x) FROM (VALUES (1)) AS v (x)")
    module.define(parse_script(create)[0].declaration)  # type: ignore[attr-defined]
    assert isinstance(last, Select)
    plan = analyze_bounded(last.query, Catalog())
    assert [function.name for function in plan.functions] == ["boom"]
    # A branch that is never taken calls nothing.
    assert selected(
        f"{create}SELECT CASE WHEN x > 5 THEN boom(x) ELSE x END FROM (VALUES (1)) AS v (x)"
    ) == [(1,)]


def streamed(catalog: Catalog, sql: str) -> Any:
    *before, last = parse_script(sql)
    for statement in before:
        assert isinstance(statement, CreateFunction)
        module.define(statement.declaration)
    assert isinstance(last, Insert)
    target = catalog.table(last.target)
    return analyze_stream(last.query, catalog, target)


def test_a_stream_carries_its_functions(catalog: Catalog, created: Callable[[str], str]) -> None:
    create = created("def twice(a: float) -> float:\n    return a * 2")
    insert = (
        "INSERT INTO plain SELECT 'x', order_id, twice(price) FROM orders WHERE twice(price) > 2"
    )
    query = streamed(catalog, create + insert)
    (function,) = query.rows.functions
    assert (function.name, function.sources.modules[0].name) == ("twice", function.target[:-6])
    assert function.engine_name in query.rows.sql.lower()
    other = streamed(catalog, created("def twice(a: float) -> float:\n    return a + a") + insert)
    assert other.fingerprint != query.fingerprint
    again = streamed(catalog, create + insert)
    assert again.fingerprint == query.fingerprint and again == query


def test_executors_have_the_source_that_the_driver_read(
    created: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = created("""
        from shared_number import STEP
        def step(a: int) -> int:
            import shared_other
            return a + STEP + shared_other.MORE
        """)
    (tmp_path / "shared_number.py").write_text("STEP = 1\n")
    (tmp_path / "shared_other.py").write_text("MORE = 10\n")
    (statement,) = parse_script(create)
    assert isinstance(statement, CreateFunction)
    old = module.define(statement.declaration)
    assert old.sources is not None
    names = [one.name for one in old.sources.modules]
    assert names == [old.target[:-5], "shared_number", "shared_other"]
    (tmp_path / "shared_number.py").write_text("STEP = 2\n")
    new = module.define(statement.declaration)
    assert new.digest != old.digest and new.signature == old.signature
    # Another process knows neither of them.
    monkeypatch.setattr(registry, "_known", {})
    for function, expected in ((old, 12), (new, 13), (old, 12)):
        monkeypatch.setattr(registry, "_known", {})
        with_source = LastingConnection([function], threads=1)
        try:
            sql = f"SELECT {function.engine_name}(1) AS a"
            assert with_source.run(sql).to_pylist() == [{"a": expected}]
        finally:
            with_source.close()


ELSEWHERE = """
import pickle, sys
from streamhouse.duckdb_connection import LastingConnection
function = pickle.load(sys.stdin.buffer)
connection = LastingConnection([function], threads=1)
print(connection.run(f"SELECT {function.engine_name}(1) AS a").to_pylist())
connection.close()
"""


def test_a_machine_without_the_module_runs_it(
    created: Callable[[str], str], tmp_path: Path
) -> None:
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "__init__.py").write_text("")
    (tmp_path / "parts" / "number.py").write_text("from . import step\nONE = step.STEP\n")
    (tmp_path / "parts" / "step.py").write_text("STEP = 1\n")
    (statement,) = parse_script(
        created("from parts import number\ndef step(a: int) -> int:\n    return a + number.ONE")
    )
    assert isinstance(statement, CreateFunction)
    function = module.define(statement.declaration)
    tmp_path.rename(tmp_path.with_name(f"{tmp_path.name}-gone"))
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE], input=pickle.dumps(function), capture_output=True
    )
    assert done.stdout.decode().strip() == "[{'a': 2}]", done.stderr.decode()


def test_functions_share_the_modules_that_both_import(
    created: Callable[[str], str], tmp_path: Path
) -> None:
    (tmp_path / "shared_list.py").write_text("SEEN = []\n")
    text = "from shared_list import SEEN\ndef {0}(a: int) -> int:\n    return len(SEEN)\n"
    for name in ("before", "behind"):
        (statement,) = parse_script(created(text.format(name)))
        assert isinstance(statement, CreateFunction)
        module.define(statement.declaration)
        if name == "before":
            sys.modules["shared_list"].SEEN.append(1)
    assert selected(f"{created(text.format('later'))}SELECT later(1)") == [(1,)]


def test_a_lineage_keeps_no_source_and_takes_no_other(
    created: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (statement,) = parse_script(created("def one(a: int) -> int:\n    return 1"))
    assert isinstance(statement, CreateFunction)
    function = module.define(statement.declaration)
    from pydantic import TypeAdapter

    from streamhouse.sql.udf.function import PythonFunction

    kept = TypeAdapter(PythonFunction).validate_python(function.record())
    assert kept == function and kept.sources is None and "return 1" not in str(function.record())
    monkeypatch.setattr(registry, "_known", {})
    assert module.compute_of(kept)(5) == 1
    path = tmp_path / f"{statement.declaration.module}.py"
    path.write_text(path.read_text().replace("return 1", "return 2"))
    monkeypatch.setattr(registry, "_known", {})
    with pytest.raises(QueryError, match="differs from the one that the query was planned with"):
        module.compute_of(kept)
    path.unlink()
    with pytest.raises(QueryError, match="there is no Python module"):
        module.compute_of(kept)


def test_installed_modules_and_pythons_own_are_not_sent(tmp_path: Path) -> None:
    assert module._read_sources("json") is None
    assert module._read_sources("sqlglot.expressions") is None
    assert module._read_sources("math") is None


@pytest.mark.parametrize("function", ["ROUND", "TRUNCATE"])
def test_rounding_calls_a_function_once_for_a_row(
    created: Callable[[str], str], function: str
) -> None:
    create = created("""
    calls = []
    def halves(a: float) -> float:
        calls.append(a)
        return len(calls) + a
    """)
    rows = selected(f"{create}SELECT {function}(halves(CAST(0.25 AS DOUBLE)), 1)")
    assert rows == [(1.3 if function == "ROUND" else 1.2,)]
