"""Metrics of a mysql-cdc source by their names in Flink CDC and Debezium, from a real server."""

from __future__ import annotations

import signal
import time
from typing import Any

from tests.integration.runtime.conftest import Shop

from streamhouse.demo.mariadb import PASSWORD, USER, MariaDB
from streamhouse.runtime.monitoring.status import Statuses
from streamhouse.serve.pipelines.listing import all_pipelines

SCRIPT = """
CREATE TEMPORARY TABLE changes (id INT PRIMARY KEY NOT ENFORCED, v INT) WITH (
  'connector' = 'mysql-cdc', 'hostname' = '127.0.0.1', 'port' = '{port}', 'username' = '{user}',
  'password' = '{password}', 'database-name' = 'measured', 'table-name' = 't');
CREATE TABLE copy (id INT PRIMARY KEY NOT ENFORCED, v INT) WITH ('bucket' = '1');
INSERT INTO copy SELECT id, v FROM changes;
"""
KINDS = ("", "Create", "Update", "Delete")
HOUR_S = 3600
SLACK_MS = 60_000


def _metrics(shop: Shop) -> dict[str, Any]:
    queries = [
        query for one in all_pipelines(Statuses(shop.warehouse.options)) for query in one["queries"]
    ]
    metrics: dict[str, Any] = queries[0]["metrics"] if queries else {}
    return metrics


def test_lags_by_event_time(shop: Shop, mariadb: MariaDB) -> None:
    mariadb.execute(
        "DROP DATABASE IF EXISTS measured",
        "CREATE DATABASE measured",
        "CREATE TABLE measured.t (id INT PRIMARY KEY, v INT)",
        "INSERT INTO measured.t VALUES (1, 1), (2, 2)",
    )
    script = SCRIPT.format(port=mariadb.port, user=USER, password=PASSWORD)
    run = shop.start(script, spark=False)
    run.until(lambda: _metrics(shop).get("isStreamReading") == 1)
    found = _metrics(shop)
    assert found["isSnapshotting"] == 0 and found["numRecordsIn"] == 2
    # Nothing has changed yet, so no lag is known.
    assert "currentFetchEventTimeLag" not in found and "TotalNumberOfEventsSeen" not in found
    assert (found["numTablesSnapshotted"], found["numTablesRemaining"]) == (1, 0)
    assert found["numSnapshotSplitsRemaining"] == 0
    assert (found["lastTableFilesAdded"], found["lastDeltaRecordsAppended"]) == (1, 2)
    assert found["lastCommitDuration"] > 0
    mariadb.execute(f"SET timestamp = UNIX_TIMESTAMP() - {HOUR_S}", "UPDATE measured.t SET v = 3")
    changed_ms = time.time_ns() // 1_000_000
    run.until(lambda: "currentFetchEventTimeLag" in _metrics(shop))
    run.until(lambda: _metrics(shop)["numRecordsIn"] == 6)
    run.until(lambda: "currentEmitEventTimeLag" in _metrics(shop))
    found = _metrics(shop)
    lag = found["currentFetchEventTimeLag"]
    assert HOUR_S * 1000 <= lag < HOUR_S * 1000 + SLACK_MS
    assert found["MilliSecondsBehindSource"] == lag
    assert lag <= found["currentEmitEventTimeLag"] < HOUR_S * 1000 + SLACK_MS
    waited = time.time_ns() // 1_000_000 - changed_ms
    assert 0 <= found["MilliSecondsSinceLastEvent"] <= waited + 1000
    assert 0 <= found["sourceIdleTime"] <= waited + 1000
    end = mariadb.execute("SHOW MASTER STATUS")[0][:2]
    # The counts and the position of one status are read one after the other.
    names = ("BinlogFilename", "BinlogPosition")
    run.until(lambda: tuple(_metrics(shop)[name] for name in names) == end)
    mariadb.execute(
        "UPDATE measured.t SET v = 4 WHERE id = 1",
        "INSERT INTO measured.t VALUES (3, 3)",
        "DELETE FROM measured.t WHERE id = 2",
    )
    run.until(lambda: _metrics(shop)["currentFetchEventTimeLag"] < SLACK_MS)
    run.until(lambda: _metrics(shop)["numRecordsIn"] == 10)
    counts = {name: _metrics(shop)[f"TotalNumberOf{name}EventsSeen"] for name in KINDS}
    assert counts == {"": 5, "Create": 1, "Update": 3, "Delete": 1}
    run.signal(signal.SIGTERM)
    assert run.wait().code == 0
    ended = _metrics(shop)
    # The lag of a query that has ended is unknown, but not what it has read.
    assert ended["numRecordsIn"] == 10 and ended["TotalNumberOfEventsSeen"] == 5
    assert "MilliSecondsBehindSource" not in ended
