"""The Spark session of a pipeline, set up for many small batches."""

from __future__ import annotations

import os
import sys
import tempfile

from pyspark.sql import SparkSession

from streamhouse.runtime.fused import FusedDataSource
from streamhouse.spark import register

_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.pollingDelay": "5ms",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.python.daemon.module": "streamhouse.runtime.worker_daemon",
    "spark.python.worker.reuse": "true",
    "spark.driver.memory": "1g",
    "spark.locality.wait": "0",
    "spark.cleaner.periodicGC.interval": "10min",
    "spark.sql.adaptive.enabled": "false",
}
_QUIET = """
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} spark %p %c{1}: %m%n
"""


def start_session(name: str, master: str, verbose: bool = False) -> SparkSession:
    """A session on `master` (such as `local[2]`), quiet unless `verbose`."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(master).appName(name)
    for key, value in _SETTINGS.items():
        builder = builder.config(key, value)
    options = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
    if not verbose:
        handle, path = tempfile.mkstemp(prefix="streamhouse-log4j-", suffix=".properties")
        with os.fdopen(handle, "w") as file:
            file.write(_QUIET)
        os.environ["SPARK_SUBMIT_OPTS"] = f"-Dlog4j2.configurationFile={path}"
    builder = builder.config("spark.driver.extraJavaOptions", options)
    session: SparkSession = builder.getOrCreate()
    session.sparkContext.setLogLevel("WARN" if verbose else "OFF")
    register(session)
    session.dataSource.register(FusedDataSource)
    return session
