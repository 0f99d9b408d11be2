"""The libraries of tasks, which the parents of Python workers import before they fork."""

TASK_LIBRARIES = (
    "duckdb",
    "pyarrow",
    "pypaimon_rust.datafusion",
    "pyspark.worker",
    "streamhouse.runtime.streaming.tasks.task",
    # PyArrow imports pandas in each process that makes an array of Python values.
    "pandas",
    # What tasks import for their first rows.
    "pyarrow.pandas_compat",
    "sqlglot.dialects.duckdb",
    "streamhouse.connectors.paimon.connector",
)
