"""The rows that tasks return have one schema, once for Spark and once for Arrow."""

from __future__ import annotations

import pyarrow as pa
import pytest

from streamhouse.runtime.streaming.shuffle.blocks import BLOCKS
from streamhouse.runtime.streaming.tasks.result_ddl import BLOCKS_DDL, RESULT_DDL
from streamhouse.runtime.streaming.tasks.task_results import RESULT

TYPES = {"INT": pa.int32(), "BIGINT": pa.int64(), "BINARY": pa.binary(), "STRING": pa.string()}


@pytest.mark.parametrize(("ddl", "schema"), [(RESULT_DDL, RESULT), (BLOCKS_DDL, BLOCKS)])
def test_spark_and_arrow_have_the_same_columns(ddl: str, schema: pa.Schema) -> None:
    columns = [column.split(" ") for column in ddl.split(", ")]
    assert [(name, TYPES[kind]) for name, kind in columns] == [
        (field.name, field.type) for field in schema
    ]
