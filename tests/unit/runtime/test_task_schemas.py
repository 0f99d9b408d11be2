"""The rows that tasks return have one schema, once for Spark and once for Arrow."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from streamhouse.runtime.streaming.shuffle.blocks import BLOCKS
from streamhouse.runtime.streaming.tasks.result_types import BLOCKS_TYPE, RESULT_TYPE
from streamhouse.runtime.streaming.tasks.task_results import RESULT


@pytest.mark.parametrize(("spark", "arrow"), [(RESULT_TYPE, RESULT), (BLOCKS_TYPE, BLOCKS)])
def test_spark_and_arrow_have_the_same_columns(spark: StructType, arrow: pa.Schema) -> None:
    assert to_arrow_schema(spark).equals(arrow)
