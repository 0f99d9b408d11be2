"""The types of what tasks return, for Spark; imports no Arrow, unlike `task_results`.

They are not DDL texts: a new JVM takes 0.15 s of processor time to parse its first one.
"""

from __future__ import annotations

from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

_RESULT = [
    StructField("table", StringType()),
    StructField("message", BinaryType()),
    StructField("rows", BinaryType()),
    StructField("rows_file", StringType()),
    StructField("report", StringType()),
]
RESULT_TYPE = StructType(_RESULT)
"""Commit messages of tables, and one report; see `task_results.RESULT`."""
BLOCKS_TYPE = StructType(
    [
        StructField("task", IntegerType()),
        StructField("first_row", LongType()),
        StructField("block", BinaryType()),
        StructField("task_report", StringType()),
        *_RESULT,
    ]
)
"""What read tasks of a shuffle return; see `shuffle.blocks.BLOCKS`."""
JOINED_TYPE = StructType([*_RESULT, StructField("block", BinaryType())])
"""What join tasks return to the task that writes all their rows."""
