"""Iceberg metadata beside Paimon's: current after each statement, and read by Iceberg's readers."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import duckdb
import pytest
from pyiceberg.table import StaticTable
from tests.integration.catalogs.test_jdbc import write

from streamhouse.errors import OptionError, SchemaChangeError
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.java.sidecar import Sidecar
from streamhouse.paimon.maintenance.policy import Pace
from streamhouse.paimon.maintenance.service import Maintenance
from streamhouse.runtime.execute import execute
from streamhouse.runtime.run_output import RunOutput
from streamhouse.runtime.script import ScriptOptions, ScriptRunner
from streamhouse.sql.plan import Column
from streamhouse.sql.statements.script import parse_script

STORAGE = "metadata.iceberg.storage"


def iceberg(folder: Path) -> StaticTable:
    """The table as Iceberg's readers find it: by the version that the hint names."""
    version = (folder / "metadata" / "version-hint.text").read_text().strip()
    return StaticTable.from_metadata(str(folder / "metadata" / f"v{version}.metadata.json"))


def ids(table: StaticTable) -> list[int]:
    return sorted(table.scan().to_arrow()["id"].to_pylist())


def ids_by_duckdb(table: StaticTable) -> list[int]:
    """The same by DuckDB, from the data files that the metadata lists."""
    files = [task.file.file_path.removeprefix("file:") for task in table.scan().plan_files()]
    with duckdb.connect() as connection:
        found = connection.read_parquet(files).select("id").fetchall()
    return sorted(row[0] for row in found)


def run(lake: Path, text: str) -> None:
    ScriptRunner(ScriptOptions("s", {"warehouse": str(lake)}), RunOutput()).run(parse_script(text))


@pytest.mark.parametrize("storage", ["table-location", "hadoop-catalog"])
def test_statements_keep_it_current(tmp_path: Path, storage: str) -> None:
    run(
        tmp_path,
        f"""CREATE DATABASE shop; USE shop;
        CREATE TABLE t (id INT, name STRING) WITH ('bucket' = '-1', '{STORAGE}' = '{storage}');
        INSERT INTO t VALUES (1, 'a'), (2, 'b');
        INSERT INTO t VALUES (3, 'c');""",
    )
    database = tmp_path / ("iceberg/shop" if storage == "hadoop-catalog" else "shop.db")
    table = iceberg(database / "t")
    assert ids(table) == ids_by_duckdb(table) == [1, 2, 3]


def test_rows_that_are_gone_and_columns_that_change(tmp_path: Path) -> None:
    run(
        tmp_path,
        f"""CREATE DATABASE shop; USE shop;
        CREATE TABLE t (id INT, n INT, rate FLOAT, price DECIMAL(5, 2)) WITH (
          'bucket' = '-1', '{STORAGE}' = 'table-location');
        INSERT INTO t VALUES (1, 1, CAST(1.5 AS FLOAT), 1.25), (2, 2, NULL, NULL);
        TRUNCATE TABLE t;""",
    )
    assert ids(iceberg(tmp_path / "shop.db" / "t")) == []
    run(
        tmp_path,
        """USE shop; INSERT INTO t VALUES (3, 3, CAST(1.5 AS FLOAT), 1.25);
        ALTER TABLE t MODIFY n BIGINT; ALTER TABLE t MODIFY rate DOUBLE;
        ALTER TABLE t MODIFY price DECIMAL(9, 2); ALTER TABLE t RENAME price TO cost;
        INSERT INTO t VALUES (4, 5000000000, 1e300, 1234567.89);""",
    )
    found = iceberg(tmp_path / "shop.db" / "t").scan().to_arrow().sort_by("id").to_pylist()
    assert found == [
        {"id": 3, "n": 3, "rate": 1.5, "cost": Decimal("1.25")},
        {"id": 4, "n": 5_000_000_000, "rate": 1e300, "cost": Decimal("1234567.89")},
    ]


@pytest.mark.parametrize(
    "change", ["n STRING", "n DOUBLE", "n DECIMAL(10, 0)", "price DECIMAL(9, 3)"]
)
def test_a_type_that_iceberg_cannot_widen_to_is_refused(tmp_path: Path, change: str) -> None:
    warehouse = str(tmp_path)
    columns = "(n INT, price DECIMAL(5, 2))"
    execute(warehouse, f"CREATE TABLE t {columns} WITH ('{STORAGE}' = 'table-location')")
    with pytest.raises(SchemaChangeError, match="Iceberg's readers could not read it"):
        execute(warehouse, f"ALTER TABLE t MODIFY {change}")
    execute(warehouse, f"CREATE TABLE plain {columns}")
    execute(warehouse, f"ALTER TABLE plain MODIFY {change}")


def test_maintenance_keeps_it_current(tmp_path: Path) -> None:
    warehouse = Warehouse(str(tmp_path))
    warehouse.create_database("shop")
    columns = [Column("id", "INT", False), Column("name", "STRING")]
    options = {STORAGE: "table-location", "bucket": "-1"}
    warehouse.create_table("shop", "t", columns, options=options)
    write(warehouse, "shop.t", [1, 2])
    pace = Pace(first_seconds=0.0, longest_wait_seconds=0.0)
    service = Maintenance(warehouse.options, lambda: ["shop.t"], pace)
    service.start()
    try:
        write(warehouse, "shop.t", [3])
    finally:
        service.stop()
    assert ids(iceberg(tmp_path / "shop.db" / "t")) == [1, 2, 3]
    assert service.failures == 0


def test_a_keyed_table_shows_what_is_compacted(tmp_path: Path) -> None:
    warehouse = Warehouse(str(tmp_path))
    warehouse.create_database("shop")
    columns = [Column("id", "INT", False), Column("name", "STRING")]
    options = {STORAGE: "table-location", "bucket": "1"}
    warehouse.create_table("shop", "t", columns, ["id"], options=options)
    with Sidecar(warehouse.options) as java:
        assert java.write_iceberg_metadata("shop.t") == 0
        write(warehouse, "shop.t", [1, 2])
        assert java.compact("shop.t", full=True)
        write(warehouse, "shop.t", [2, 3])
        assert java.write_iceberg_metadata("shop.t") == 3
        assert ids(iceberg(tmp_path / "shop.db" / "t")) == [1, 2]
        assert java.compact("shop.t", full=True)
    assert ids(iceberg(tmp_path / "shop.db" / "t")) == [1, 2, 3]


def test_other_places_are_refused(tmp_path: Path) -> None:
    warehouse = Warehouse(str(tmp_path))
    warehouse.create_database("shop")
    with pytest.raises(OptionError, match="'hive-catalog' is not one of disabled"):
        warehouse.create_table(
            "shop", "t", [Column("id", "INT")], options={STORAGE: "hive-catalog"}
        )
