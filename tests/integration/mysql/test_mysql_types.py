"""Every type reads the same by the snapshot and by the binlog, and reads right."""

from __future__ import annotations

import datetime
import struct
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.integration.mysql.history import Database, apply, catch_up
from tests.mysql_server import IS_MYSQL, mariadb_only

from streamhouse.errors import SchemaChangeError, TableError
from streamhouse.mysql.values.types import quote
from streamhouse.sql.plan import Column

UTC = datetime.UTC
D = datetime.datetime


def struct_float(value: float) -> float:
    """The nearest number of single precision."""
    single: float = struct.unpack("f", struct.pack("f", value))[0]
    return single


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
    ("VECTOR(3)", ["STRING_TO_VECTOR('[1,0.25,-3e30]')", "STRING_TO_VECTOR('[7]')"],
     pa.list_(pa.float32()), [[1.0, 0.25, struct_float(-3e30)], [7.0]]),
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
    ("INT(7) UNSIGNED ZEROFILL", ["5", "4294967295"], pa.int64(), [5, 4294967295]),
    ("BIGINT UNSIGNED ZEROFILL", ["5"], pa.decimal128(20, 0), [Decimal(5)]),
    ("DECIMAL(10,2) ZEROFILL", ["1.5"], pa.decimal128(10, 2), [Decimal("1.50")]),
    ("DECIMAL(65,0) UNSIGNED", ["1" + "0" * 64], pa.string(), ["1" + "0" * 64]),
    ("DECIMAL(60,2) UNSIGNED ZEROFILL", ["1.5", "0"], pa.string(), ["1.50", "0.00"]),
    ("FLOAT(9,3)", ["1.2345", "-0e0", "3.4028234e5"], pa.float32(),
     [struct_float(1.234), -0.0, struct_float(340282.344)]),
    ("DOUBLE(20,3)", ["123456789012.3456", "-0e0"], pa.float64(), [123456789012.346, -0.0]),
    ("DOUBLE ZEROFILL", ["1.5", "1e20", "1.7976931348623157e308", "5e-324"], pa.float64(),
     [1.5, 1e20, 1.7976931348623157e308, 5e-324]),
    ("CHAR(255)", ["REPEAT('😀', 255)"], pa.string(), ["😀" * 255]),
    ("CHAR(0)", ["''"], pa.string(), [""]),
    ("CHAR(9) CHARACTER SET utf16", ["' a  '", "'é😀'"], pa.string(), [" a", "é😀"]),
    ("CHAR(9) COLLATE utf8mb4_nopad_bin", ["'a  '"], pa.string(), ["a"]),
    ("VARCHAR(9) COLLATE utf8mb4_uca1400_ai_ci", ["'a  '"], pa.string(), ["a  "]),
    ("VARCHAR(300) COMPRESSED CHARACTER SET greek", ["REPEAT('α', 300)", "'β'", "''"],
     pa.string(), ["α" * 300, "β", ""]),
    ("MEDIUMTEXT COMPRESSED", ["REPEAT('é', 90000)", "'x'"], pa.string(), ["é" * 90000, "x"]),
    ("VARBINARY(200) COMPRESSED", ["REPEAT('a', 200)", "x'00ff'"], pa.binary(),
     [b"a" * 200, b"\0\xff"]),
    ("LONGBLOB COMPRESSED", ["REPEAT('b', 70000)", "''"], pa.binary(), [b"b" * 70000, b""]),
    ("BINARY(0)", ["''"], pa.binary(), [b""]),
    ("BINARY(255)", ["REPEAT('a', 255)"], pa.binary(), [b"a" * 255]),
    ("BIT(64)", ["18446744073709551615", "0", "1"], pa.binary(),
     [b"\xff" * 8, b"\0" * 8, b"\0" * 7 + b"\1"]),
    ("BIT(8)", ["255"], pa.binary(), [b"\xff"]),
    ("DATE NOT NULL", ["0", "'2024-00-10'", "'2024-02-31'", "'9999-12-31'"], pa.date32(),
     [None, None, None, datetime.date(9999, 12, 31)]),
    ("DATE  NOT NULL", ["'0000-05-06'", "'0001-01-01'", "'2024-05-00'"], pa.date32(),
     [None, datetime.date(1, 1, 1), None]),
    ("DATETIME NOT NULL", ["0", "'2024-02-31 01:02:03'"], pa.timestamp("us"), [None, None]),
    ("DATETIME(6) NOT NULL", ["'0000-05-06 01:02:03.5'", "'0001-01-01 00:00:00.000001'"],
     pa.timestamp("us"), [None, D(1, 1, 1, 0, 0, 0, 1)]),
    ("TIMESTAMP(3) NOT NULL", ["0", "'1970-01-01 00:00:01'", "'2038-01-19 03:14:07.999'"],
     pa.timestamp("us", "UTC"),
     [None, D(1970, 1, 1, 0, 0, 1, tzinfo=UTC), D(2038, 1, 19, 3, 14, 7, 999000, tzinfo=UTC)]),
    ("TIME(6) ", ["'838:59:59.999999'", "'-838:59:59.999999'", "'-00:00:00.000001'"], pa.string(),
     ["838:59:59.000000", "-838:59:59.000000", "-00:00:00.000001"] if IS_MYSQL
     else ["838:59:59.999999", "-838:59:59.999999", "-00:00:00.000001"]),
    ("YEAR(4)", ["1901", "'0000'", "'00'"], pa.int32(), [1901, 0, 2000]),
    ("UUID", ["'123e4567-e89b-12d3-a456-426655440000'", "'017F22E279B07CC398C4DC0C0C07398F'",
              "'00000000-0000-0000-0000-000000000000'"], pa.string(),
     ["123e4567-e89b-12d3-a456-426655440000", "017f22e2-79b0-7cc3-98c4-dc0c0c07398f",
      "00000000-0000-0000-0000-000000000000"]),
    ("INET4", ["'255.1.0.0'", "'0.0.0.0'"], pa.string(), ["255.1.0.0", "0.0.0.0"]),
    ("INET6", ["'2001:0DB8::1:0:0'", "'::'", "'::ffff:1.2.3.0'", "'1:0:2:3:4:5:6:7'"],
     pa.string(), ["2001:db8::1:0:0", "::", "::ffff:1.2.3.0", "1::2:3:4:5:6:7"]),
    ("POINT", ["POINT(1, -2.5)", "ST_GeomFromText('POINT(1 2)', 4326)"], pa.string(),
     ['{"coordinates":[1,-2.5],"type":"Point","srid":0}',
      # MySQL's text of this system has the latitude first.
      f'{{"coordinates":[{"2,1" if IS_MYSQL else "1,2"}],"type":"Point","srid":4326}}']),
    ("LINESTRING", ["ST_GeomFromText('LINESTRING(3 0, 3 3, 3 5)')"], pa.string(),
     ['{"coordinates":[[3,0],[3,3],[3,5]],"type":"LineString","srid":0}']),
    ("POLYGON", ["ST_GeomFromText('POLYGON((1 1,4 1,4 4,1 1),(2 2,3 2,3 3,2 2))')"],
     pa.string(),
     ['{"coordinates":[[[1,1],[4,1],[4,4],[1,1]],[[2,2],[3,2],[3,3],[2,2]]],'
      '"type":"Polygon","srid":0}']),
    ("MULTIPOINT", ["ST_GeomFromText('MULTIPOINT(1 1, 2 2)')"], pa.string(),
     ['{"coordinates":[[1,1],[2,2]],"type":"MultiPoint","srid":0}']),
    ("MULTILINESTRING", ["ST_GeomFromText('MULTILINESTRING((1 1,2 2),(3 3,4 4))')"], pa.string(),
     ['{"coordinates":[[[1,1],[2,2]],[[3,3],[4,4]]],"type":"MultiLineString","srid":0}']),
    ("MULTIPOLYGON", ["ST_GeomFromText('MULTIPOLYGON(((0 0,10 0,10 10,0 0)))')"], pa.string(),
     ['{"coordinates":[[[[0,0],[10,0],[10,10],[0,0]]]],"type":"MultiPolygon","srid":0}']),
    ("GEOMETRYCOLLECTION",
     ["ST_GeomFromText('GEOMETRYCOLLECTION(POINT(1 2),LINESTRING(1 1,2 2.5))')"], pa.string(),
     ['{"geometries":[{"type":"Point","coordinates":[1,2]},'
      '{"type":"LineString","coordinates":[[1,1],[2,2.5]]}],'
      '"type":"GeometryCollection","srid":0}']),
    ("GEOMETRY", ["POINT(1e300, 0)"], pa.string(),
     ['{"coordinates":[1e+300,0],"type":"Point","srid":0}']),
]  # fmt: skip
CASES = [
    case for case in CASES if not mariadb_only(case[0]) and (IS_MYSQL or case[0] != "VECTOR(3)")
]


@pytest.mark.parametrize(
    ("kind", "literals", "arrow", "expected"), CASES, ids=[c[0] for c in CASES]
)
def test_snapshot_and_binlog_give_equal_values_of_a_type(
    database: Database, kind: str, literals: list[str], arrow: pa.DataType, expected: list[Any]
) -> None:
    database.run(f"CREATE TABLE t (id INT PRIMARY KEY, v {kind})")
    values = literals if "NOT NULL" in kind else [*literals, "NULL"]
    insert = [f"INSERT INTO t VALUES ({i}, {v})" for i, v in enumerate(values)]
    setting = "SET time_zone = '+00:00', sql_mode = 'ALLOW_INVALID_DATES'"
    source = database.source("t")
    offset, nothing = catch_up(source, source.initial_offset())
    assert nothing == []
    database.run(setting, *insert)
    _, binlog = catch_up(source, offset)
    again = database.source("t")
    _, snapshot = catch_up(again, again.initial_offset())
    assert source.schema.field("v").type == arrow
    # The text tells -0.0 from 0.0.
    assert str([dict(row, rowkind="+I") for row in binlog]) == str(snapshot)
    read = [row["v"] for row in snapshot]
    for got, expected_value in zip(read, [*expected, None], strict=False):
        assert got == expected_value or (expected_value is None and kind == "FLOAT")
    assert len(read) == len(values)


_NULLABLE = [case for case in CASES if "NOT NULL" not in case[0]]
_SPATIAL = ("POINT", "LINE", "POLY", "MULTI", "GEOMETRY")


def test_rows_are_found_by_keys_of_every_type(database: Database) -> None:
    names = [f"{number} %s`" for number in range(len(_NULLABLE))]
    kinds = ", ".join(
        f"{quote(name)} {case[0]}" for name, case in zip(names, _NULLABLE, strict=True)
    )
    rows = []
    for place in range(max(len(case[1]) for case in _NULLABLE)):
        values = [case[1][place] if place < len(case[1]) else "NULL" for case in _NULLABLE]
        rows.append(f"INSERT INTO t VALUES ({', '.join(values)})")
    database.run("SET time_zone = '+00:00', sql_mode = ''", f"CREATE TABLE t ({kinds})", *rows)
    table = database.keyed("t")
    whole = pa.Table.from_batches(list(table.all_rows()), table.schema)
    assert whole.schema.types == [case[2] for case in _NULLABLE]
    for name, case in zip(names, _NULLABLE, strict=True):
        read = whole.column(name).to_pylist()
        padded = [*case[3], *[None] * (len(rows) - len(case[3]))]
        assert read == padded or case[0] == "FLOAT"
    keys = table.comparable(names)
    others = {case[0] for name, case in zip(names, _NULLABLE, strict=True) if name not in keys}
    words = ("DECIMAL(6", "FLOAT", "DOUBLE", "BIT", "TIME(", "UUID", "INET", "VECTOR", *_SPATIAL)
    some = {case[0] for case in _NULLABLE if case[0].startswith(words)}
    assert others - {"JSON"} == some | {"TINYINT(1)", "TIME"}
    for name in keys:
        there = whole.filter(pc.is_valid(whole.column(name)))
        asked = [(value,) for value in there.column(name).to_pylist()]
        assert table.rows([name], asked) == there, name
    pair = (names[3], names[19])
    asked = list(zip(*(whole.column(name).to_pylist() for name in pair), strict=True))
    assert table.rows(pair, asked[:1]).num_rows == 1
    table.close()


def test_keys_that_a_declaration_cuts_are_not_queried(database: Database) -> None:
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
    with pytest.raises(TableError, match=r"column 'id' \(bigint(\(20\))?\) does not fit"):
        catch_up(source, source.initial_offset())


@pytest.fixture(params=["SYSTEM", "+08:00", "-03:30", "+00:00"])
def server_zone(database: Database, request: pytest.FixtureRequest) -> Iterator[str]:
    database.server.execute(f"SET GLOBAL time_zone = '{request.param}'")
    yield request.param
    database.server.execute("SET GLOBAL time_zone = 'SYSTEM'")


@pytest.mark.parametrize("metadata", ["FULL", "NO_LOG"])
@pytest.mark.parametrize("session_zone", ["+00:00", "+08:00"])
def test_one_table_of_all_types_in_every_time_zone(
    database: Database, server_zone: str, session_zone: str, metadata: str
) -> None:
    names = [f"c{number}" for number in range(len(CASES))]
    kinds = ", ".join(f"{name} {case[0]}" for name, case in zip(names, CASES, strict=True))
    database.run(
        f"SET GLOBAL binlog_row_metadata = '{metadata}'",
        f"CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, {kinds})",
    )
    setting = f"SET time_zone = '{session_zone}', sql_mode = 'ALLOW_INVALID_DATES'"
    source = database.source("t")
    half = database.source("t", [Column("id", "INT"), Column(names[-1], "STRING")])
    try:
        offset, _ = catch_up(source, source.initial_offset())
        rows = [
            ", ".join(case[1][place % len(case[1])] for case in CASES)
            for place in range(max(len(case[1]) for case in CASES))
        ]
        inserts = [f"INSERT INTO t VALUES (NULL, {row})" for row in rows]
        database.run(
            setting, *inserts, "UPDATE t SET id = id + 100", "DELETE FROM t WHERE id = 101"
        )
        _, changes = catch_up(source, offset)
        _, narrow = catch_up(half, offset)
        fresh = database.source("t")
        _, snapshot = catch_up(fresh, fresh.initial_offset())
    finally:
        database.server.execute("SET GLOBAL binlog_row_metadata = 'FULL'")
    state: dict[tuple[Any, ...], dict[str, Any]] = {}
    apply(state, changes, ["id"])
    assert str([{**row, "rowkind": "+I"} for row in state.values()]) == str(snapshot)
    assert [row[names[-1]] for row in narrow] == [row[names[-1]] for row in changes]
    shift = datetime.timedelta(hours=8 if session_zone == "+08:00" else 0)
    for place, row in enumerate(snapshot, 1):
        for name, (kind, literals, _, expected) in zip(names, CASES, strict=True):
            expected_value = expected[place % len(literals)]
            if kind.startswith("TIMESTAMP") and expected_value is not None:
                # TIMESTAMP begins after 1970-01-01 00:00:00 UTC; what is before is a zero date.
                expected_value = (
                    expected_value - shift if (expected_value - shift).year >= 1970 else None
                )
            assert row[name] == expected_value or (expected_value is None and kind == "FLOAT"), kind


def test_a_timestamp_is_converted_by_the_servers_offset(database: Database) -> None:
    database.run("CREATE TABLE t (id INT PRIMARY KEY, dt DATETIME(6), ts TIMESTAMP(3))")
    declared = [
        Column("id", "INT"),
        Column("dt", "TIMESTAMP_LTZ(6)"),
        Column("ts", "TIMESTAMP(3)"),
    ]
    insert = "INSERT INTO t VALUES (1, '2024-01-01 04:00:00.000001', '2024-07-01 12:00:00.123')"
    expected = {
        "id": 1,
        "dt": D(2023, 12, 31, 20, 0, 0, 1, tzinfo=UTC),
        "ts": D(2024, 7, 1, 20, 0, 0, 123000),
    }
    database.run("SET GLOBAL time_zone = '+08:00'")
    try:
        source = database.source("t", declared)
    finally:
        database.run("SET GLOBAL time_zone = 'SYSTEM'")
    offset, _ = catch_up(source, source.initial_offset())
    database.run("SET time_zone = '+00:00'", insert)
    for reader, start in (
        (source, offset),
        (source, source.initial_offset()),
        (database.source("t", declared, {"server-time-zone": "+08:00"}), offset),
        (database.source("t", declared, {"server-time-zone": "Asia/Shanghai"}), offset),
    ):
        _, rows = catch_up(reader, start)
        assert rows == [expected | {"rowkind": "+I"}]


_OLD = "a DATETIME, b TIMESTAMP NULL, c TIME, d DATE, e YEAR"
_OLD_ROWS = (
    "('2024-02-29 23:59:58', '2024-07-01 12:00:00', '-838:59:59', '2024-01-01', 2000)",
    "('0000-00-00', 0, '00:00:01', 0, 0)",
    "('9999-12-31 23:59:59', '2038-01-19 03:14:07', '12:34:56', '9999-12-31', 2155)",
    "('1000-01-01 00:00:00', '1970-01-01 00:00:01', '-00:00:01', '1000-01-01', 1901)",
    "(NULL, NULL, NULL, NULL, NULL)",
)


def test_temporal_columns_from_before_mysql_5_6(database: Database) -> None:
    database.run(
        "SET GLOBAL mysql56_temporal_format = OFF",
        f"CREATE TABLE old (id INT AUTO_INCREMENT PRIMARY KEY, {_OLD}, f DATETIME(3), "
        "g TIME(5), h TIMESTAMP(1) NULL, tail INT)",
        "SET GLOBAL mysql56_temporal_format = ON",
        f"CREATE TABLE new (id INT AUTO_INCREMENT PRIMARY KEY, {_OLD}, tail INT)",
    )
    names = ["id", "a", "b", "c", "d", "e", "tail"]
    kinds = ["INT", "TIMESTAMP(6)", "TIMESTAMP_LTZ(6)", "STRING", "DATE", "INT", "INT"]
    declared = [Column(name, kind) for name, kind in zip(names, kinds, strict=True)]
    read = {}
    for table in ("old", "new"):
        source = database.source(table, declared)
        offset, _ = catch_up(source, source.initial_offset())
        more = ", '2024-01-01 10:11:12.5', '-1:2:3.25', '2024-01-01 00:00:00.5'"
        extra, columns = (more, ", f, g, h") if table == "old" else ("", "")
        database.run(
            "SET time_zone = '+00:00', sql_mode = ''",
            *(
                f"INSERT INTO {table} (a, b, c, d, e{columns}, tail) "
                f"VALUES ({row.strip('()')}{extra}, 7)"
                for row in _OLD_ROWS
            ),
        )
        _, binlog = catch_up(source, offset)
        _, snapshot = catch_up(source, source.initial_offset())
        assert binlog == snapshot
        read[table] = snapshot
    assert read["old"] == read["new"]
    assert read["old"][0]["c"] == "-838:59:59" and read["old"][1]["a"] is None
    whole = database.source("old")
    offset, _ = catch_up(whole, whole.initial_offset())
    database.run("INSERT INTO old (f) VALUES ('2024-01-01')")
    with pytest.raises(SchemaChangeError, match="'f' .* before MariaDB 10.1.*ALTER TABLE … FORCE"):
        catch_up(whole, offset)


@pytest.mark.parametrize("kind", ["DATE", "DATETIME", "TIMESTAMP"])
@pytest.mark.parametrize("size", ["1", "100"])
def test_a_zero_date_in_a_key_is_an_error(database: Database, kind: str, size: str) -> None:
    database.run(
        f"CREATE TABLE t (k {kind} DEFAULT '2024-01-01', id INT, PRIMARY KEY (k, id))",
        "SET sql_mode = ''",
        "INSERT INTO t VALUES ('2024-01-01', 1)",
    )
    options = {"scan.incremental.snapshot.chunk.size": size}
    source = database.source("t", options=options)
    offset, rows = catch_up(source, source.initial_offset())
    assert len(rows) == 1
    database.run("SET sql_mode = ''", "INSERT INTO t VALUES (0, 1)")
    for reader, start in ((source, offset), (source, source.initial_offset())):
        with pytest.raises(TableError, match="column 'k' .* of the key has the zero date"):
            catch_up(reader, start)


def test_a_boolean_key_keeps_all_numbers(database: Database) -> None:
    database.run(
        "CREATE TABLE t (k TINYINT(1) PRIMARY KEY, v BOOLEAN)",
        "INSERT INTO t VALUES (0, 1), (1, 5)",
    )
    source = database.source("t")
    assert source.schema.field("k").type == pa.int8()
    assert source.schema.field("v").type == pa.bool_()
    declared = database.source("t", [Column("k", "BOOLEAN"), Column("v", "BOOLEAN")])
    offset, rows = catch_up(declared, declared.initial_offset())
    assert [(row["k"], row["v"]) for row in rows] == [(False, True), (True, True)]
    database.run("INSERT INTO t VALUES (5, 0)")
    with pytest.raises(TableError, match="'k' .* has the value .*such as TINYINT"):
        catch_up(declared, offset)
    _, rows = catch_up(source, source.initial_offset())
    assert [row["k"] for row in rows] == [0, 1, 5]


def test_compressed_columns_with_and_without_a_zlib_header(database: Database) -> None:
    database.run("CREATE TABLE t (id INT PRIMARY KEY, v TEXT COMPRESSED, w BLOB COMPRESSED, x INT)")
    source = database.source("t")
    narrow = database.source("t", [Column("id", "INT"), Column("x", "INT")])
    offset, _ = catch_up(source, source.initial_offset())
    try:
        database.run(
            "SET GLOBAL column_compression_zlib_wrap = ON",
            "SET column_compression_zlib_wrap = ON",
            "INSERT INTO t VALUES (1, REPEAT('é', 5000), REPEAT('b', 5000), 1)",
            "SET column_compression_zlib_wrap = OFF",
            "INSERT INTO t VALUES (2, REPEAT('é', 5000), REPEAT('b', 5000), 2)",
        )
    finally:
        database.run("SET GLOBAL column_compression_zlib_wrap = OFF")
    _, rows = catch_up(source, offset)
    assert [(row["v"], row["w"]) for row in rows] == [("é" * 5000, b"b" * 5000)] * 2
    assert [row["x"] for row in catch_up(narrow, offset)[1]] == [1, 2]
