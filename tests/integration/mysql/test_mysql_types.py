"""Every type reads the same by the snapshot and by the binlog, and reads right."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.integration.mysql.history import Database, catch_up

from streamhouse.connectors.mysql_cdc.server.types import quote
from streamhouse.errors import TableError
from streamhouse.sql.plan import Column

UTC = datetime.UTC
D = datetime.datetime

CASES: list[tuple[str, list[str], pa.DataType, list[Any]]] = [
    ("TINYINT(1)", ["0", "1", "-5"], pa.bool_(), [False, True, True]),
    ("TINYINT", ["-128", "127"], pa.int8(), [-128, 127]),
    ("TINYINT UNSIGNED", ["255", "0"], pa.int16(), [255, 0]),
    ("SMALLINT", ["-32768", "32767"], pa.int16(), [-32768, 32767]),
    ("SMALLINT UNSIGNED", ["65535"], pa.int32(), [65535]),
    ("MEDIUMINT", ["-8388608", "8388607"], pa.int32(), [-8388608, 8388607]),
    ("MEDIUMINT UNSIGNED", ["16777215"], pa.int32(), [16777215]),
    ("INT", ["-2147483648", "2147483647"], pa.int32(), [-2147483648, 2147483647]),
    ("INT UNSIGNED", ["4294967295"], pa.int64(), [4294967295]),
    ("BIGINT", ["-9223372036854775808"], pa.int64(), [-9223372036854775808]),
    (
        "BIGINT UNSIGNED",
        ["18446744073709551615"],
        pa.decimal128(20, 0),
        [Decimal(18446744073709551615)],
    ),
    (
        "DECIMAL(10,2)",
        ["-12345678.90", "0.01", "-0.01", "99999999.99"],
        pa.decimal128(10, 2),
        [Decimal("-12345678.90"), Decimal("0.01"), Decimal("-0.01"), Decimal("99999999.99")],
    ),
    (
        "DECIMAL(38,20)",
        ["-123456789012345678.12345678901234567890", "0"],
        pa.decimal128(38, 20),
        [Decimal("-123456789012345678.12345678901234567890"), Decimal("0E-20")],
    ),
    ("DECIMAL(20,0)", ["-12345678901234567890"], pa.decimal128(20),
     [Decimal(-12345678901234567890)]),
    ("DECIMAL(5,5)", ["-0.12345"], pa.decimal128(5, 5), [Decimal("-0.12345")]),
    (
        "DECIMAL(65,30)",
        ["-12345678901234567890123456789012345.123456789012345678901234567890"],
        pa.string(),
        ["-12345678901234567890123456789012345.123456789012345678901234567890"],
    ),
    ("FLOAT", ["16777217", "0.1", "-1e-10"], pa.float32(), [16777216.0, 0.10000000149011612, None]),
    ("DOUBLE", ["0.1", "1e300", "-2.5"], pa.float64(), [0.1, 1e300, -2.5]),
    ("CHAR(5)", ["'ab '", "''", "'äöü'"], pa.string(), ["ab", "", "äöü"]),
    ("VARCHAR(20)", ["'ab '", "'日本😀'", "'it''s \\\\ %'"], pa.string(),
     ["ab ", "日本😀", "it's \\ %"]),
    ("VARCHAR(300)", ["REPEAT('x', 300)"], pa.string(), ["x" * 300]),
    ("VARCHAR(20) CHARACTER SET latin1", ["'é€'"], pa.string(), ["é€"]),
    ("VARCHAR(20) CHARACTER SET ucs2", ["'é€'"], pa.string(), ["é€"]),
    ("CHAR(20) CHARACTER SET gbk", ["'中文'"], pa.string(), ["中文"]),
    ("TINYTEXT", ["'a'"], pa.string(), ["a"]),
    ("TEXT", ["'äh'", "REPEAT('é', 20000)"], pa.string(), ["äh", "é" * 20000]),
    ("MEDIUMTEXT", ["REPEAT('y', 70000)"], pa.string(), ["y" * 70000]),
    ("LONGTEXT", ["'z'"], pa.string(), ["z"]),
    ("BINARY(5)", ["'ab'", "x'0000'", "x'6100620000'"], pa.binary(),
     [b"ab\0\0\0", b"\0" * 5, b"a\0b\0\0"]),
    ("VARBINARY(5)", ["x'00ff00'", "''"], pa.binary(), [b"\x00\xff\x00", b""]),
    ("BLOB", ["x'80ff0027'"], pa.binary(), [b"\x80\xff\x00'"]),
    ("ENUM('x','it''s','z')", ["'z'", "'it''s'"], pa.string(), ["z", "it's"]),
    ("SET('a','b','c')", ["'c,a'", "''", "'b'"], pa.string(), ["a,c", "", "b"]),
    ("BIT(1)", ["b'0'", "b'1'"], pa.bool_(), [False, True]),
    ("BIT(10)", ["b'1000000001'"], pa.binary(), [b"\x02\x01"]),
    ("DATE", ["'2024-02-29'", "'0000-00-00'", "'1000-01-01'"], pa.date32(),
     [datetime.date(2024, 2, 29), None, datetime.date(1000, 1, 1)]),
    ("TIME", ["'-838:59:59'", "'01:02:03'"], pa.string(), ["-838:59:59", "01:02:03"]),
    ("TIME(3)", ["'-00:00:00.500'", "'23:59:59.999'"], pa.string(),
     ["-00:00:00.500", "23:59:59.999"]),
    ("TIME(6)", ["'-01:00:00.000001'"], pa.string(), ["-01:00:00.000001"]),
    ("DATETIME", ["'2024-07-01 12:34:56'", "'0000-00-00 00:00:00'"], pa.timestamp("us"),
     [D(2024, 7, 1, 12, 34, 56), None]),
    ("DATETIME(3)", ["'1969-12-31 23:59:59.999'"], pa.timestamp("us"),
     [D(1969, 12, 31, 23, 59, 59, 999000)]),
    ("DATETIME(6)", ["'9999-12-31 23:59:59.123456'"], pa.timestamp("us"),
     [D(9999, 12, 31, 23, 59, 59, 123456)]),
    ("TIMESTAMP NULL", ["'2024-07-01 12:00:00'", "0"], pa.timestamp("us", "UTC"),
     [D(2024, 7, 1, 12, tzinfo=UTC), None]),
    ("TIMESTAMP(6) NULL", ["'2024-07-01 12:00:00.123456'"], pa.timestamp("us", "UTC"),
     [D(2024, 7, 1, 12, 0, 0, 123456, tzinfo=UTC)]),
    ("TIMESTAMP(1) NULL", ["'2024-07-01 12:00:00.7'"], pa.timestamp("us", "UTC"),
     [D(2024, 7, 1, 12, 0, 0, 700000, tzinfo=UTC)]),
    ("YEAR", ["1999", "0", "2155"], pa.int32(), [1999, 0, 2155]),
    ("JSON", ["'{\"a\": [1, \"ü\"]}'"], pa.string(), ['{"a": [1, "ü"]}']),
]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "literals", "arrow", "expected"), CASES, ids=[c[0] for c in CASES]
)
def test_snapshot_and_binlog_give_equal_values_of_a_type(
    database: Database, kind: str, literals: list[str], arrow: pa.DataType, expected: list[Any]
) -> None:
    database.run(f"CREATE TABLE t (id INT PRIMARY KEY, v {kind})")
    values = [*literals, "NULL"]
    insert = [f"INSERT INTO t VALUES ({i}, {v})" for i, v in enumerate(values)]
    setting = "SET time_zone = '+00:00', sql_mode = ''"
    source = database.source("t")
    offset, nothing = catch_up(source, source.initial_offset())
    assert nothing == []
    database.run(setting, *insert)
    _, binlog = catch_up(source, offset)
    again = database.source("t")
    _, snapshot = catch_up(again, again.initial_offset())
    assert source.schema.field("v").type == arrow
    assert [dict(row, rowkind="+I") for row in binlog] == snapshot
    read = [row["v"] for row in snapshot]
    for got, want in zip(read[:-1], expected, strict=True):
        assert got == want or (want is None and kind == "FLOAT")
    assert read[-1] is None


def test_rows_are_found_by_keys_of_every_type(database: Database) -> None:
    names = [f"{number} %s`" for number in range(len(CASES))]
    kinds = ", ".join(f"{quote(name)} {case[0]}" for name, case in zip(names, CASES, strict=True))
    rows = []
    for place in range(max(len(case[1]) for case in CASES)):
        values = [case[1][place] if place < len(case[1]) else "NULL" for case in CASES]
        rows.append(f"INSERT INTO t VALUES ({', '.join(values)})")
    database.run("SET time_zone = '+00:00', sql_mode = ''", f"CREATE TABLE t ({kinds})", *rows)
    table = database.keyed("t")
    whole = pa.Table.from_batches(list(table.all_rows()), table.schema)
    assert whole.schema.types == [case[2] for case in CASES]
    for name, case in zip(names, CASES, strict=True):
        read = whole.column(name).to_pylist()
        padded = [*case[3], *[None] * (len(rows) - len(case[3]))]
        assert read == padded or case[0] == "FLOAT"
    keys = table.comparable(names)
    others = {case[0] for name, case in zip(names, CASES, strict=True) if name not in keys}
    assert others - {"JSON"} == {
        "TINYINT(1)", "DECIMAL(65,30)", "FLOAT", "DOUBLE", "BIT(1)", "BIT(10)", "TIME", "TIME(3)",
        "TIME(6)",
    }  # fmt: skip
    for name in keys:
        there = whole.filter(pc.is_valid(whole.column(name)))
        asked = [(value,) for value in there.column(name).to_pylist()]
        assert table.rows([name], asked) == there, name
    pair = (names[3], names[19])
    asked = list(zip(*(whole.column(name).to_pylist() for name in pair), strict=True))
    assert table.rows(pair, asked[:1]).num_rows == 1
    table.close()


def test_keys_that_a_declaration_cuts_are_not_asked_for(database: Database) -> None:
    database.run("CREATE TABLE t (a DATETIME(6), b DATETIME(3), c INT, d VARCHAR(9), e TIMESTAMP)")
    cut = [Column("a", "TIMESTAMP(3)"), Column("b", "TIMESTAMP(3)"), Column("c", "STRING")]
    crossed = [Column("d", "INT"), Column("e", "TIMESTAMP(3)")]
    zone = "?serverTimezone=Europe/Berlin"
    table = database.keyed("t", [*cut, *crossed], zone)
    assert table.comparable(("a", "b", "c", "d", "e")) == ("b",)
    table.close()


def test_snapshot_and_binlog_give_equal_values_of_declared_types(database: Database) -> None:
    database.run(
        "CREATE TABLE t (id INT PRIMARY KEY, ts TIMESTAMP(3) NULL, dt DATETIME(3), n INT, "
        "flag TINYINT(1), tm TIME(3), extra GEOMETRY, bits BIT(12), price DECIMAL(10,2))"
    )
    declared = [
        Column("dt", "TIMESTAMP_LTZ(3)"),
        Column("ts", "TIMESTAMP(3)"),
        Column("n", "STRING"),
        Column("flag", "INT"),
        Column("tm", "TIME"),
        Column("bits", "BIGINT"),
        Column("price", "DOUBLE"),
    ]
    options = {"server-time-zone": "Europe/Berlin"}
    source = database.source("t", declared, options)
    offset, _ = catch_up(source, source.initial_offset())
    database.run(
        "SET time_zone = '+00:00'",
        "INSERT INTO t VALUES (1, '2024-07-01 12:00:00.123', '2024-01-01 12:00:00.5', 7, 2, "
        "'13:14:15.678', POINT(1, 2), b'100000000001', 9.75)",
    )
    _, binlog = catch_up(source, offset)
    again = database.source("t", declared, options)
    _, snapshot = catch_up(again, again.initial_offset())
    assert binlog == snapshot == [
        {
            "dt": D(2024, 1, 1, 11, 0, 0, 500000, tzinfo=UTC),
            "ts": D(2024, 7, 1, 14, 0, 0, 123000),
            "n": "7",
            "flag": 2,
            "tm": datetime.time(13, 14, 15, 678000),
            "bits": 0b100000000001,
            "price": 9.75,
            "rowkind": "+I",
        }
    ]  # fmt: skip
    assert source.schema.names == [column.name for column in declared]


def test_a_value_that_does_not_fit_names_its_column(database: Database) -> None:
    database.run("CREATE TABLE t (id BIGINT PRIMARY KEY)", "INSERT INTO t VALUES (3000000000)")
    source = database.source("t", [Column("id", "INT")])
    with pytest.raises(TableError, match=r"column 'id' \(bigint\(20\)\) does not fit"):
        catch_up(source, source.initial_offset())
