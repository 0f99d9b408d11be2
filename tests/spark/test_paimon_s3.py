"""The Spark data source over a warehouse on S3, its options in Paimon's and in Hadoop's names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from streamhouse.demo.s3_server import BUCKET, S3Server
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.sql.plan import Column


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with S3Server() as server:
        yield server


def test_batch_and_stream(spark: SparkSession, server: S3Server, tmp_path: Path) -> None:
    lake = f"s3://{BUCKET}/lake"
    warehouse = Warehouse({"warehouse": lake, **server.options()})
    warehouse.create_database("db")
    for name in ("t", "copy"):
        columns = [Column("id", "BIGINT"), Column("v", "INT")]
        warehouse.create_table("db", name, columns, ["id"], options={"bucket": "1"})
    options = {"warehouse": lake.replace("s3:", "s3a:"), **server.options()}
    options["fs.s3a.access.key"] = options.pop("s3.access-key")
    frame = spark.range(10).selectExpr("id", "cast(id as int) as v")
    frame.write.format("paimon").mode("append").options(**options).save("db.t")
    found = spark.read.format("paimon").options(**options).load("db.t")
    assert found.selectExpr("sum(v)").first() == (45,)
    query = (
        spark.readStream.format("paimon")
        .options(**options)
        .load("db.t")
        .writeStream.format("paimon")
        .options(**options, checkpointLocation=str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start("db.copy")
    )
    assert query.awaitTermination(120)
    assert sum(batch.num_rows for batch in warehouse.table("db.copy").read()) == 10


def test_a_wrong_option_names_the_nearest(spark: SparkSession, server: S3Server) -> None:
    reader = spark.read.format("paimon").option("warehouse", f"s3://{BUCKET}/lake")
    with pytest.raises(PySparkException, match="did you mean 's3.access-key'"):
        reader.option("s3.acces-key", "x").load("db.t").count()
