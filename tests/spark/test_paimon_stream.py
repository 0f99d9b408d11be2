from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from tests.waiting import DEADLINE_S

from streamhouse import execute
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.sql.plan import Column
from streamhouse.sql.schema_changes import (
    AddColumn,
    ColumnPosition,
    DropColumn,
    RenameColumn,
    SetType,
)

PAIR = [Column("id", "BIGINT"), Column("v", "INT")]


@pytest.fixture
def tables(warehouse: Warehouse) -> Warehouse:
    warehouse.create_table("db", "plain", PAIR)
    warehouse.create_table("db", "keyed", PAIR, ["id"], options={"bucket": "2"})
    aggregation = {"bucket": "1", "merge-engine": "aggregation"}
    aggregation |= {"fields.n.aggregate-function": "sum", "fields.total.aggregate-function": "sum"}
    columns = [Column("k", "BIGINT"), Column("n", "BIGINT"), Column("total", "BIGINT")]
    warehouse.create_table("db", "sums", columns, ["k"], options=aggregation)
    return warehouse


def put(spark: SparkSession, tables: Warehouse, table: str, values: str) -> None:
    """Write rows with their kinds by Spark."""
    frame = spark.sql(f"SELECT * FROM VALUES {values} AS t(id, v, rowkind)")
    frame = frame.withColumn("id", frame["id"].cast("long"))
    writer = frame.coalesce(1).write.format("paimon").mode("append")
    writer.option("warehouse", tables.path).save(table)


def add(tables: Warehouse, table: str, values: str) -> None:
    """Commit rows without Spark, which takes a second for each commit."""
    execute(tables, f"INSERT INTO {table} VALUES {values}")


def stream(spark: SparkSession, tables: Warehouse, table: str, **options: str) -> DataFrame:
    reader = spark.readStream.format("paimon").option("warehouse", tables.path)
    return reader.options(**options).load(table)


def catch_up(frame: DataFrame, checkpoint: Path, take: Callable[[DataFrame, int], None]) -> int:
    """Run until nothing is left; returns how many micro-batches it took."""
    batches: list[int] = []

    def each(batch: DataFrame, number: int) -> None:
        batches.append(number)
        take(batch, number)

    query = (
        frame.writeStream.foreachBatch(each)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(DEADLINE_S)
    return len(batches)


class Seen(list[tuple[Any, ...]]):
    def __call__(self, batch: DataFrame, number: int) -> None:
        self.extend(tuple(row) for row in batch.collect())


def test_snapshot_then_changes_with_row_kinds(
    spark: SparkSession, tables: Warehouse, tmp_path: Path
) -> None:
    add(tables, "db.keyed", "(1, 1), (2, 2)")
    frame = stream(spark, tables, "db.keyed", rowkind="true")
    assert frame.columns == ["id", "v", "rowkind"]
    seen = Seen()
    assert catch_up(frame, tmp_path / "c", seen) == 1
    assert sorted(seen) == [(1, 1, "+I"), (2, 2, "+I")]
    seen.clear()
    put(spark, tables, "db.keyed", "(1, 1, '-D')")
    put(spark, tables, "db.keyed", "(1, 9, '+I')")
    put(spark, tables, "db.keyed", "(1, 10, '+U')")
    assert catch_up(frame, tmp_path / "c", seen) == 1
    assert seen == [(1, 1, "-D"), (1, 9, "+I"), (1, 9, "-U"), (1, 10, "+U")]
    assert catch_up(frame, tmp_path / "c", seen) == 0


def test_without_row_kinds_only_rows_that_are_there_come(
    spark: SparkSession, tables: Warehouse, tmp_path: Path
) -> None:
    add(tables, "db.keyed", "(1, 1)")
    put(spark, tables, "db.keyed", "(1, 1, '-D'), (2, 2, '+I')")
    seen = Seen()
    options = {"scan.mode": "from-snapshot", "scan.snapshot-id": "1"}
    catch_up(stream(spark, tables, "db.keyed", **options), tmp_path / "c", seen)
    assert seen == [(1, 1), (2, 2)]


@pytest.mark.parametrize(
    ("limit", "batches"),
    [
        ({}, 1),
        ({"maxRowsPerTrigger": "4"}, 3),
        ({"read.stream.maxRowsPerTrigger": "1"}, 6),
        ({"maxFilesPerTrigger": "3"}, 2),
        ({"maxBytesPerTrigger": "1"}, 6),
    ],
)
def test_read_limits_bound_each_batch(
    spark: SparkSession,
    tables: Warehouse,
    tmp_path: Path,
    limit: dict[str, str],
    batches: int,
) -> None:
    for number in range(6):
        add(tables, "db.plain", f"({number}, 0), ({number}, 1)")
    options = {"scan.snapshot-id": "1", **limit}
    seen = Seen()
    frame = stream(spark, tables, "db.plain", **options)
    assert catch_up(frame, tmp_path / "c", seen) == batches
    assert sorted(seen) == [(number, v) for number in range(6) for v in range(2)]


def test_available_now_ends_while_the_table_grows(
    spark: SparkSession, tables: Warehouse, tmp_path: Path
) -> None:
    add(tables, "db.plain", "(1, 1)")
    add(tables, "db.plain", "(2, 2)")
    seen = Seen()

    def take_and_write(batch: DataFrame, number: int) -> None:
        seen(batch, number)
        add(tables, "db.plain", "(3, 3)")

    options = {"scan.snapshot-id": "1", "maxRowsPerTrigger": "1"}
    frame = stream(spark, tables, "db.plain", **options)
    assert catch_up(frame, tmp_path / "c", take_and_write) == 2
    assert seen == [(1, 1), (2, 2)]


def run(frame: DataFrame, tables: Warehouse, table: str, checkpoint: Path) -> None:
    query = (
        frame.writeStream.format("paimon")
        .option("warehouse", tables.path)
        .option("checkpointLocation", str(checkpoint))
        .option("path", table)
        .outputMode("append")
        .trigger(availableNow=True)
        .start()
    )
    try:
        assert query.awaitTermination(DEADLINE_S)
    finally:
        query.stop()


def sums(spark: SparkSession, tables: Warehouse) -> list[tuple[Any, ...]]:
    frame = spark.read.format("paimon").option("warehouse", tables.path).load("db.sums")
    return sorted(tuple(row) for row in frame.collect())


@pytest.mark.parametrize("more", [False, True])
def test_a_batch_replayed_after_its_table_commit_counts_once(
    spark: SparkSession, tables: Warehouse, tmp_path: Path, more: bool
) -> None:
    checkpoint = tmp_path / "c"
    for number in range(3):
        add(tables, "db.plain", f"({number}, {number}), (7, 100)")
    frame = stream(spark, tables, "db.plain", **{"maxRowsPerTrigger": "2", "scan.snapshot-id": "1"})
    frame = frame.selectExpr("id AS k", "1L AS n", "cast(v AS long) AS total")
    run(frame, tables, "db.sums", checkpoint)
    expected = [(0, 1, 0), (1, 1, 1), (2, 1, 2), (7, 3, 300)]
    assert sums(spark, tables) == expected
    table = tables.table("db.sums")
    latest, files = table.latest_snapshot_id(), sorted(os.listdir(f"{table.location}/bucket-0"))
    last = max(int(name) for name in os.listdir(checkpoint / "commits") if name.isdigit())
    os.remove(checkpoint / "commits" / str(last))
    (checkpoint / "commits" / f".{last}.crc").unlink(missing_ok=True)
    if more:
        add(tables, "db.plain", "(8, 8)")
        expected.append((8, 1, 8))
    run(frame, tables, "db.sums", checkpoint)
    assert sums(spark, tables) == expected
    if not more:
        assert table.latest_snapshot_id() == latest
        assert sorted(os.listdir(f"{table.location}/bucket-0")) == files
    assert not any("staging" in name for name in os.listdir(table.location))


def test_a_misspelt_column_is_named(spark: SparkSession, tables: Warehouse, tmp_path: Path) -> None:
    frame = stream(spark, tables, "db.plain").selectExpr("id AS k", "1L AS n", "1L AS totl")
    add(tables, "db.plain", "(1, 1)")
    with pytest.raises(PySparkException, match="did you mean 'total'"):
        run(frame, tables, "db.sums", tmp_path / "c")


def test_an_expired_snapshot_stops_the_stream_in_words(
    spark: SparkSession, tables: Warehouse, tmp_path: Path
) -> None:
    add(tables, "db.plain", "(1, 1)")
    frame = stream(spark, tables, "db.plain")
    catch_up(frame, tmp_path / "c", Seen())
    for value in (2, 3):
        add(tables, "db.plain", f"({value}, {value})")
    for snapshot in (1, 2):
        os.remove(f"{tables.table('db.plain').location}/snapshot/snapshot-{snapshot}")
    with pytest.raises(PySparkException, match="snapshot 2 is gone, 3 to 3 are left"):
        catch_up(frame, tmp_path / "c", Seen())
    for query in spark.streams.active:
        query.stop()


def test_a_stream_of_a_consumer_continues_without_a_checkpoint(
    spark: SparkSession, tables: Warehouse, tmp_path: Path
) -> None:
    add(tables, "db.plain", "(1, 1)")
    options = {"consumer-id": "c1", "consumer.expiration-time": "1 h"}
    assert catch_up(stream(spark, tables, "db.plain", **options), tmp_path / "a", Seen()) == 1
    add(tables, "db.plain", "(2, 2)")
    seen = Seen()
    catch_up(stream(spark, tables, "db.plain", **options), tmp_path / "b", seen)
    assert seen == [(2, 2)]


def copying(spark: SparkSession, tables: Warehouse, checkpoint: Path) -> StreamingQuery:
    """A query that copies the rows of one table into another."""
    return (
        stream(spark, tables, "db.plain")
        .writeStream.format("paimon")
        .option("warehouse", tables.path)
        .option("checkpointLocation", str(checkpoint))
        .trigger(processingTime="0 seconds")
        .start("db.keyed")
    )


def test_a_stream_continues_while_its_tables_are_altered(
    spark: SparkSession, tables: Warehouse, tmp_path: Path
) -> None:
    add(tables, "db.plain", "(1, 1)")
    query = copying(spark, tables, tmp_path / "c")
    try:
        query.processAllAvailable()
        tables.alter_table("db.plain", AddColumn(Column("note", "STRING"), ColumnPosition()))
        tables.alter_table("db.plain", RenameColumn(("v",), "value"))
        tables.alter_table("db.keyed", AddColumn(Column("extra", "DOUBLE"), ColumnPosition()))
        tables.alter_table("db.keyed", RenameColumn(("v",), "value"), SetType(("value",), "BIGINT"))
        execute(tables, "INSERT INTO db.plain VALUES ('x', 2, 2)")
        query.processAllAvailable()
    finally:
        query.stop()
    assert query.exception() is None
    batches = tables.table("db.keyed").read()
    rows = sorted(tuple(row.values()) for batch in batches for row in batch.to_pylist())
    assert rows == [(None, 1, 1), (None, 2, 2)]


def test_a_stream_ends_when_a_column_that_it_writes_is_dropped(
    spark: SparkSession, tables: Warehouse, tmp_path: Path
) -> None:
    add(tables, "db.plain", "(1, 1)")
    query = copying(spark, tables, tmp_path / "c")
    try:
        query.processAllAvailable()
        tables.alter_table("db.keyed", DropColumn(("v",)))
        execute(tables, "INSERT INTO db.plain VALUES (2, 2)")
        with pytest.raises(PySparkException, match="column 'v' of table db.keyed, which"):
            query.processAllAvailable()
    finally:
        query.stop()
    # A query that begins now has no such column to begin with.
    frame = stream(spark, tables, "db.plain").writeStream.format("paimon")
    begun = frame.option("warehouse", tables.path).option("checkpointLocation", str(tmp_path / "d"))
    query = begun.trigger(availableNow=True).start("db.keyed")
    with pytest.raises(PySparkException, match="table db.keyed has no column 'v'"):
        query.awaitTermination(DEADLINE_S)
