"""How fast the revenue view takes in a backlog: 5 M orders waiting, 10,000 customers, join and sum.

Each run is a process of its own with a fresh Spark session, so that its workers have seen none of
the data. The clock starts when the session is up and the script is given to the runtime; it stops
at the commit time of the first snapshot of the view whose sum is that of all orders. Planning, the
making of the view's tables, starting Python workers, the read, the join and the commits are in it.
The limit is the same read and join in one process without Spark, on the same machine: projected
columns, large chunks, one thread a core.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.write.commit import TableCommitter
from streamhouse.paimon.write.table_writer import TableWriter
from streamhouse.runtime.run_output import RunOutput

CUSTOMERS = 10_000
COUNTRIES = 50
SNAPSHOTS = 10
RUN_SECONDS = 300

TABLES = """
CREATE DATABASE shop;
USE shop;
CREATE TABLE orders (
  order_id BIGINT, customer_id INT, price DOUBLE, order_time TIMESTAMP(3),
  proc_time AS PROCTIME()
) WITH ('bucket' = '-1');
CREATE TABLE customers (
  id INT PRIMARY KEY NOT ENFORCED, name STRING, country STRING, zip STRING
) WITH ('bucket' = '1', 'changelog-producer' = 'input');
"""
VIEW = """
USE shop;
CREATE TABLE country_sales (
  country STRING PRIMARY KEY NOT ENFORCED, orders BIGINT, revenue DOUBLE
) WITH (
  'bucket' = '1', 'merge-engine' = 'aggregation', 'changelog-producer' = 'full-compaction',
  'fields.orders.aggregate-function' = 'sum', 'fields.revenue.aggregate-function' = 'sum'
);
INSERT INTO country_sales
SELECT /*+ LOOKUP('table'='c', 'retry-predicate'='lookup_miss', 'retry-strategy'='fixed_delay',
                  'fixed-delay'='1s', 'max-attempts'='10') */
  c.country, 1 AS orders, o.price AS revenue
FROM orders AS o
JOIN customers FOR SYSTEM_TIME AS OF o.proc_time AS c ON o.customer_id = c.id;
"""


class Quiet(RunOutput):
    """A printer for scripts whose output nobody reads."""

    def notice(self, text: str) -> None:
        print(text, file=sys.stderr)


def run_script(text: str, name: str, warehouse: str, **how: Any) -> None:
    """Run a script to its end, as `streamhouse run --until-caught-up` does; `how`: more options."""
    from streamhouse.runtime.script import ScriptOptions, ScriptRunner
    from streamhouse.sql.statements.script import parse_script

    options = ScriptOptions(name, {"warehouse": warehouse}, until_caught_up=True, **how)
    ScriptRunner(options, Quiet()).run(parse_script(text))


def make_tables(warehouse: str, rows: int) -> float:
    """Orders in several snapshots, and customers; the sum of all prices, whole numbers."""
    run_script(TABLES, "tables", warehouse)
    random = np.random.default_rng(1)
    ids = np.arange(1, CUSTOMERS + 1)
    customers = {
        "id": pa.array(ids, pa.int32()),
        "name": pa.array([f"customer {i}" for i in ids]),
        "country": pa.array([f"country {i % COUNTRIES:02d}" for i in ids]),
        "zip": pa.array([f"{i:06d}" for i in ids]),
    }
    append(warehouse, "shop.customers", 0, [pa.record_batch(customers)])
    total = 0.0
    bounds = [rows * i // SNAPSHOTS for i in range(SNAPSHOTS + 1)]
    for number, (first, last) in enumerate(zip(bounds, bounds[1:], strict=False)):
        prices = random.integers(1, 1000, last - first).astype(np.float64)
        total += float(prices.sum())
        orders = {
            "order_id": pa.array(np.arange(first, last)),
            "customer_id": pa.array(random.integers(1, CUSTOMERS + 1, last - first), pa.int32()),
            "price": pa.array(prices),
            "order_time": pa.array(np.arange(first, last) + 1_700_000_000_000).cast(
                pa.timestamp("ms")
            ),
        }
        append(warehouse, "shop.orders", number, [pa.record_batch(orders)])
    return total


def append(warehouse: str, table: str, number: int, batches: Iterable[pa.RecordBatch]) -> None:
    """Commit rows to a table as the batch `number`."""
    options = {"warehouse": warehouse}
    writer = TableWriter(options, table, "benchmark")
    for batch in batches:
        writer.write(batch)
    messages = writer.prepare(number)
    writer.close()
    TableCommitter(options, table, "benchmark").commit(number, messages)


def limit(warehouse: str, total: float) -> float:
    """Seconds for the same read and join in this process."""
    started = time.perf_counter()
    tables = Warehouse(warehouse)
    db = duckdb.connect()
    customers = tables.table("shop.customers").read(["id", "country"])
    db.register("customers", pa.Table.from_batches(list(customers)))
    orders = pa.Table.from_batches(list(tables.table("shop.orders").read(["customer_id", "price"])))
    db.register("orders", orders)
    answer = db.sql(
        "SELECT country, count(*), sum(price) FROM orders JOIN customers ON id = customer_id "
        "GROUP BY country"
    ).fetchall()
    seconds = time.perf_counter() - started
    if sum(row[2] for row in answer) != total:
        raise SystemExit("the sum computed in one process is wrong")
    return seconds


def one_run(
    warehouse: str,
    total: float,
    master: str = "local[2]",
    settings: Mapping[str, str] | None = None,
    tasks: int = 2,
) -> dict[str, Any]:
    """The runtime's seconds for the backlog, and whether its sum is right; in a fresh process.

    `tasks`: those of a batch. Of a cluster's executors one at least has started before the clock.
    """
    import streamhouse.runtime.script  # noqa: F401 - loading Python modules is part of the start
    from streamhouse.runtime.spark.session import check_cluster, start_session
    from streamhouse.runtime.spark.settings import SparkOptions

    before = time.perf_counter()
    options = SparkOptions(master, settings or {})
    spark = start_session("backlog", options)
    check_cluster(spark, options, [{"warehouse": warehouse}], Quiet().notice)
    session_s = time.perf_counter() - before
    name = f"run{time.time_ns()}"
    view = f"shop.country_sales_{name}"
    started_ms = time.time_ns() / 1e6
    text = VIEW.replace("country_sales", view.removeprefix("shop."))
    text = f"SET 'parallelism.default' = '{tasks}';\n{text}"
    run_script(text, name, warehouse, spark=options)
    table = Warehouse(warehouse).table(view)
    for snapshot_id in range(1, (table.latest_snapshot_id() or 0) + 1):
        rows = [row for batch in table.read(snapshot=snapshot_id) for row in batch.to_pylist()]
        if sum(row["revenue"] for row in rows) == total:
            seconds = (table.snapshot(snapshot_id).time_ms - started_ms) / 1000
            return {"right": True, "seconds": seconds, "session_s": session_s}
    return {"right": False, "seconds": None, "session_s": session_s}


def in_fresh_process(warehouse: str, total: float, **how: Any) -> dict[str, Any]:
    """`one_run` in a process of its own; `how`: its other arguments."""
    command = [sys.executable, __file__, "--one-run", warehouse, repr(total), json.dumps(how)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=RUN_SECONDS)
    if done.returncode:
        raise SystemExit(f"a run failed with exit code {done.returncode}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def measure(rows: int, runs: int) -> dict[str, Any]:
    """The figures, medians over `runs`."""
    with tempfile.TemporaryDirectory(prefix="streamhouse-backlog-") as folder:
        warehouse = str(Path(folder) / "warehouse")
        total = make_tables(warehouse, rows)
        limits, results = [], []
        for _ in range(runs):
            limits.append(limit(warehouse, total))
            results.append(in_fresh_process(warehouse, total))
    right = all(result["right"] for result in results)
    seconds = statistics.median(r["seconds"] for r in results) if right else float("inf")
    best = rows / statistics.median(limits)
    return {
        "rows": rows,
        "rows_per_s": round(rows / seconds),
        "in_process_limit_rows_per_s": round(best),
        "ratio": round(rows / seconds / best, 3),
        "seconds": [r["seconds"] and round(r["seconds"], 3) for r in results],
        "session_start_s": round(statistics.median(r["session_s"] for r in results), 2),
        "sum_is_right": right,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--runs", type=int, default=3, help="figures are medians over them")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    one = ("WAREHOUSE", "SUM", "HOW")
    parser.add_argument("--one-run", nargs=3, metavar=one, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one_run:
        warehouse, total, how = given.one_run
        print(json.dumps(one_run(warehouse, float(total), **json.loads(how))))
        return 0
    metrics = measure(given.rows, given.runs)
    print_metrics(metrics, given.json)
    return 0 if metrics["sum_is_right"] else 1


def print_metrics(metrics: dict[str, Any], as_json: bool) -> None:
    """Print the metrics as a JSON object, or each on a line."""
    if as_json:
        print(json.dumps(metrics), flush=True)
        return
    for name, value in metrics.items():
        text = f"{value:,}" if isinstance(value, int | float) else value
        print(f"{name:30} {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
