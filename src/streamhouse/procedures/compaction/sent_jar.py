"""Sends the jar of Paimon's Java core to the executors of a cluster, for tasks that need it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from streamhouse.paimon.java.jars import JAR_VARIABLE, paimon_jar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def send_jar(spark: SparkSession) -> str | None:
    """Let Spark send the jar to executors on other hosts; returns its file name there."""
    context = spark.sparkContext
    master = str(context.master)
    if master.startswith("local") and not master.startswith("local-cluster"):
        return None
    jar = paimon_jar()
    context.addFile(os.fspath(jar))
    return jar.name


def use_sent_jar(name: str | None) -> None:
    """On an executor: use the jar that was sent under this name, unless the environment has one."""
    if name is None or JAR_VARIABLE in os.environ:
        return
    from pyspark import SparkFiles

    os.environ[JAR_VARIABLE] = SparkFiles.get(name)
