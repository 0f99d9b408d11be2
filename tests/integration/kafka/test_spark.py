"""The Spark data source `kafka-records` over a real broker."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import types as spark_types
from tests.integration.kafka.conftest import Topic

from streamhouse.connectors.kafka.datasource import flink_type
from streamhouse.runtime.spark.session import end_session, start_session
from streamhouse.spark import register


def test_types() -> None:
    instants = spark_types.StructType().add("x", spark_types.TimestampNTZType())
    kinds = [
        spark_types.LongType(),
        spark_types.DecimalType(10, 2),
        spark_types.ArrayType(instants),
        spark_types.MapType(spark_types.StringType(), spark_types.BinaryType()),
    ]
    assert [flink_type(kind, "c") for kind in kinds] == [
        "BIGINT", "DECIMAL(10, 2)", "ARRAY<ROW<`x` TIMESTAMP(6)>>", "MAP<STRING, BYTES>",
    ]  # fmt: skip


@pytest.mark.soak
def test_a_stream_and_a_read(topic: Topic, tmp_path: Path) -> None:
    for number in range(6):
        topic.send(json.dumps({"id": number, "at": "2024-05-01 12:00:00"}), partition=number % 2)
    start_session("kafka")
    spark = SparkSession.getActiveSession()
    assert spark is not None
    try:
        register(spark)

        def loaded(reader: Any) -> Any:
            return (
                reader.format("kafka-records")
                .schema("id BIGINT, at TIMESTAMP_NTZ, part INT")
                .option("metadata.part", "partition")
                .option("topic", topic.name)
                .option("properties.bootstrap.servers", topic.broker.servers)
                .option("scan.startup.mode", "earliest-offset")
                .option("format", "json")
                .load()
            )

        rows = sorted((row.id, row.part) for row in loaded(spark.read).collect())
        assert rows == [(number, number % 2) for number in range(6)]
        stream = (
            loaded(spark.readStream)
            .writeStream.format("json")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(tmp_path / "out"))
        )
        stream.awaitTermination(200)
        assert sorted(row.id for row in spark.read.json(str(tmp_path / "out")).collect()) == [
            0, 1, 2, 3, 4, 5,
        ]  # fmt: skip
    finally:
        end_session()
