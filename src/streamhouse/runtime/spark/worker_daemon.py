"""Spark's Python daemon, which imports our libraries before it forks workers."""

import contextlib
import gc
from importlib import import_module

from pyspark.daemon import manager

TASK_LIBRARIES = (
    "duckdb",
    "pyarrow",
    "pypaimon_rust.datafusion",
    "pyspark.worker",
    "streamhouse.runtime.streaming.spark_job",
    "streamhouse.runtime.streaming.tasks.task",
    # PyArrow imports pandas in each process that makes an array of Python values.
    "pandas",
    # What tasks import for their first rows.
    "pyarrow.pandas_compat",
    "sqlglot.dialects.duckdb",
    "streamhouse.connectors.paimon.connector",
)
_COLLECT_AFTER = 200_000
"""Objects; by default, Python looks at all young ones after 700."""


def load() -> None:
    """Import what the workers need; a task that needs a missing module reports why."""
    for name in TASK_LIBRARIES:
        with contextlib.suppress(ImportError):
            import_module(name)
    gc.freeze()
    # Tasks make thousands of objects a batch, and no cycles. Spark collects garbage after each.
    gc.set_threshold(_COLLECT_AFTER)


if __name__ == "__main__":
    load()
    manager()
