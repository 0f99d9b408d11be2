"""The Paimon types of MySQL's columns, by the modes of Paimon's sync actions."""

from __future__ import annotations

import pyarrow as pa
import pytest

from streamhouse.connectors.mysql_cdc.database.discovery import TableFilter
from streamhouse.connectors.mysql_cdc.database.type_mapping import MODES, TypeMapping
from streamhouse.errors import OptionError, TableError
from streamhouse.mysql.values.types import MySqlColumn, convert

PLAIN = [
    ("tinyint", "tinyint(1)", "BOOLEAN"),
    ("tinyint", "tinyint(1) unsigned", "SMALLINT"),
    ("tinyint", "tinyint(4)", "TINYINT"),
    ("smallint", "smallint(5) unsigned", "INT"),
    ("mediumint", "mediumint(9)", "INT"),
    ("mediumint", "mediumint(8) unsigned", "BIGINT"),
    ("int", "int(10) unsigned", "BIGINT"),
    ("bigint", "bigint(20)", "BIGINT"),
    ("bigint", "bigint(20) unsigned", "DECIMAL(20, 0)"),
    ("float", "float", "FLOAT"),
    ("double", "double", "DOUBLE"),
    ("bit", "bit(1)", "BOOLEAN"),
    ("bit", "bit(12)", "BINARY(2)"),
    ("year", "year(4)", "INT"),
    ("date", "date", "DATE"),
    ("char", "char(5)", "CHAR(5)"),
    ("varchar", "varchar(40)", "VARCHAR(40)"),
    ("text", "text", "STRING"),
    ("longtext", "longtext", "STRING"),
    ("json", "json", "STRING"),
    ("enum", "enum('a','b')", "STRING"),
    ("set", "set('a','b')", "ARRAY<STRING>"),
    ("binary", "binary(16)", "VARBINARY(16)"),
    ("varbinary", "varbinary(9)", "VARBINARY(9)"),
    ("varbinary", "varbinary(0)", "BYTES"),
    ("blob", "blob", "BYTES"),
    ("point", "point", "STRING"),
]


def column(data_type: str, column_type: str, **more: int) -> MySqlColumn:
    return MySqlColumn("c", data_type, column_type, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(("data_type", "column_type", "expected"), PLAIN)
def test_types_without_a_mode(data_type: str, column_type: str, expected: str) -> None:
    mapping = TypeMapping()
    assert mapping.type(column(data_type, column_type), in_key=False) == expected
    strings = TypeMapping.of(["to-string"])
    assert strings.type(column(data_type, column_type), in_key=False) == "STRING"


@pytest.mark.parametrize(
    ("mode", "data_type", "column_type", "expected"),
    [
        ("tinyint1-not-bool", "tinyint", "tinyint(1)", "TINYINT"),
        ("char-to-string", "varchar", "varchar(40)", "STRING"),
        ("char_to_string", "char", "char(4)", "STRING"),
        ("longtext-to-bytes", "longtext", "longtext", "BYTES"),
        ("bigint-unsigned-to-bigint", "bigint", "bigint(20) unsigned", "BIGINT"),
        ("time-to-string", "time", "time", "STRING"),
    ],
)
def test_types_with_a_mode(mode: str, data_type: str, column_type: str, expected: str) -> None:
    one = column(data_type, column_type)
    assert TypeMapping.of([mode]).type(one, in_key=False) == expected
    assert TypeMapping().type(one, in_key=False) != expected


def test_no_value_is_lost() -> None:
    mapping = TypeMapping()
    assert mapping.type(column("tinyint", "tinyint(1)"), in_key=True) == "TINYINT"
    assert mapping.type(column("set", "set('a','b')"), in_key=True) == "STRING"
    assert mapping.type(column("time", "time(3)", fraction=3), in_key=False) == "TIME(3)"
    assert mapping.type(column("time", "time(6)", fraction=6), in_key=False) == "STRING"
    wide = column("decimal", "decimal(40,2)", precision=40, scale=2)
    assert mapping.type(wide, in_key=False) == "STRING"
    assert mapping.type(column("timestamp", "timestamp(3)", fraction=3), False) == "TIMESTAMP(3)"


def test_nullability() -> None:
    fixed = MySqlColumn("c", "int", "int(11)", nullable=False)
    date = MySqlColumn("c", "date", "date", nullable=False)
    assert not TypeMapping().nullable(fixed)
    assert TypeMapping.of(["to-nullable"]).nullable(fixed)
    assert TypeMapping().nullable(date)


def test_unknown_modes() -> None:
    with pytest.raises(OptionError, match="did you mean 'to-string'"):
        TypeMapping.of(["to-strin"])
    assert TypeMapping.of(["decimal_no_change", ""]).modes == {"decimal-no-change"}
    assert len(MODES) == 7


def test_filters_match_whole_names() -> None:
    tables = TableFilter(r"shop_\d+", "orders|item.*", "item_old")
    assert tables.selects("shop_12", "orders")
    assert tables.selects("shop_1", "items")
    assert not tables.selects("shop_1", "item_old")
    assert not tables.selects("shop_1", "orders_2")
    assert not tables.selects("shop_x", "orders")
    assert not TableFilter(".*").selects("mysql", "user")
    with pytest.raises(OptionError, match="not a regular expression"):
        TableFilter("shop(")


def test_vectors() -> None:
    column = MySqlColumn("v", "vector", "vector(2)")
    raw = pa.array([b"\0\0\x80\x3f\xcd\xcc\xcc\x3d", None, b""], pa.binary())
    numbers = convert(column, raw, column.natural, "UTC")
    assert numbers.type == pa.list_(pa.float32())
    assert numbers.cast(pa.list_(pa.string())).to_pylist() == [["1", "0.1"], None, []]
    assert convert(column, raw.slice(1), pa.string(), "UTC").to_pylist() == [None, "[]"]
    assert convert(column, raw, pa.string(), "UTC").to_pylist()[0] == "[1,0.1]"
    assert convert(column, raw, pa.binary(), "UTC") == raw
    assert convert(column, raw.slice(0, 0), column.natural, "UTC").to_pylist() == []
    with pytest.raises(TableError, match="column 'v' .* is not a vector"):
        convert(column, pa.array([b"abc"], pa.binary()), column.natural, "UTC")
    assert TypeMapping.of([]).type(column, False) == "ARRAY<FLOAT>"
