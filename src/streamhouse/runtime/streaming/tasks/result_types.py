"""The type of what tasks return, for Spark; imports no Arrow, unlike `task_results`.

It is not a DDL text: a new JVM takes 0.15 s of processor time to parse its first one.
"""

from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType

RESULT_TYPE = StructType(
    [
        StructField("table", StringType()),
        StructField("message", BinaryType()),
        StructField("rows", BinaryType()),
        StructField("rows_file", StringType()),
        StructField("report", StringType()),
        StructField("task", IntegerType()),
        StructField("first_row", LongType()),
        StructField("block", BinaryType()),
    ]
)
"""Commit messages and reports; see `task_results.RESULT`."""
