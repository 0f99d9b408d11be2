"""The Java core reads altered tables as we do."""

from __future__ import annotations

import contextlib
import datetime
import decimal
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from tests.java_reads import java_rows

from streamhouse import execute
from streamhouse.errors import StreamhouseError
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.java.sidecar import Sidecar
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.schema.type_widening import widens
from streamhouse.paimon.storage.lock import commit_lock
from streamhouse.paimon.write.commit import TableCommitter
from streamhouse.paimon.write.table_writer import TableWriter
from streamhouse.sql.plan import Column
from streamhouse.sql.schema_changes import SetType

USER = "0f8fad5b-d9cb-469f-a165-70867728950e"
AT = datetime.datetime(2024, 2, 29, 23, 59, 59, 123000)
OLD: dict[str, list[Any]] = {
    "TINYINT": [-128, 127, None],
    "SMALLINT": [-32768, 32767, 0],
    "INT": [-(2**31), 2**31 - 1, None],
    "BIGINT": [-(2**63), 2**63 - 1, 7],
    "FLOAT": [1.5, 0.1, -3e38],
    "DECIMAL(10, 2)": [decimal.Decimal("99999999.99"), decimal.Decimal("-0.01"), None],
    "CHAR(5)": ["abcde", "fghij", None],
    "VARCHAR(5)": ["abc", "", None],
    "BINARY(3)": [b"abc", b"\0\1\2", None],
    "VARBINARY(5)": [b"abc", b"", None],
    "TIMESTAMP(0)": [AT.replace(microsecond=0), None, None],
    "TIMESTAMP(3)": [AT, datetime.datetime(1969, 12, 31, 23, 59, 58, 999000), None],
}
NEW = (
    "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(5, 2)", "DECIMAL(38, 10)",
    "VARCHAR(9)", "STRING", "VARBINARY(9)", "BYTES", "TIMESTAMP(3)", "TIMESTAMP(6)",
)  # fmt: skip
PAIRS = [(old, new) for old in OLD for new in NEW if old != new and widens(old, new)]


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    made = Warehouse(str(tmp_path_factory.mktemp("alter")))
    made.create_database("default")
    return made


@pytest.fixture(scope="module")
def java(warehouse: Warehouse) -> Iterator[Sidecar]:
    with Sidecar(warehouse.options) as sidecar:
        yield sidecar


def ours(table: Table) -> list[dict[str, Any]]:
    rows = [row for batch in table.read() for row in batch.to_pylist()]
    return sorted(rows, key=lambda row: int(row["id"]))


def theirs(java: Sidecar, table: Table) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = java_rows(java, table.identifier).to_pylist()
    return sorted(rows, key=lambda row: int(row["id"]))


@pytest.mark.parametrize("form", ["parquet", "orc"])
def test_every_widened_type_is_read_alike(warehouse: Warehouse, java: Sidecar, form: str) -> None:
    full = f"default.wide_{form}"
    columns = [Column(f"c{number}", old) for number, (old, _) in enumerate(PAIRS)]
    options = {"bucket": "1", "file.format": form}
    warehouse.create_table("default", f"wide_{form}", [Column("id", "INT"), *columns], ["id"],
                           options=options)  # fmt: skip
    rows = [
        {"id": place, **{f"c{number}": OLD[old][place] for number, (old, _) in enumerate(PAIRS)}}
        for place in range(3)
    ]
    writer = TableWriter(warehouse.options, full, USER)
    writer.write(pa.RecordBatch.from_pylist(rows, schema=warehouse.table(full).arrow_schema))
    TableCommitter(warehouse.options, full, USER).commit(0, writer.prepare(0))
    writer.close()
    # The compactor writes the table's own format.
    java.compact(full, full=True)
    changes = [SetType((f"c{number}",), new) for number, (_, new) in enumerate(PAIRS)]
    warehouse.alter_table(full, *changes)
    table = warehouse.table(full)
    read = ours(table)
    assert read == theirs(java, table)
    for number, (old, new) in enumerate(PAIRS):
        for place, value in enumerate(OLD[old]):
            found = read[place][f"c{number}"]
            if new == "STRING" and value is not None:
                assert found == str(value)
            elif old != "FLOAT":
                assert found == value, (old, new)


def test_defaults_replace_missing_values(warehouse: Warehouse, java: Sidecar) -> None:
    execute(
        warehouse,
        "CREATE TABLE d (id INT PRIMARY KEY NOT ENFORCED, v INT) WITH ('bucket' = '1');"
        "INSERT INTO d (id) VALUES (1);"
        "ALTER TABLE d ADD (n DECIMAL(6, 2) DEFAULT 5.25, s STRING DEFAULT 'x');"
        "ALTER TABLE d ALTER COLUMN v SET DEFAULT -7;"
        "INSERT INTO d (id) VALUES (2);"
        "ALTER TABLE d ALTER COLUMN v DROP DEFAULT;"
        "ALTER TABLE d RENAME s TO t;"
        "INSERT INTO d (id, n) VALUES (3, 1)",
    )
    table = warehouse.table("default.d")
    price = decimal.Decimal("5.25")
    assert [tuple(row.values()) for row in ours(table)] == [
        (1, None, None, None),
        (2, -7, price, "x"),
        (3, None, 1, "x"),
    ]
    assert ours(table) == theirs(java, table)
    with pytest.raises(StreamhouseError, match="default value `x` for type INT"):
        execute(warehouse, "ALTER TABLE d ALTER COLUMN v SET DEFAULT 'x'")


def test_default_values_of_earlier_releases_are_defaults_of_columns(
    warehouse: Warehouse, java: Sidecar
) -> None:
    execute(
        warehouse,
        "CREATE TABLE e (id INT PRIMARY KEY NOT ENFORCED, v INT, s STRING) WITH ('bucket' = '1', "
        "'fields.v.default-value' = '7');"
        "ALTER TABLE e SET ('fields.s.default-value' = 'x');"
        "INSERT INTO e VALUES (1, NULL, NULL), (2, 3, 'y');"
        "ALTER TABLE e RESET ('fields.v.default-value');"
        "INSERT INTO e (id) VALUES (3);",
    )
    table = warehouse.table("default.e")
    assert table.options == {"bucket": "1"}
    assert [tuple(row.values()) for row in ours(table)] == [
        (1, 7, "x"),
        (2, 3, "y"),
        (3, None, "x"),
    ]
    assert ours(table) == theirs(java, table)
    with pytest.raises(StreamhouseError, match="default value `x` for type INT"):
        execute(
            warehouse,
            "CREATE TABLE f (id INT, v INT) WITH ('fields.v.default-value' = 'x')",
        )
    assert "f" not in warehouse.tables("default")


@pytest.mark.parametrize("locked", [False, True], ids=["free", "locked by the caller"])
def test_the_java_core_is_not_stopped_by_a_cut_off_commit(
    warehouse: Warehouse, java: Sidecar, locked: bool
) -> None:
    execute(
        warehouse,
        "DROP TABLE IF EXISTS torn; CREATE TABLE torn (id INT) WITH ('bucket' = '-1',"
        "'snapshot.num-retained.min' = '1', 'snapshot.num-retained.max' = '1');"
        "INSERT INTO torn VALUES (1);"
        "INSERT INTO torn VALUES (2)",
    )
    table = warehouse.table("default.torn")
    folder = f"{table.location}/snapshot"
    left = f"{folder}/snapshot-3.tmp-d1154920-0b4b-4ee7-af19-86c8fee88e2c"
    table.files.write_text(left, "{")
    table.files.delete(f"{folder}/EARLIEST")
    table.files.delete(f"{folder}/LATEST")
    with commit_lock(table.location) if locked else contextlib.nullcontext():
        found = java.call(table.identifier, lambda _, one: int(one.latestSnapshot().get().id()))
    assert found == 2
    assert not table.files.exists(left)
