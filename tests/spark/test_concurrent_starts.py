"""Streams over one data source may start at the same time."""

from __future__ import annotations

from pyspark.sql import SparkSession

from streamhouse.paimon.spark.datasource import PaimonDataSource
from streamhouse.spark import register_source


def test_the_environment_that_streams_share_is_thread_safe(spark: SparkSession) -> None:
    """Spark adds variables to it in the thread of each starting stream, without a lock."""
    usual = spark.sparkContext.environment
    register_source(spark, PaimonDataSource)
    assert spark.sparkContext.environment is usual
    sources = spark._jsparkSession.sessionState().dataSourceManager()
    of_stream = sources.lookupDataSource(PaimonDataSource.name()).createPythonFunction(bytearray())
    environment = of_stream.envVars()
    assert environment.getClass().getSimpleName() == "ConcurrentHashMap"
    assert dict(environment) == usual
