"""Values of MySQL in STRING columns, as Paimon's sync actions write them with `to-string`."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from streamhouse.connectors.mysql_cdc.database.followed_table import FollowedTable
from streamhouse.errors import TableError
from streamhouse.mysql.table import TableDefinition
from streamhouse.mysql.values.types import MySqlColumn, convert, from_texts
from streamhouse.types import arrow_type

TEXTS: list[tuple[str, dict[str, Any], bytes, str]] = [
    # From Paimon's test of the mode, and its code.
    ("bit(1)", {}, b"\1", "true"),
    ("bit(1)", {}, b"\0", "false"),
    ("bit(64)", {}, bytes.fromhex("0000000000001f1f"), "0" * 48 + "0001111100011111"),
    ("tinyint(1)", {}, b"1", "1"),
    ("int(10) unsigned zerofill", {}, b"0000000003", "3"),
    ("bigint(20) unsigned", {}, b"18446744073709551615", "18446744073709551615"),
    ("float", {}, b"0.10000000149011612", "0.1"),
    ("double", {}, b"1.000011", "1.000011"),
    ("decimal(10,2)", {"precision": 10, "scale": 2}, b"12345.11", "12345.11"),
    (
        "decimal(40,3) unsigned zerofill",
        {"precision": 40, "scale": 3},
        b"0" * 36 + b"9.330",
        "9.330",
    ),
    ("decimal(40,3) zerofill", {"precision": 40, "scale": 3}, b"0" * 37 + b".000", "0.000"),
    ("date", {}, b"2023-03-23", "2023-03-23"),
    ("datetime", {}, b"2023-03-23 14:30:05", "2023-03-23 14:30:05.000"),
    ("datetime(2)", {"fraction": 2}, b"2023-03-24 14:30:05.12", "2023-03-24 14:30:05.120"),
    ("datetime(6)", {"fraction": 6}, b"2023-03-23 14:30:05.123456", "2023-03-23 14:30:05.123456"),
    ("timestamp", {}, b"2023-03-23 03:10:00", "2023-03-22 22:10:00.000000"),
    ("year(4)", {}, b"2023", "2023"),
    ("time", {}, b"10:13:23", "10:13:23"),
    ("binary(10)", {}, b"bytes\0\0\0\0\0", "bytes\0\0\0\0\0"),
    ("set('a','b')", {}, b"a,b", "a,b"),
    ("json", {}, b'{"a": "b"}', '{"a": "b"}'),
]


@pytest.mark.parametrize(("kind", "more", "raw", "text"), TEXTS)
def test_texts_of_a_sync(kind: str, more: dict[str, Any], raw: bytes, text: str) -> None:
    column = MySqlColumn("c", kind.partition("(")[0], kind, **more)
    table = TableDefinition("d", "t", (column,), ())
    followed = FollowedTable("0", table, "d.t", (("c", "STRING"),))
    rows = followed.writer("-05:00").snapshot([pa.array([raw, None], pa.binary())])
    assert rows.column("c").to_pylist() == [text, None]


DECLARED: list[tuple[str, bytes, str, Any]] = [
    # What the other modes do in a sync, a declared type does.
    ("tinyint(1)", b"5", "TINYINT", 5),
    ("bigint(20) unsigned", b"42", "BIGINT", 42),
    ("longtext", b"ab", "BYTES", b"ab"),
    ("time", b"-01:02:03", "STRING", "-01:02:03"),
    ("bit(10)", b"\2\1", "BIGINT", 513),
    ("bit(10)", b"\2\1", "STRING", "0000001000000001"),
    ("datetime", b"2023-03-23 14:30:05", "STRING", "2023-03-23 14:30:05"),
]


@pytest.mark.parametrize(("kind", "raw", "declared", "value"), DECLARED)
def test_values_of_declared_types(kind: str, raw: bytes, declared: str, value: Any) -> None:
    column = MySqlColumn("c", kind.partition("(")[0].partition(" ")[0], kind)
    plain = from_texts(column, pa.array([raw], pa.binary()))
    assert convert(column, plain, arrow_type(declared), "UTC").to_pylist() == [value]


def test_bytes_that_are_no_text_end_it() -> None:
    column = MySqlColumn("c", "blob", "blob")
    with pytest.raises(TableError, match="column 'c' .blob. does not fit its declared type"):
        convert(column, pa.array([b"\xff"]), pa.string(), "UTC")
