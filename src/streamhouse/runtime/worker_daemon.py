"""Spark's Python daemon with our libraries loaded before it forks, so that workers start warm."""

from __future__ import annotations

import duckdb  # noqa: F401 - loaded for the forks
import pyarrow  # noqa: F401
import pypaimon_rust.datafusion  # noqa: F401
from pyspark.daemon import manager

import streamhouse.runtime.task  # noqa: F401

if __name__ == "__main__":
    manager()
