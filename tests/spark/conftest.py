"""One Spark session for all tests; a test that leaves a query running fails."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import streamhouse
from streamhouse.paimon.catalog import Warehouse


@pytest.fixture(scope="session")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    folder = tmp_path_factory.mktemp("spark")
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("streamhouse-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.python.filterPushdown.enabled", "true")
        .config("spark.sql.streaming.stopTimeout", "30s")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.driver.memory", "1g")
        .config("spark.driver.extraJavaOptions", "-Duser.timezone=UTC")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    streamhouse.register(spark)
    yield spark
    spark.stop()


@pytest.fixture
def spark(session: SparkSession) -> Iterator[SparkSession]:
    yield session
    left = [query.name or str(query.id) for query in session.streams.active]
    for query in session.streams.active:
        query.stop()
    assert left == [], "the test left queries running"


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    made = Warehouse(str(tmp_path / "warehouse"))
    made.create_database("db")
    return made
