"""The SQL that the `jdbc` sink sends: literals, the net change of each key, sizes of statements."""

from __future__ import annotations

import datetime
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from streamhouse.connectors.jdbc.statements import Statements, literals, net_changes
from streamhouse.connectors.jdbc.target import TargetTable
from streamhouse.errors import TableError
from streamhouse.mysql.values.types import MySqlColumn
from streamhouse.source import ROW_KIND

INT = MySqlColumn("id", "int", "int(11)", nullable=False)
TEXT = MySqlColumn("name", "varchar", "varchar(100)", charset="utf8mb4")
NOON = datetime.datetime(2024, 7, 1, 12, 0, 0, 123456)
TARGET = TargetTable("t.p", "`t`.`p`", (INT, TEXT), ("id",), "UTC", "InnoDB", (), 16 << 20)


def column(data_type: str, **facts: Any) -> MySqlColumn:
    return MySqlColumn("c", data_type, data_type, **facts)


@pytest.mark.parametrize(
    ("kind", "value", "into", "zone", "text"),
    [
        (pa.bool_(), True, column("tinyint"), "UTC", "1"),
        (pa.int64(), -7, column("bigint"), "UTC", "-7"),
        (pa.float64(), 0.1, column("double"), "UTC", "'0.1'"),
        (pa.float64(), -0.0, column("double"), "UTC", "'-0'"),
        (pa.float32(), 0.1, column("float"), "UTC", "'0.1'"),
        (pa.decimal128(38, 9), Decimal("1E-9"), column("decimal"), "UTC", "'1E-9'"),
        (pa.decimal128(38, 9), Decimal("-1E-9"), TEXT, "UTC", "'-0.000000001'"),
        (pa.decimal128(38, 9), Decimal("1234567.89"), TEXT, "UTC", "'1234567.890000000'"),
        (pa.decimal128(38, 18), Decimal("19.99"), column("double"), "UTC",
         "'19.990000000000000000'"),
        (pa.decimal128(38, 18), Decimal("0.1"), column("float"), "UTC", "'0.100000000000000000'"),
        (pa.decimal128(38, 38), Decimal("0.1"), column("double"), "UTC", f"'0.1{'0' * 37}'"),
        (pa.int64(), 2**60, column("double"), "UTC", "1152921504606846976"),
        (pa.int64(), -(2**63), column("float"), "UTC", "-9223372036854775808"),
        (pa.int32(), 0, column("year"), "UTC", "0"),
        (pa.decimal128(4, 0), Decimal(0), column("year"), "UTC", "0"),
        (pa.float64(), 1999.0, column("year"), "UTC", "1999"),
        (pa.string(), "0000", column("year"), "UTC", "'0000'"),
        (pa.string(), "o'h \\ no\0", TEXT, "UTC", "'o\\'h \\\\ no\0'"),
        (pa.binary(), b"\xff'", column("blob"), "UTC", b"_binary'\xff\\''"),
        (pa.binary(), b"\x0f", column("bit"), "UTC", "X'0f'"),
        (pa.date32(), NOON.date(), column("date"), "UTC", "'2024-07-01'"),
        (
            pa.time32("ms"), datetime.time(1, 2, 3, 4000), column("time", fraction=3), "UTC",
            "'01:02:03.004'",
        ),
        (pa.time32("ms"), datetime.time(1, 2, 3, 4000), column("time"), "UTC", "'01:02:03'"),
        (pa.timestamp("us"), NOON, column("datetime"), "UTC", "'2024-07-01 12:00:00'"),
        (
            pa.timestamp("us"), NOON, column("datetime", fraction=3), "UTC",
            "'2024-07-01 12:00:00.123'",
        ),
        (
            pa.timestamp("us"), NOON, column("timestamp"), "Europe/Berlin",
            "'2024-07-01 10:00:00'",
        ),
        (
            pa.timestamp("us", "UTC"), NOON, column("datetime"), "+02:00",
            "'2024-07-01 14:00:00'",
        ),
        (pa.timestamp("ms", "UTC"), NOON, column("timestamp"), "+02:00", "'2024-07-01 12:00:00'"),
        (pa.list_(pa.string()), ["x", "y"], column("set"), "UTC", "'x,y'"),
    ],
)  # fmt: skip
def test_a_value_is_a_literal(
    kind: pa.DataType, value: Any, into: MySqlColumn, zone: str, text: str | bytes
) -> None:
    if pa.types.is_timestamp(kind) and kind.unit == "ms":
        value = value.replace(microsecond=0)
    values = pa.array([value, None], kind)
    expected = text if isinstance(text, bytes) else text.encode()
    assert literals(into, values, zone).to_pylist() == [expected, None]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_mysql_has_no_nan(value: float) -> None:
    with pytest.raises(TableError, match="column 'c' .* no NaN and no infinity"):
        literals(column("double"), pa.array([1.0, None, value]), "UTC")


@pytest.mark.parametrize(
    ("kind", "value", "into"),
    [
        (pa.int64(), 2**53 + 1, column("double")),
        (pa.int64(), 1_152_921_504_606_847_000, column("double")),
        (pa.int64(), 2**63 - 1, column("double")),
        (pa.int32(), 2**24 + 1, column("float")),
        (pa.decimal128(20, 0), Decimal(2**64 - 1), column("double")),
        (pa.decimal128(18, 2), Decimal("-9007199254740993.25"), column("double")),
        (pa.decimal128(38, 18), Decimal("0.333333333333333333"), column("double")),
        (pa.decimal128(38, 38), Decimal("0." + "3" * 38), column("double")),
        (pa.decimal128(10, 2), Decimal("12345678.91"), column("float")),
        (pa.decimal128(10, 3), Decimal("1.555"), column("double", precision=10, scale=2)),
    ],
)
def test_an_exact_number_is_not_stored_as_the_nearest_double(
    kind: pa.DataType, value: Any, into: MySqlColumn
) -> None:
    message = f"column 'c' .* does not hold all digits of {value}, and MySQL would change it"
    with pytest.raises(TableError, match=message):
        literals(into, pa.array([0, None, value], kind), "UTC")


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.int32(), 5), (pa.decimal128(4, 0), Decimal(99)), (pa.float64(), 1.0),
        (pa.string(), "0"), (pa.string(), "69"), (pa.bool_(), True),
    ],
)  # fmt: skip
def test_a_year_of_two_digits_is_an_error(kind: pa.DataType, value: Any) -> None:
    with pytest.raises(TableError, match="column 'c' .* for another year; write all four digits"):
        literals(column("year"), pa.array([None, value], kind), "UTC")


def test_the_last_change_of_each_key_counts() -> None:
    changes = [
        ("+I", 3, "c"), ("-U", 1, "a"), ("+U", 1, "A"), ("+I", 2, "b"), ("-D", 2, "b"),
        ("-U", 5, "e"), ("+U", 6, "e"), ("-D", 4, "d"), ("+I", 4, "D"),
    ]  # fmt: skip
    kinds, ids, names = zip(*changes, strict=True)
    rows = pa.table({"id": ids, "name": names, ROW_KIND: kinds})
    upserts, deleted = net_changes(rows, ["id"])
    assert upserts.to_pylist() == [
        {"id": 1, "name": "A"}, {"id": 3, "name": "c"}, {"id": 4, "name": "D"},
        {"id": 6, "name": "e"},
    ]  # fmt: skip
    assert deleted.to_pylist() == [{"id": 2}, {"id": 5}]


def test_inserts_of_one_key_are_one_row_and_a_null_key_is_an_error() -> None:
    rows = pa.table({"id": [1, 1], "name": ["a", None]})
    upserts, deleted = net_changes(rows, ["id"])
    assert (upserts.to_pylist(), deleted.num_rows) == ([{"id": 1, "name": None}], 0)
    with pytest.raises(TableError, match="WHERE id IS NOT NULL"):
        net_changes(pa.table({"id": [1, None], "name": ["a", "b"]}), ["id"])


def test_statements_keep_within_rows_and_bytes() -> None:
    rows = pa.table({"id": pa.array(range(10), pa.int32()), "name": [None, *"abcdefghi"]})
    texts = list(Statements(TARGET, 4).inserts(rows))
    assert [text.count(b"),(") + 1 for text in texts] == [4, 4, 2]
    assert texts[0].decode() == (
        "INSERT INTO `t`.`p` (`id`, `name`) VALUES (0,NULL),(1,'a'),(2,'b'),(3,'c') "
        "ON DUPLICATE KEY UPDATE `name` = VALUES(`name`)"
    )
    long = pa.table({"id": pa.array([1, 2, 3], pa.int32()), "name": ["x" * 600] * 3})
    small = Statements(replace(TARGET, packet_bytes=2_000), None)
    assert [text.count(b"),(") + 1 for text in small.inserts(long)] == [1, 1, 1]
    with pytest.raises(TableError, match=r"a row has 3,0\d\d bytes, .*max_allowed_packet = 2,000"):
        list(small.inserts(pa.table({"id": pa.array([1], pa.int32()), "name": ["x" * 3_000]})))


def test_deletes_by_several_columns() -> None:
    target = replace(TARGET, key=("id", "name"))
    keys = pa.table({"id": pa.array(range(501), pa.int32()), "name": ["a'"] * 501})
    first, second = Statements(target, None).deletes(keys)
    assert second.decode() == "DELETE FROM `t`.`p` WHERE (`id`, `name`) IN ((500,'a\\''))"
    assert first.count(b"(") == 502
