"""Spark reads and writes of versions, branches and system tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pypaimon import CatalogFactory
from pypaimon.schema.data_types import AtomicType
from pypaimon.schema.schema_change import SchemaChange
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from streamhouse import execute
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.sql.plan import Column


def read(spark: SparkSession, warehouse: Warehouse, table: str, **options: str) -> DataFrame:
    reader = spark.read.format("paimon").option("warehouse", warehouse.path)
    return reader.options(**options).load(table)


def write(frame: DataFrame, warehouse: Warehouse, table: str, **options: str) -> None:
    writer = frame.write.format("paimon").mode("append").option("warehouse", warehouse.path)
    writer.options(**options).save(table)


def rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in frame.collect())


@pytest.fixture
def items(spark: SparkSession, warehouse: Warehouse) -> Warehouse:
    """Item 1 is 1, then 2 (tag `two`, branch `b`), then there is a column more."""
    columns = [Column("id", "BIGINT"), Column("v", "INT")]
    warehouse.create_table("db", "items", columns, ["id"], options={"bucket": "1"})
    for value in (1, 2):
        write(spark.createDataFrame([(1, value)], "id long, v int"), warehouse, "db.items")
    catalog = CatalogFactory.create(dict(warehouse.options))
    table = catalog.get_table("db.items")
    table.create_tag("two", 2)
    table.branch_manager().create_branch("b", "two")
    added = SchemaChange.add_column("w", AtomicType("INT"))
    catalog.alter_table("db.items", [added], False)
    write(spark.createDataFrame([(1, 3, 3)], "id long, v int, w int"), warehouse, "db.items")
    return warehouse


def test_batch_reads_of_the_past(spark: SparkSession, items: Warehouse) -> None:
    first = items.table("db.items").snapshot(1).time_ms
    for key, value, expected in (
        ("snapshot", "1", (1, 1)),
        ("scan.snapshot-id", "1", (1, 1)),
        ("tag", "two", (1, 2)),
        ("scan.tag-name", "two", (1, 2)),
        ("version", "two", (1, 2)),
        ("scan.version", "1", (1, 1)),
        ("scan.timestamp-millis", str(first), (1, 1)),
        ("timestamp", "2100-01-01 00:00:00", (1, 3, 3)),
        ("scan.timestamp", "2100-01-01 00:00:00", (1, 3, 3)),
        ("branch", "b", (1, 2)),
    ):
        assert rows(read(spark, items, "db.items", **{key: value})) == [expected], key
    old = read(spark, items, "db.items", tag="two")
    assert rows(old.where("v = 2").select("v")) == [(2,)] and rows(old.where("v = 3")) == []
    kinds = read(spark, items, "db.items", tag="two", rowkind="true")
    assert rows(kinds.select("v", "rowkind")) == [(2, "+I")]
    second = read(spark, items, "db.items", tag="two")
    joined = second.alias("o").join(read(spark, items, "db.items").alias("n"), "id")
    assert rows(joined.selectExpr("o.v", "n.v")) == [(2, 3)]


def test_what_cannot_be_read_is_reported(spark: SparkSession, items: Warehouse) -> None:
    for options, message in (
        ({"tag": "tow"}, "has no tag 'tow'; did you mean 'two'"),
        ({"snapshot": "1", "scan.snapshot-id": "1"}, "are aliases; set one of them"),
        ({"tag": "two", "snapshot": "1"}, "cannot be combined"),
        ({"branch": "c"}, "has no branch 'c'; known: b"),
    ):
        with pytest.raises(PySparkException, match=message):
            read(spark, items, "db.items", **options).collect()
    with pytest.raises(PySparkException, match="set where a stream starts with 'scan.mode'"):
        frame = spark.readStream.format("paimon").option("warehouse", items.path)
        query = frame.option("tag", "two").load("db.items").writeStream.format("noop").start()
        try:
            query.processAllAvailable()
        finally:
            query.stop()
    with pytest.raises(PySparkException, match="is a system table"):
        write(spark.createDataFrame([("a", "b")], "key string, value string"), items,
              "db.items$options")  # fmt: skip


def test_system_tables(spark: SparkSession, items: Warehouse) -> None:
    snapshots = read(spark, items, "db.items$snapshots")
    assert rows(snapshots.select("snapshot_id", "schema_id")) == [(1, 0), (2, 0), (3, 1)]
    assert dict(snapshots.dtypes)["commit_time"] == "timestamp_ntz"
    assert read(spark, items, "db.items$files").where("level = 0").count() == 3
    assert read(spark, items, "db.items$files", snapshot="1").count() == 1
    assert read(spark, items, "db.items$branch_b$files").count() == 2
    assert read(spark, items, "db.items$files", branch="b").count() == 2
    log = read(spark, items, "db.items$audit_log", columns="rowkind,id,w")
    assert rows(log) == [("+I", 1, 3)]
    assert rows(read(spark, items, "db.items$binlog", tag="two")) == [("+I", [1], [2])]
    assert rows(read(spark, items, "db.items$ro")) == []


def test_a_branch_is_written_and_followed(
    spark: SparkSession, items: Warehouse, tmp_path: Path
) -> None:
    more = spark.createDataFrame([(2, 20)], "id long, v int")
    write(more, items, "db.items$branch_b")
    write(more.selectExpr("id + 1 AS id", "v"), items, "db.items", branch="b")
    assert rows(read(spark, items, "db.items", branch="b")) == [(1, 2), (2, 20), (3, 20)]
    assert rows(read(spark, items, "db.items")) == [(1, 3, 3)]
    columns = [Column("id", "BIGINT"), Column("v", "INT")]
    items.create_table("db", "copy", columns, ["id"], options={"bucket": "1"})
    stream = spark.readStream.format("paimon").option("warehouse", items.path)
    sink = (
        stream.load("db.items$branch_b")
        .select("id", "v")
        .writeStream.format("paimon")
        .option("warehouse", items.path)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
    )
    query = sink.start("db.copy")
    try:
        query.processAllAvailable()
        write(more.selectExpr("id + 2 AS id", "v"), items, "db.items$branch_b")
        query.processAllAvailable()
    finally:
        query.stop()
    expected = [(1, 2), (2, 20), (3, 20), (4, 20)]
    assert rows(read(spark, items, "db.copy")) == expected


@pytest.mark.parametrize("push", ["false", "true"])
def test_a_column_that_was_added_after_the_last_commit(
    spark: SparkSession, warehouse: Warehouse, push: str
) -> None:
    """Also if it has the name of one that was dropped: ALTER TABLE creates no snapshot."""
    columns = [Column("id", "BIGINT"), Column("v", "STRING")]
    warehouse.create_table("db", "altered", columns, options={"bucket": "-1"})
    write(spark.createDataFrame([(1, "old")], "id long, v string"), warehouse, "db.altered")
    execute(warehouse, "ALTER TABLE db.altered DROP (v); ALTER TABLE db.altered ADD (v STRING)")
    execute(warehouse, "ALTER TABLE db.altered RENAME id TO number")

    def frame() -> DataFrame:
        return read(spark, warehouse, "db.altered", **{"filter-pushdown": push})

    assert rows(frame()) == [(1, None)]
    assert rows(frame().where("v = 'old'")) == []
    assert rows(frame().where("number = 1")) == [(1, None)]
    assert rows(read(spark, warehouse, "db.altered", snapshot="1")) == [(1, "old")]
