"""The data source `mysql-cdc` through Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from tests.mysql_server import Server
from tests.waiting import DEADLINE_S

from streamhouse.demo.mariadb import PASSWORD, USER, MariaDB


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDB]:
    with Server(tmp_path_factory.mktemp("mariadb")) as server:
        server.execute("CREATE DATABASE shop")
        yield server


@pytest.fixture
def options(server: MariaDB) -> dict[str, str]:
    server.execute(
        "DROP TABLE IF EXISTS shop.t",
        "CREATE TABLE shop.t (id INT PRIMARY KEY, name VARCHAR(9), at TIMESTAMP(3) NULL, "
        "price DECIMAL(10,2))",
        "INSERT INTO shop.t VALUES (1, 'a', '2024-01-01 00:00:00', 1.5), (2, 'b', NULL, NULL), "
        "(3, 'c', NULL, 0)",
    )
    return {
        "hostname": "127.0.0.1",
        "port": str(server.port),
        "username": USER,
        "password": PASSWORD,
        "database-name": "shop",
        "table-name": "t",
        "scan.incremental.snapshot.chunk.size": "2",
        "jdbc.properties.useSSL": "false",
    }


def test_a_batch_read_is_the_table_now(spark: SparkSession, options: dict[str, str]) -> None:
    frame = spark.read.format("mysql-cdc").options(**options).load()
    rows = frame.orderBy("id").collect()
    assert [(row.id, row.name) for row in rows] == [(1, "a"), (2, "b"), (3, "c")]
    assert dict(frame.dtypes)["price"] == "decimal(10,2)"
    assert dict(frame.dtypes)["at"] == "timestamp"


def test_zero_dates_are_rounded(
    spark: SparkSession, server: MariaDB, options: dict[str, str]
) -> None:
    server.execute("SET sql_mode = ''", "CREATE OR REPLACE TABLE shop.z (d DATE PRIMARY KEY)")
    server.execute("SET sql_mode = ''", "INSERT INTO shop.z VALUES (0), ('2024-01-01')")
    given = {**options, "table-name": "z", "jdbc.properties.zeroDateTimeBehavior": "round"}
    frame = spark.read.format("mysql-cdc").options(**given).load()
    assert sorted(str(row.d) for row in frame.collect()) == ["0001-01-01", "2024-01-01"]


def test_a_stream_resumes_from_its_checkpoint(
    spark: SparkSession, server: MariaDB, options: dict[str, str], tmp_path: Path
) -> None:
    taken: list[list[tuple[Any, ...]]] = []

    def take(frame: DataFrame, number: int) -> None:
        rows = frame.select("rowkind", "id", "name").collect()
        taken.append([tuple(row) for row in rows])

    def run() -> list[tuple[Any, ...]]:
        taken.clear()
        stream = spark.readStream.format("mysql-cdc").options(**options, rowkind="true").load()
        query = (
            stream.writeStream.foreachBatch(take)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(DEADLINE_S)
        return [row for batch in taken for row in batch]

    assert sorted(run()) == [("+I", 1, "a"), ("+I", 2, "b"), ("+I", 3, "c")]
    server.execute("UPDATE shop.t SET name = 'z' WHERE id = 2", "DELETE FROM shop.t WHERE id = 1")
    assert run() == [("-U", 2, "b"), ("+U", 2, "z"), ("-D", 1, "a")]
    assert run() == []


def test_a_wrong_option_is_readable(spark: SparkSession, options: dict[str, str]) -> None:
    with pytest.raises(
        PySparkException, match="unknown option 'hostnames'; did you mean 'hostname'"
    ):
        spark.read.format("mysql-cdc").options(**options, hostnames="x").load()
