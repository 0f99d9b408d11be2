"""CURRENT_WATERMARK over the partitions of a topic: the least one counts, unless it is idle."""

from __future__ import annotations

import json
import time
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from tests.integration.kafka.conftest import Topic
from tests.unit.runtime.local_pipeline import LocalPipeline

START = datetime(2026, 1, 1)


@pytest.mark.parametrize("idle_s", [0, 1])
def test_the_least_watermark_of_partitions(topic: Topic, idle_s: int, tmp_path: Path) -> None:
    shop = LocalPipeline(tmp_path)
    script = (
        "CREATE TEMPORARY TABLE e (id INT, ts TIMESTAMP(3), part INT METADATA FROM 'partition' "
        "VIRTUAL, WATERMARK FOR ts AS ts - INTERVAL '1' SECOND) WITH ('connector' = 'kafka', "
        f"'topic' = '{topic.name}', 'scan.startup.mode' = 'earliest-offset', 'format' = 'json', "
        f"'scan.watermark.idle-timeout' = '{idle_s} s', "
        f"'properties.bootstrap.servers' = '{topic.broker.servers}'); CREATE TABLE IF NOT EXISTS t "
        "(id INT, w TIMESTAMP(3)); INSERT INTO t SELECT id, CURRENT_WATERMARK(ts) FROM e;"
    )
    found = []
    for number, (second, part) in enumerate(((10, 0), (5, 1), (60, 0), (61, 0), (62, 0))):
        if number == 3:
            time.sleep(idle_s + 0.1)
        at = START + timedelta(seconds=second)
        topic.send(json.dumps({"id": number, "ts": str(at)}), partition=part)
        shop.run(script)
    for row in sorted(shop.rows("t"), key=lambda row: int(row["id"])):
        found.append(None if row["w"] is None else (row["w"] - START).total_seconds())
    # The first partition alone is known at first.
    assert found == [None, 9.0, 9.0, 59.0 if idle_s else 9.0, 60.0 if idle_s else 9.0]
