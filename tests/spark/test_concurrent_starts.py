"""Streams over one data source may start at the same time."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource

from streamhouse.paimon.spark.datasource import PaimonDataSource
from streamhouse.runtime.streaming.spark_data_source import JobDataSource
from streamhouse.spark import register_source


@pytest.mark.parametrize("source", [PaimonDataSource, JobDataSource])
def test_the_environment_that_streams_share_is_thread_safe(
    spark: SparkSession, source: type[DataSource]
) -> None:
    """Spark adds variables to it in the thread of each starting stream, without a lock."""
    usual = spark.sparkContext.environment
    register_source(spark, source)
    assert spark.sparkContext.environment is usual
    sources = spark._jsparkSession.sessionState().dataSourceManager()
    of_stream = sources.lookupDataSource(source.name()).createPythonFunction(bytearray())
    environment = of_stream.envVars()
    assert environment.getClass().getSimpleName() == "ConcurrentHashMap"
    assert dict(environment) == usual
