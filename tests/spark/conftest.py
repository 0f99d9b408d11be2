"""One Spark session for all tests; a test that leaves a query running fails."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.java_pool import java_pool, lent_java

import streamhouse
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.runtime.spark import jvm
from streamhouse.runtime.spark.session import end_session
from streamhouse.runtime.spark.worker_python import worker_python

__all__ = ["java_pool", "lent_java"]


@pytest.fixture(scope="session")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    end_session()
    # Workers and classes as a pipeline has them: without, each of many starts takes twice as long.
    # Sessions as readers have them are what the programs of the guides start.
    os.environ["PYSPARK_PYTHON"] = worker_python()
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    archive = jvm.java_options(jvm.archive_path())
    java = f"-XX:+UseSerialGC -XX:TieredStopAtLevel=1 {archive}"
    folder = tmp_path_factory.mktemp("spark")
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("streamhouse-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.python.filterPushdown.enabled", "true")
        .config("spark.sql.streaming.stopTimeout", "240s")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.driver.memory", "1g")
        .config("spark.driver.extraJavaOptions", f"-Duser.timezone=UTC {java}")
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
