"""How old an order is when the view shows it, at 1,000 orders/s over two queries.

`streamhouse run` runs the script (generator to orders, orders joined with customers to the view) as
a user would. An order's age is the commit time of the first snapshot of the view that contains it
less its `order_time`, when the generator was due to make it; which orders a snapshot contains is
known from the view's lineage. The first 15 seconds are left out of the figures. Memory is the sum
of the resident sizes of all processes, so pages that they share are counted once for each.

With `--warehouse s3` the tables are in a private S3 server (moto), on the same two cores. It
records each request, and the ages are given with its own time and without. Of each order's age is
taken how long the server worked on the requests that the order waited for: until its commit to
`orders` those of the writing query, from then on those of the view's query. Requests at the same
time count once. Requests of the Java core, of lineage, consumers and status, polls, and plans of
`orders` are not taken off, though some of them delay orders, too.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import psutil

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.s3_requests import S3Request, read_requests, recording_server
from benchmarks.server_time import Busy, Times, listed, viewing, writing

from streamhouse.demo.s3_server import BUCKET
from streamhouse.errors import TableError
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.changelog.stream_source import PaimonSource
from streamhouse.paimon.read.table import Table

ASIDE_S = 15
START_S = 120
STOP_S = 60
CUSTOMERS = 10

SCRIPT = """
SET 'pipeline.name' = 'freshness';
CREATE DATABASE shop; USE shop;
CREATE TEMPORARY TABLE order_source (
  order_id BIGINT, customer_id INT, price DOUBLE, order_time TIMESTAMP(3)
) WITH ('connector' = 'datagen', 'rows-per-second' = '{rate}',
  'fields.order_id.kind' = 'sequence', 'fields.order_id.start' = '1',
  'fields.order_id.end' = '1000000000',
  'fields.customer_id.min' = '1', 'fields.customer_id.max' = '{customers}',
  'fields.price.min' = '1', 'fields.price.max' = '1000');
CREATE TABLE orders (
  order_id BIGINT, customer_id INT, price DOUBLE, order_time TIMESTAMP(3),
  proc_time AS PROCTIME()
) WITH ('bucket' = '-1');
CREATE TABLE customers (
  id INT PRIMARY KEY NOT ENFORCED, name STRING, country STRING, zip STRING
) WITH ('bucket' = '1', 'changelog-producer' = 'input');
CREATE TABLE country_sales (
  country STRING PRIMARY KEY NOT ENFORCED, orders BIGINT, revenue DOUBLE
) WITH (
  'bucket' = '1', 'merge-engine' = 'aggregation', 'changelog-producer' = 'full-compaction',
  'fields.orders.aggregate-function' = 'sum', 'fields.revenue.aggregate-function' = 'sum'
);
INSERT INTO customers VALUES {values};
INSERT INTO orders SELECT order_id, customer_id, price, order_time FROM order_source;
INSERT INTO country_sales
SELECT /*+ LOOKUP('table'='c', 'retry-predicate'='lookup_miss', 'retry-strategy'='fixed_delay',
                  'fixed-delay'='1s', 'max-attempts'='10') */
  c.country, 1 AS orders, o.price AS revenue
FROM orders AS o
JOIN customers FOR SYSTEM_TIME AS OF o.proc_time AS c ON o.customer_id = c.id;
"""


class Run:
    """The command as a process, its memory and processor time."""

    def __init__(self, folder: Path, rate: int, warehouse: str | None = None) -> None:
        self.warehouse = warehouse or str(folder / "warehouse")
        values = ", ".join(
            f"({i}, 'customer {i}', 'country {i % 5}', '{i:06d}')" for i in range(1, CUSTOMERS + 1)
        )
        script = folder / "freshness.sql"
        script.write_text(SCRIPT.format(rate=rate, customers=CUSTOMERS, values=values))
        self.peak_rss = 0
        self.cpu_s = 0.0
        command = str(Path(sys.executable).with_name("streamhouse"))
        self._started = time.time()
        self._process = subprocess.Popen(
            [command, "run", str(script), "--warehouse", self.warehouse]
            + ["--checkpoints", str(folder / "checkpoints")]
        )

    def first_commit(self) -> float:
        """Wait for the first rows in the view; seconds from the command's start to their commit."""
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline and self._process.poll() is None:
            with suppress(TableError):
                table = Warehouse(self.warehouse).table("shop.country_sales")
                if table.latest_snapshot_id() is not None:
                    return table.snapshot(1).time_ms / 1000 - self._started
            time.sleep(0.05)
        self.stop()
        raise SystemExit(f"no rows in the view after {START_S} s")

    def watch(self, seconds: float) -> None:
        """Let it run for so long."""
        before = self._measure()
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and self._process.poll() is None:
            time.sleep(1)
            after = self._measure()
        self.cpu_s = (after - before) / seconds

    def _measure(self) -> float:
        own = psutil.Process(self._process.pid)
        rss, cpu = 0, 0.0
        for process in [own, *own.children(recursive=True)]:
            try:
                rss += process.memory_info().rss
                cpu += sum(process.cpu_times()[:2])
            except psutil.Error:
                continue
        self.peak_rss = max(self.peak_rss, rss)
        return cpu

    def stop(self) -> None:
        """Stop it between two batches."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@dataclass(frozen=True)
class Ages:
    """When each order was due, committed to `orders`, and shown; epoch ms, one value an order.

    `batches` are the commit times of the view's snapshots.
    """

    due: Times
    committed: Times
    visible: Times
    batches: list[int]

    def since(self, first: int) -> Ages:
        """Those of the orders that were due from `first` on."""
        late = self.due >= first
        return Ages(self.due[late], self.committed[late], self.visible[late], self.batches)


def ages(warehouse: str) -> Ages:
    """Each order's times, from the lineage of the view and the snapshots of both tables."""
    lineage = Warehouse(warehouse).table("shop.country_sales__lineage")
    view, orders = (
        Warehouse(warehouse).table(f"shop.{name}") for name in ("country_sales", "orders")
    )
    rows = [row for batch in lineage.read() for row in batch.to_pylist()]
    committed = _commit_times(view)
    source = PaimonSource(Warehouse(warehouse).options, "shop.orders", ["order_time"])
    parts, times = [], []
    for row in sorted(rows, key=lambda one: int(one["batch_id"])):
        end = json.loads(row["end_offset"])["source"]
        start = (json.loads(row["start_offset"]) or {}).get("source", {})
        if row["batch_id"] not in committed or start == end:
            continue
        visible = committed[row["batch_id"]]
        times.append(visible)
        for number in range(start.get("snapshot", 0) + 1, end["snapshot"] + 1):
            steps = {"snapshot": number - 1}, {"snapshot": number}
            for partition in (
                source.partitions(*steps) if number > 1 else source.partitions({}, steps[1])
            ):
                for batch in source.read(partition):
                    due = batch.column("order_time").cast("timestamp[ms]").to_numpy(False)
                    due = due.astype(np.int64)
                    at = np.full_like(due, orders.snapshot(number).time_ms)
                    parts.append(np.stack([due, at, np.full_like(due, visible)]))
    due, at, visible = np.concatenate(parts, axis=1)
    return Ages(due, at, visible, times)


def _commit_times(view: Table) -> dict[int, int]:
    """Commit time by batch, of the snapshots that brought rows."""
    latest, earliest = view.latest_snapshot_id(), view.earliest_snapshot_id()
    assert latest is not None and earliest is not None
    snapshots = [view.snapshot(number) for number in range(earliest, latest + 1)]
    return {
        snapshot.commit_identifier: snapshot.time_ms
        for snapshot in snapshots
        if snapshot.commit_kind == "APPEND"
    }


def measure(
    seconds: int, rate: int, warehouse: str | None = None, requests: Path | None = None
) -> dict[str, Any]:
    """The figures of one run.

    `warehouse` None: a local one. `requests`: the file with those that its server has answered.
    """
    with tempfile.TemporaryDirectory(prefix="streamhouse-freshness-") as folder:
        run = Run(Path(folder), rate, warehouse)
        try:
            start_s = run.first_commit()
            run.watch(ASIDE_S + seconds)
        finally:
            run.stop()
        found = ages(run.warehouse)
        counted = found.since(int(found.due.min()) + ASIDE_S * 1000)
        age = counted.visible - counted.due
        view = Warehouse(run.warehouse).table("shop.country_sales")
        visible = sum(row["orders"] for batch in view.read() for row in batch.to_pylist())
    return {
        "orders": int(age.size),
        "p50_ms": round(float(np.percentile(age, 50))),
        "p99_ms": round(float(np.percentile(age, 99))),
        "max_ms": int(age.max()),
        "batch_ms": round(statistics.median(np.diff(np.array(found.batches)))),
        "start_s": round(start_s, 2),
        "cores_used": round(run.cpu_s, 2),
        "peak_rss_mb": run.peak_rss >> 20,
        "count_is_right": visible == found.due.size,
        "load_1min": round(os.getloadavg()[0], 1),
        **({} if requests is None else _without_server(counted, list(read_requests(requests)))),
    }


def _without_server(counted: Ages, requests: Sequence[S3Request]) -> dict[str, Any]:
    """The median age without the time that the server took, and how much that was."""
    writes, reads = Busy(writing(requests)), Busy(viewing(requests))
    server = writes.between(counted.due, counted.committed)
    server += reads.between(counted.committed, counted.visible)
    age = counted.visible - counted.due - server
    return {
        "net_p50_ms": round(float(np.percentile(age, 50))),
        "server_p50_ms": round(float(np.percentile(server, 50))),
        "requests_per_s": round(len(requests) / (requests[-1].ended - requests[0].began)),
    }


def measure_on_s3(seconds: int, rate: int, listing: bool = False) -> dict[str, Any]:
    """The figures of one run on a private S3 server; prints its requests if `listing`."""
    with tempfile.TemporaryDirectory(prefix="streamhouse-freshness-") as folder:
        requests = Path(folder) / "requests"
        with recording_server(requests) as server, patch.dict(os.environ, server.environment):
            metrics = measure(seconds, rate, f"s3://{BUCKET}/warehouse", requests)
        if listing:
            print(*listed(list(read_requests(requests))), sep="\n", file=sys.stderr)
    return metrics


def compare(seconds: int, rate: int, listing: bool = False) -> dict[str, Any]:
    """The local median over that on S3: `ratio` without the server's time, `raw_ratio` with it."""
    local, s3 = measure(seconds, rate), measure_on_s3(seconds, rate, listing)
    return {
        "name": "s3 warehouse freshness",
        "ratio": round(local["p50_ms"] / s3["net_p50_ms"], 2),
        "goal": 0.5,
        "raw_ratio": round(local["p50_ms"] / s3["p50_ms"], 2),
        "local_p50_ms": local["p50_ms"],
        "s3_p50_ms": s3["p50_ms"],
        "s3_net_p50_ms": s3["net_p50_ms"],
        "s3_server_p50_ms": s3["server_p50_ms"],
        "s3_requests_per_s": s3["requests_per_s"],
        "s3_batch_ms": s3["batch_ms"],
        "count_is_right": local["count_is_right"] and s3["count_is_right"],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=60, help="measured, after the first 15")
    parser.add_argument("--rate", type=int, default=1000, help="orders a second")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--warehouse",
        choices=("local", "s3", "both"),
        default="local",
        help="s3: on a private S3 server; both: s3 over local",
    )
    parser.add_argument(
        "--requests", action="store_true", help="print the server's requests, grouped"
    )
    given = parser.parse_args()
    if given.warehouse == "local":
        metrics = measure(given.seconds, given.rate)
    else:
        on_s3 = measure_on_s3 if given.warehouse == "s3" else compare
        metrics = on_s3(given.seconds, given.rate, given.requests)
    if given.json:
        print(json.dumps(metrics))
    else:
        for name, value in metrics.items():
            print(
                f"{name:16} {value:,}" if isinstance(value, float | int) else f"{name:16} {value}"
            )
    return 0 if metrics["count_is_right"] else 1


if __name__ == "__main__":
    sys.exit(main())
