"""METADATA columns: their declaration, and what mysql-cdc puts into them."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from functools import partial

import pyarrow as pa
import pytest
from tests.unit.sql.test_sql_script import one

from streamhouse.connectors.mysql_cdc.database.part_reader import metadata_values
from streamhouse.connectors.registry import check_declaration
from streamhouse.connectors.specs import declared_rows
from streamhouse.errors import OptionError, SqlError
from streamhouse.mysql.options import DECLARED as MYSQL
from streamhouse.runtime.session.session import Session
from streamhouse.runtime.session.show_statements import table_text
from streamhouse.sql.plan import Column, TableInfo
from streamhouse.sql.statements.script import parse_script
from streamhouse.sql.syntax import CreateTable

DECLARED = (
    "CREATE TEMPORARY TABLE t (`db` STRING METADATA FROM 'database_name' VIRTUAL, id INT, "
    "op_ts TIMESTAMP_LTZ(3) NOT NULL METADATA, kind STRING METADATA FROM 'row_kind' VIRTUAL, "
    "table_name STRING METADATA VIRTUAL COMMENT 'which', PRIMARY KEY (id) NOT ENFORCED) WITH ("
    "'connector' = 'mysql-cdc', 'hostname' = 'h', 'username' = 'u', 'password' = 'p', "
    "'database-name' = 'd', 'table-name' = 't')"
)


def declared(text: str) -> TableInfo:
    made = one(text)
    assert isinstance(made, CreateTable)
    name = ("c", "d", *made.name[-1:])
    return TableInfo(
        name, made.columns, (), made.primary_key, (), made.options, made.options["connector"]
    )


def test_declaration_and_its_text() -> None:
    table = declared(DECLARED)
    assert [(column.name, column.metadata) for column in table.columns] == [
        ("db", "database_name"), ("id", None), ("op_ts", "op_ts"), ("kind", "row_kind"),
        ("table_name", "table_name"),
    ]  # fmt: skip
    assert check_declaration(table, "table t") == []
    again = declared(table_text(table).replace("****", "p"))
    assert (again.columns, again.primary_key) == (table.columns, table.primary_key)


def test_the_text_of_a_table_of_files_has_its_path() -> None:
    text = "CREATE TEMPORARY TABLE t (a INT) WITH ('connector' = 'filesystem', 'format' = 'json', "
    table = declared(text + "'path' = '/in', 's3.secret-key' = 'x')")
    assert declared(table_text(table)).options == {**table.options, "s3.secret-key": "****"}


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ("x STRING METADATA FROM 'row_kin'", "no metadata key 'row_kin'; did you mean 'row_kind'"),
        ("op_ts STRING METADATA", "is STRING; declare it as TIMESTAMP_LTZ"),
    ],
)
def test_metadata_that_the_connector_does_not_have(column: str, message: str) -> None:
    text = DECLARED.replace("op_ts TIMESTAMP_LTZ(3) NOT NULL METADATA", column)
    with pytest.raises(OptionError, match=message):
        check_declaration(declared(text), "table t")


def test_connectors_without_metadata() -> None:
    text = "CREATE TABLE t (a INT, b INT METADATA) WITH ('connector' = 'datagen')"
    with pytest.raises(OptionError, match="'datagen' has no metadata.*'b'"):
        check_declaration(declared(text), "table t")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("CREATE TABLE t (a INT, b INT METADATA PRIMARY KEY NOT ENFORCED)", "'b' is not stored"),
        ("CREATE TABLE t (a INT, b INT METADATA) PARTITIONED BY (b)", "'b' is not stored"),
        ("CREATE TABLE t (b INT METADATA)", "neither computed nor METADATA"),
        ("CREATE TABLE t (a INT, b INT METADATA FROM x)", "expected a metadata key"),
    ],
)
def test_mistakes(text: str, message: str) -> None:
    with pytest.raises(SqlError, match=message):
        parse_script(text)


def test_paimon_tables_have_none(tmp_path: object) -> None:
    (statement,) = parse_script("CREATE TABLE t (a INT, b INT METADATA)")
    assert isinstance(statement, CreateTable)
    with pytest.raises(OptionError, match="Paimon tables have no metadata.*'b'"):
        Session({"warehouse": str(tmp_path)}).tables.create(statement)


def completed(
    rows: pa.RecordBatch,
    columns: Sequence[Column],
    schema: pa.Schema,
    names: tuple[str, str] = ("d", "t"),
    seconds: Sequence[int] | None = None,
) -> pa.RecordBatch:
    metadata = partial(metadata_values, names, rows, seconds)
    return declared_rows(rows, columns, schema, metadata)


def test_values_in_the_declared_order() -> None:
    columns = declared(DECLARED).columns
    schema = pa.schema([
        ("db", pa.string()), ("id", pa.int32()), ("op_ts", pa.timestamp("ms", "UTC")),
        ("kind", pa.string()), ("table_name", pa.string()),
    ])  # fmt: skip
    names = "shop", "orders"
    rows = pa.record_batch({"id": pa.array([1, 2], pa.int32()), "rowkind": ["-U", "+U"]})
    times = [1_700_000_000, 1_700_000_001]
    (first, second) = completed(rows, columns, schema, names, times).to_pylist()
    at = datetime.datetime(2023, 11, 14, 22, 13, 20, tzinfo=datetime.UTC)
    assert first.pop("op_ts").replace(tzinfo=datetime.UTC) == at
    assert list(first.items()) == [
        ("db", "shop"), ("id", 1), ("kind", "-U"), ("table_name", "orders"), ("rowkind", "-U"),
    ]  # fmt: skip
    assert second["kind"] == "+U"
    (snapshot, _) = completed(rows, columns, schema, names).to_pylist()
    assert snapshot["op_ts"].timestamp() == 0 or snapshot["op_ts"].year == 1970


def test_tables_without_metadata_are_unchanged() -> None:
    rows = pa.record_batch({"id": pa.array([1], pa.int32()), "rowkind": ["+I"]})
    columns, schema = [Column("id", "INT")], pa.schema([("id", pa.int32())])
    assert completed(rows, columns, schema) is rows


def test_columns_that_a_shard_lacks_are_null() -> None:
    rows = pa.record_batch({"id": pa.array([1], pa.int32()), "rowkind": ["+I"]})
    columns = [Column("more", "INT"), Column("id", "INT")]
    schema = pa.schema([("more", pa.int32()), ("id", pa.int32())])
    found = completed(rows, columns, schema).to_pylist()
    assert found == [{"more": None, "id": 1, "rowkind": "+I"}]


def test_keys() -> None:
    assert {entry.key for entry in MYSQL.metadata} == {
        "database_name",
        "table_name",
        "op_ts",
        "row_kind",
    }
