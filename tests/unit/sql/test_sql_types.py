"""Flink's types and the DuckDB types that stand for them."""

from __future__ import annotations

import duckdb
import pytest
from sqlglot import exp

from streamhouse.errors import SqlError
from streamhouse.sql.parser import query_parser
from streamhouse.sql.parser.dialect import Flink
from streamhouse.sql.statements.script import parse_script
from streamhouse.sql.syntax import CreateTable
from streamhouse.sql.text import Script
from streamhouse.sql.types import duck_type, fits, flink_type

PAIRS = [
    ("BOOLEAN", "BOOLEAN", "BOOLEAN"),
    ("INT NOT NULL", "INTEGER", "INT"),
    ("CHAR(3)", "VARCHAR", "STRING"),
    ("BYTES", "BLOB", "BYTES"),
    ("DECIMAL(20, 3) NOT NULL", "DECIMAL(20, 3)", "DECIMAL(20, 3)"),
    ("TIMESTAMP(3)", "TIMESTAMP_MS", "TIMESTAMP(3)"),
    ("TIMESTAMP(6)", "TIMESTAMP", "TIMESTAMP(6)"),
    ("TIMESTAMP(9)", "TIMESTAMP_NS", "TIMESTAMP(9)"),
    ("TIMESTAMP_LTZ(3)", "TIMESTAMPTZ", "TIMESTAMP_LTZ(6)"),
    ("ARRAY<DECIMAL(10, 2) NOT NULL>", "DECIMAL(10, 2)[]", "ARRAY<DECIMAL(10, 2)>"),
    ("MAP<STRING, ARRAY<INT>>", "MAP(VARCHAR, INTEGER[])", "MAP<STRING, ARRAY<INT>>"),
    (
        "ROW<x INT NOT NULL, `y z` ROW<a STRING>>",
        'STRUCT("x" INTEGER, "y z" STRUCT("a" VARCHAR))',
        "ROW<`x` INT, `y z` ROW<`a` STRING>>",
    ),
]


@pytest.mark.parametrize(("flink", "duck", "back"), PAIRS)
def test_types_round_trip(flink: str, duck: str, back: str) -> None:
    assert duck_type(flink) == duck
    with duckdb.connect(":memory:") as connection:
        (kind,) = connection.sql(f"SELECT CAST(NULL AS {duck}) AS v").types
    assert flink_type(kind) == back


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("INT", "BIGINT", True),
        ("BIGINT", "INT", True),
        ("INT", "DOUBLE", True),
        ("DOUBLE", "INT", False),
        ("DOUBLE", "DECIMAL(10, 2)", True),
        ("FLOAT", "DECIMAL(10, 2)", True),
        ("DOUBLE", "FLOAT", False),
        ("DECIMAL(10, 2)", "DOUBLE", True),
        ("STRING", "INT", False),
        ("INT", "STRING", False),
        ("STRING", "VARCHAR(3)", True),
        ("DATE", "TIMESTAMP(3)", True),
        ("TIMESTAMP_LTZ(6)", "TIMESTAMP(3)", True),
        ("STRING", "TIMESTAMP(3)", False),
        ("ARRAY<INT>", "ARRAY<BIGINT NOT NULL>", True),
        ("ARRAY<STRING>", "ARRAY<INT>", False),
        ("ROW<`a` INT>", "ROW<b BIGINT>", True),
        ("ROW<`a` INT>", "ROW<a INT, b INT>", False),
        ("MAP<STRING, INT>", "MAP<STRING, BIGINT>", True),
    ],
)
def test_assignments_without_a_cast(source: str, target: str, expected: bool) -> None:
    assert fits(source, target) is expected


@pytest.mark.parametrize("name", ["a b", "a`b", 'a"b', "a,b", "a<b>`", "``"])
def test_field_names_round_trip(name: str) -> None:
    doubled = name.replace("`", "``")
    kind = f"ROW<`{doubled}` INT, `n` ARRAY<ROW<`{doubled}` STRING>>>"
    with duckdb.connect(":memory:") as connection:
        (made,) = connection.sql(f"SELECT CAST(NULL AS {duck_type(kind)}) AS v").types
    assert flink_type(made) == kind


def cast_type(written: str) -> exp.DataType:
    """The type of a cast, as the parser of queries reads it."""
    script = Script(f"SELECT\n CAST(a AS {written}) FROM t")
    cast = query_parser.parse_tokens(script, query_parser.lex(script)).find(exp.Cast)
    assert cast is not None
    return cast.to


@pytest.mark.parametrize(
    ("written", "spelled"),
    [
        ("DECIMAL", "DECIMAL(10, 0)"),
        ("dec(5)", "DECIMAL(5, 0)"),
        ("DOUBLE PRECISION", "DOUBLE"),
        ("VARCHAR", "STRING"),
        ("CHAR", "CHAR(1)"),
        ("TIME WITHOUT TIME ZONE", "TIME(0)"),
        ("TIMESTAMP(3) WITH LOCAL TIME ZONE", "TIMESTAMP_LTZ(3)"),
        ("INT ARRAY", "ARRAY<INT>"),
        ("MAP<STRING, ROW<`a b` INT, c DATE>>", "MAP<STRING, ROW<`a b` INT, c DATE>>"),
        ("ARRAY<BIGINT NOT NULL>", "ARRAY<BIGINT NOT NULL>"),
        ("ROW<`date` INT NOT NULL>", "ROW<date INT NOT NULL>"),
    ],
)
def test_a_cast_has_the_type_of_a_column(written: str, spelled: str) -> None:
    (table,) = parse_script(f"CREATE TABLE t (a {written})")
    assert isinstance(table, CreateTable)
    assert table.columns[0].type == spelled
    nullable = spelled.replace(" NOT NULL", "")
    assert cast_type(written) == exp.DataType.build(nullable, dialect=Flink)


@pytest.mark.parametrize(
    ("written", "column", "message"),
    [
        ("DATETIME", 12, "'DATETIME' is not a Flink type; write TIMESTAMP(3)"),
        ("ARRAY<VARCHR>", 18, "'VARCHR' is not expected here; did you mean VARCHAR?"),
        ("DECIMAL(50, 2)", 12, "DECIMAL(p, s) needs 1 <= p <= 38"),
        ("TIMESTAMP(12)", 12, "the size of TIMESTAMP must be from 0 to 9, not 12"),
        ("MULTISET<INT>", 12, "type MULTISET is not supported"),
    ],
)
def test_a_wrong_type_of_a_cast_is_refused(written: str, column: int, message: str) -> None:
    with pytest.raises(SqlError) as caught:
        cast_type(written)
    assert (caught.value.line, caught.value.column) == (2, column)
    assert message in caught.value.message
