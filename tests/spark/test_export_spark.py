"""Spark reads what `streamhouse export` writes."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession
from tests.unit.conftest import Shop
from tests.unit.serve.test_export import FULL, TYPES, written

from streamhouse.serve.formats.row_formats import RowFormat


def test_parquet_files_have_types_that_spark_knows(spark: SparkSession, tmp_path: Path) -> None:
    shop = Shop(tmp_path / "warehouse")
    # Of TIME Spark knows only a form that Arrow does not write.
    places = [place for place, column in enumerate(TYPES) if column.name != "clock"]
    table = shop.create("types", [TYPES[place] for place in places], ["id"])
    shop.write(table, [FULL[place] for place in places])
    frame = spark.read.parquet(str(written(shop, tmp_path, table, RowFormat.PARQUET).path))
    kinds = dict(frame.dtypes)
    assert [kinds[name] for name in ("price", "p0", "p3", "z3", "row")] == [
        "decimal(20,2)", "timestamp_ntz", "timestamp_ntz", "timestamp",
        "struct<x:int,y:timestamp_ntz>",
    ]  # fmt: skip
    texts = [f"cast({name} AS STRING)" for name in ("price", "p6", "z3", "map")]
    (row,) = frame.selectExpr(*texts).collect()
    assert tuple(row) == (
        "123456789012345678.90",
        "2023-11-14 22:13:20.123456",
        "2023-11-14 22:13:20.123",
        "{k -> 1}",
    )
