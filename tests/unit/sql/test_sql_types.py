"""Flink's types and the DuckDB types that stand for them."""

from __future__ import annotations

import duckdb
import pytest

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
