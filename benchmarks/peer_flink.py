"""Streamhouse against Flink with Paimon, in turn on this machine, over the same tables.

Backlog: 5,000,000 orders lie in a Paimon table, 10,000 customers in another; a lookup join and a
sum by country. Flink's clock starts when its job runs, that of Streamhouse when the script is given
to the runtime; both stop at the commit time of the first snapshot of the view that holds all
orders. Flink runs with parallelism 2, a synchronous lookup and splits of 4 MB, the fastest of the
settings that were tried, and checkpoints every 3 s.

Freshness: 1,000 orders a second, made by a generator, over two queries. An order's age is the
commit time of the first snapshot of the view that holds it, less the time at which it was made.
Flink checkpoints every second and looks for new snapshots every second; it looks up the 10,000
customers of the backlog, Streamhouse the 10 of `freshness.py`.

    .venv/bin/python -m benchmarks.peer_flink
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks import backlog, freshness
from benchmarks.flink_cluster.cluster import JOB_S, FlinkCluster

from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.read.table import Table

CATALOG = """
SET 'table.local-time-zone' = 'UTC';
CREATE CATALOG lake WITH ('type' = 'paimon', 'warehouse' = 'file://{warehouse}');
USE CATALOG lake;
USE shop;
SET 'execution.checkpointing.interval' = '{checkpoint}';
"""
VIEW = """
{settings}
CREATE TABLE {view} (country STRING, orders BIGINT, revenue DOUBLE, PRIMARY KEY (country)
  NOT ENFORCED) WITH ('bucket' = '1', 'merge-engine' = 'aggregation',
  'changelog-producer' = 'full-compaction', 'fields.orders.aggregate-function' = 'sum',
  'fields.revenue.aggregate-function' = 'sum');
INSERT INTO {view}
SELECT {hints} c.country, CAST(1 AS BIGINT), o.price
FROM (SELECT *, PROCTIME() AS pt FROM {orders}) AS o
JOIN customers {lookup} FOR SYSTEM_TIME AS OF o.pt AS c ON o.customer_id = c.id;
"""
BACKLOG = {
    "settings": "SET 'parallelism.default' = '2';",
    "hints": "/*+ LOOKUP('table'='c', 'retry-predicate'='lookup_miss', 'retry-strategy'="
    "'fixed_delay', 'fixed-delay'='1s', 'max-attempts'='10') */",
    "orders": "orders /*+ OPTIONS('source.split.target-size'='4mb') */",
    "lookup": "/*+ OPTIONS('lookup.async'='false') */",
}
FRESHNESS = {
    "settings": "",
    "hints": "",
    "orders": "made /*+ OPTIONS('continuous.discovery-interval'='1s') */",
    "lookup": "/*+ OPTIONS('lookup.async'='true') */",
}
GENERATOR = """
CREATE TABLE IF NOT EXISTS made (customer_id INT, price DOUBLE, ts TIMESTAMP(3))
  WITH ('bucket' = '-1');
CREATE TEMPORARY TABLE source (customer_id INT, price INT) WITH ('connector' = 'datagen',
  'rows-per-second' = '1000', 'fields.customer_id.min' = '1', 'fields.customer_id.max' = '10000',
  'fields.price.min' = '1', 'fields.price.max' = '1000');
INSERT INTO made
SELECT customer_id, CAST(price AS DOUBLE), CAST(CURRENT_ROW_TIMESTAMP() AS TIMESTAMP(3))
FROM source;
"""


def sums(view: Table) -> Iterator[tuple[int, int, float]]:
    """Commit time (epoch ms), orders and revenue of each snapshot that brought rows."""
    first, last = view.earliest_snapshot_id() or 1, view.latest_snapshot_id() or 0
    for number in range(first, last + 1):
        snapshot = view.snapshot(number)
        if snapshot.commit_kind == "APPEND":
            rows = [row for batch in view.read(snapshot=number) for row in batch.to_pylist()]
            orders = sum(row["orders"] for row in rows)
            yield snapshot.time_ms, orders, sum(row["revenue"] for row in rows)


def flink_backlog(flink: FlinkCluster, warehouse: str, total: float) -> float:
    """Seconds of Flink's job for all orders."""
    view = f"flink{time.time_ns()}"
    text = CATALOG.format(warehouse=warehouse, checkpoint="3s")
    job = flink.submit(text + VIEW.format(view=view, **BACKLOG))
    table = Warehouse(warehouse).table(f"shop.{view}")
    deadline = time.monotonic() + JOB_S
    while time.monotonic() < deadline:
        done = [time_ms for time_ms, _, revenue in sums(table) if revenue == total]
        if done:
            started = float(flink.job(job)["timestamps"]["RUNNING"])
            flink.cancel(job)
            return (done[0] - started) / 1000
        time.sleep(1)
    raise SystemExit(f"Flink did not end within {JOB_S:.0f} s")


def flink_freshness(flink: FlinkCluster, warehouse: str, seconds: int) -> dict[str, Any]:
    """Ages of orders in Flink's view, in ms."""
    text = CATALOG.format(warehouse=warehouse, checkpoint="1s")
    made = flink.submit(text + GENERATOR)
    view = flink.submit(text + VIEW.format(view="fresh", **FRESHNESS))
    time.sleep(freshness.ASIDE_S + seconds)
    flink.cancel(made)
    time.sleep(freshness.ASIDE_S)
    flink.cancel(view)
    table = Warehouse(warehouse).table("shop.made")
    due = [b.column("ts").cast("timestamp[ms]").to_numpy(False) for b in table.read(["ts"])]
    times = np.sort(np.concatenate(due).astype(np.int64))
    ages, seen = [], 0
    for time_ms, orders, _ in sums(Warehouse(warehouse).table("shop.fresh")):
        ages.append(time_ms - times[seen:orders])
        seen = orders
    counted = np.concatenate(ages)[times[:seen] >= times[0] + freshness.ASIDE_S * 1000]
    if seen != times.size:
        raise SystemExit(f"Flink's view has {seen} of {times.size} orders")
    return {
        "p50_ms": round(float(np.percentile(counted, 50))),
        "p99_ms": round(float(np.percentile(counted, 99))),
    }


def measure(folder: Path, rows: int, runs: int, seconds: int) -> dict[str, Any]:
    """The figures: medians over `runs` for the backlog, one run each for freshness."""
    own, theirs = [], []
    with tempfile.TemporaryDirectory(prefix="streamhouse-flink-") as place:
        warehouse = f"{place}/warehouse"
        total = backlog.make_tables(warehouse, rows)
        with FlinkCluster(folder) as flink:
            # The first job of a JVM is slower; Streamhouse has a fresh JVM each time.
            flink_backlog(flink, warehouse, total)
            for _ in range(runs):
                theirs.append(flink_backlog(flink, warehouse, total))
            their_age = flink_freshness(flink, warehouse, seconds)
        for _ in range(runs):
            one = backlog.in_fresh_process(warehouse, total)
            if not one["right"]:
                raise SystemExit("the sum of Streamhouse is wrong")
            own.append(one["seconds"])
    own_age = freshness.measure(seconds, 1000)
    ours, flinks = statistics.median(own), statistics.median(theirs)
    return {
        "backlog_rows": rows,
        "streamhouse_rows_per_s": round(rows / ours),
        "flink_rows_per_s": round(rows / flinks),
        "backlog_ratio": round(flinks / ours, 1),
        "streamhouse_seconds": [round(one, 2) for one in own],
        "flink_seconds": [round(one, 2) for one in theirs],
        "streamhouse_age_ms": {key: own_age[key] for key in ("p50_ms", "p99_ms")},
        "flink_age_ms": their_age,
        "freshness_ratio": round(their_age["p50_ms"] / own_age["p50_ms"], 1),
        "load_1min": round(os.getloadavg()[0], 1),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    cache = Path.home() / ".cache/streamhouse/flink-peer"
    parser.add_argument("--folder", type=Path, default=cache, help="where Flink is kept")
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--runs", type=int, default=3, help="of the backlog")
    parser.add_argument("--seconds", type=int, default=45, help="of freshness, after the first 15")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    print(json.dumps(measure(given.folder, given.rows, given.runs, given.seconds), indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
