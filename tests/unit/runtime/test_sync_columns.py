"""Computed and metadata columns of a sync."""

from __future__ import annotations

import datetime
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from streamhouse.connectors.mysql_cdc.database.followed_table import FollowedTable
from streamhouse.errors import OptionError, TableError
from streamhouse.mysql.table import TableDefinition
from streamhouse.mysql.values.types import MySqlColumn
from streamhouse.runtime.sync.mapping.computed_columns import TargetRows, parsed
from streamhouse.runtime.sync.options import sync_table_options
from streamhouse.source import ROW_KIND

INSTANT = datetime.datetime(2024, 1, 31, 23, 59, 58, 123456)
VALUES = {
    "at": pa.array([INSTANT, None], pa.timestamp("us")),
    "day": pa.array([INSTANT.date(), None], pa.date32()),
    "text": pa.array(["2024-01-31 23:59:58.5", None]),
    "epoch": pa.array([1706745598, None], pa.int64()),
    "millis": pa.array(["1706745598123", None]),
    "nanos": pa.array([1706745598123456789, None], pa.int64()),
    "name": pa.array(["  Straße\t", None]),
    "n": pa.array([-7, None], pa.int16()),
    "money": pa.array([Decimal("-12.345"), None], pa.decimal128(38, 3)),
}
TYPES = {
    "at": "TIMESTAMP(6)", "day": "DATE", "text": "STRING", "epoch": "BIGINT", "millis": "STRING",
    "nanos": "BIGINT", "name": "VARCHAR(20)", "n": "SMALLINT", "money": "DECIMAL(38, 3)",
}  # fmt: skip


def computed(text: str) -> tuple[str, Any]:
    """The type of a column, and its first value; the second one must be null."""
    (column,) = parsed([text])
    typed = column.with_type(TYPES)
    values = typed.values(VALUES, 2, 1_700_000_000_123)
    if typed.function not in ("cast", "now"):
        assert values[1].as_py() is None
    return typed.type, values[0].as_py()


@pytest.mark.parametrize(
    ("text", "kind", "expected"),
    [
        ("c=year(at)", "INT", 2024),
        ("c = month( day )", "INT", 1),
        ("c=day(text)", "INT", 31),
        ("c=hour(epoch)", "INT", 23),
        ("c=hour(epoch, 0)", "INT", 23),
        ("c=minute(millis, 3)", "INT", 59),
        ("c=second(nanos, 9)", "INT", 58),
        ("c=second(n, 9)", "INT", 59),
        ("c=date_format(at, yyyy-MM-dd HH:mm:ss.SSS)", "STRING", "2024-01-31 23:59:58.123"),
        ("c=date_format(epoch, yyyyMMdd, 0)", "STRING", "20240131"),
        (
            "c=date_format(nanos, yyyy-MM-dd HH:mm:ss.SSSSSSSSS, 9)",
            "STRING",
            "2024-01-31 23:59:58.123456789",
        ),
        ("c=substring(text, 5)", "STRING", "01-31 23:59:58.5"),
        ("c=substring(text, 0, 4)", "STRING", "2024"),
        ("c=substring(n, 1)", "STRING", "7"),
        ("c=truncate(n, 5)", "SMALLINT", -10),
        ("c=truncate(money, 50)", "DECIMAL(38, 3)", Decimal("-12.350")),
        ("c=truncate(text, 7)", "STRING", "2024-01"),
        ("c=trim(name)", "STRING", "Straße"),
        ("c=upper(name)", "STRING", "  STRASSE\t"),
        ("c=lower(name)", "STRING", "  straße\t"),
        ("c=cast(x)", "STRING", "x"),
        ("c=cast(12, INT)", "INT", 12),
        (
            "c=now()",
            "TIMESTAMP_LTZ(3)",
            datetime.datetime(2023, 11, 14, 22, 13, 20, 123000, datetime.UTC),
        ),
    ],
)
def test_functions(text: str, kind: str, expected: Any) -> None:
    assert computed(text) == (kind, expected)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("c=upper(n)", "needs a text, and column 'n' is SMALLINT"),
        ("c=year(made)", "there is no column 'made'"),
        ("c=yaer(at)", "did you mean 'year'"),
        ("c year(at)", "not of the form"),
        ("c=year(at, 4)", "'4' is not a precision"),
        ("c=date_format(at)", "does not take these arguments"),
        ("c=substring(text, 4, 4)", "is after its begin"),
        ("c=truncate(n, 0)", "at least 1"),
        ("c=cast(x, INT)", "c: "),
        ("c=upper(c)", "computed from itself"),
    ],
)
def test_wrong_expressions(text: str, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        computed(text)


def test_values_that_a_function_cannot_take() -> None:
    with pytest.raises(TableError, match=r"computed column 'c': substring\(name\) has no value"):
        computed("c=substring(name, 50)")
    with pytest.raises(TableError, match="computed column 'c'"):
        computed("c=year(name)")


def test_columns_come_after_those_that_they_use() -> None:
    columns = parsed(["a=upper(b)", "b=trim(c)", "c=lower(name)"])
    assert [column.name for column in columns] == ["c", "b", "a"]


def table() -> FollowedTable:
    number = MySqlColumn("id", "int", "int(11)", nullable=False)
    name = MySqlColumn("name", "varchar", "varchar(9)")
    definition = TableDefinition("shop_1", "people", (number, name), (number,))
    columns = (("id", "INT"), ("name", "VARCHAR(9)"))
    return FollowedTable("0", definition, "ods.people", columns)


def test_updates_that_move_a_row_are_a_delete_and_an_insert() -> None:
    conf = {
        "hostname": "h", "username": "u", "password": "p", "database-name": "d",
        "table-name": "t",
    }  # fmt: skip
    options = sync_table_options(
        {}, "ods", "people", conf, computed_column=["first=truncate(name, 1)"],
        metadata_column=["table_name", "op_ts"],
    )  # fmt: skip
    target: Any = SimpleNamespace(primary_key=("first", "id"), partition_keys=("first",))
    batch = pa.record_batch(
        {
            "id": pa.array([1, 2, 2, 3, 3, 4, 4, 5], pa.int32()),
            "name": ["x", "ab", "ac", "ab", "bb", None, None, "q"],
            ROW_KIND: ["+I", "-U", "+U", "-U", "+U", "-U", "+U", "-D"],
        }
    )
    rows = TargetRows(options, table(), target, 0).rows(batch, [7] * 8)
    assert rows.schema.names == ["id", "name", "first", "table_name", "op_ts", ROW_KIND]
    assert rows.column(ROW_KIND).to_pylist() == ["+I", "-U", "+U", "-D", "+I", "-U", "+U", "-D"]
    assert rows.column("table_name").to_pylist() == ["people"] * 8
    assert rows.column("op_ts")[0].as_py().timestamp() == 7
    kept: Any = SimpleNamespace(primary_key=("id",), partition_keys=())
    same = TargetRows(options, table(), kept, 0).rows(batch, [7] * 8)
    assert same.column(ROW_KIND) == batch.column(ROW_KIND)
