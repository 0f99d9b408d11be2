"""A materialized view of any SELECT, recomputed, against DuckDB over the same files.

The view joins `--orders` orders with 1 M customers and 10,000 products, and groups by country and
category: COUNT(*), AVG, MAX and COUNT DISTINCT. The three tables have primary keys, and were
compacted once. A running pipeline (`streamhouse run`, two slots) keeps the view.

backfill  The first refresh: from its plan to the commit of the view's table.
refresh   `--changes` orders get other prices in one commit; from that commit to the commit of the
          view's table that shows them. The median of `--runs` times, after one that warms up.

`ratio` is the limit's time over ours. The limit runs the same SELECT in DuckDB, by two threads,
over the data files as they are before the first change, in memory already; its median of three
runs, after one that warms up.
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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.backlog import append
from benchmarks.lookup import Keys, chunks

from streamhouse.duckdb_engine import run_bounded
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.runtime.execute import execute
from streamhouse.runtime.session.session import Session
from streamhouse.sql.batch.bounded_query import analyze_bounded
from streamhouse.sql.statements.script import parse_script
from streamhouse.sql.syntax import Select

GOALS = {"backfill": 0.3, "refresh": 0.3}
COUNTRIES, CATEGORIES = 50, 20
EPOCH_MS = 1_700_000_000_000
WAIT_S = 600.0
STREAMHOUSE = str(Path(sys.executable).with_name("streamhouse"))
TABLES = """
CREATE DATABASE IF NOT EXISTS shop; USE shop;
CREATE TABLE orders (
  id BIGINT PRIMARY KEY NOT ENFORCED, customer_id INT, product_id INT, price DECIMAL(10, 2),
  order_time TIMESTAMP(3)
) WITH ('bucket' = '4');
CREATE TABLE customers (
  id INT PRIMARY KEY NOT ENFORCED, country STRING, name STRING
) WITH ('bucket' = '2');
CREATE TABLE products (
  id INT PRIMARY KEY NOT ENFORCED, category STRING, title STRING
) WITH ('bucket' = '1');
"""
TABLE_NAMES = ("orders", "customers", "products")
SELECT = """
SELECT c.country, p.category, COUNT(*) AS orders, AVG(o.price) AS average,
  MAX(o.price) AS most, COUNT(DISTINCT o.customer_id) AS customers
FROM shop.orders AS o
JOIN shop.customers AS c ON o.customer_id = c.id
JOIN shop.products AS p ON o.product_id = p.id
GROUP BY c.country, p.category
"""


class Lab:
    """One warehouse with the three tables."""

    def __init__(self, folder: str, orders: int, customers: int, products: int) -> None:
        self.warehouse = Warehouse(folder)
        self._customers, self._products, self._commits = customers, products, 0
        execute(self.warehouse.options, TABLES)
        self._write("customers", (_customers(keys) for keys in chunks(np.arange(customers))))
        self._write("products", (_products(keys) for keys in chunks(np.arange(products))))
        self._write("orders", (self._orders(keys) for keys in chunks(np.arange(orders))))
        self._compact(Path(folder).with_name("compact.sql"))

    def _compact(self, script: Path) -> None:
        calls = [f"CALL sys.compact('shop.{table}');" for table in TABLE_NAMES]
        script.write_text("\n".join(calls))
        command = [STREAMHOUSE, "run", str(script), "--warehouse", self.warehouse.path]
        subprocess.run(command, check=True, capture_output=True)

    def change(self, keys: Keys) -> int:
        """Commit other prices of orders; returns the time of the commit, in ms."""
        return self._write("orders", iter([self._orders(keys, self._commits)]))

    def limit(self, runs: int = 3) -> float:
        """The seconds of the same SELECT in DuckDB over the data files."""
        times = []
        with duckdb.connect(config={"threads": 2}) as db:
            db.sql("CREATE SCHEMA shop")
            for table in TABLE_NAMES:
                files = self._rows(f"SELECT file_path FROM shop.`{table}$files`")
                paths = [row["file_path"] for row in files]
                db.sql(f"CREATE VIEW shop.{table} AS SELECT * FROM read_parquet({paths})")
            for _ in range(runs + 1):
                started = time.perf_counter()
                db.sql(SELECT).fetchall()
                times.append(time.perf_counter() - started)
        return statistics.median(times[1:])

    def snapshot(self, table: str) -> int:
        """The newest snapshot of a table; 0 if it has none, or does not exist."""
        if not self.warehouse.exists("shop", table):
            return 0
        return self.warehouse.table(f"shop.{table}").latest_snapshot_id() or 0

    def commit_time(self, table: str, snapshot: int) -> int:
        return self.warehouse.table(f"shop.{table}").snapshot(snapshot).time_ms

    def check(self) -> None:
        """Assert that the view has the rows of its SELECT."""
        wrong = self._rows(
            f"(SELECT * FROM shop.sales EXCEPT ALL {SELECT}) UNION ALL "
            f"({SELECT} EXCEPT ALL SELECT * FROM shop.sales)"
        )
        if wrong:
            raise SystemExit(f"the view is wrong: {wrong[:3]}")

    def _rows(self, query: str) -> list[dict[str, Any]]:
        (statement,) = parse_script(query)
        assert isinstance(statement, Select)
        plan = analyze_bounded(statement.query, Session(self.warehouse.options))
        rows: list[dict[str, Any]] = run_bounded(plan, self.warehouse).to_pylist()
        return rows

    def _orders(self, keys: Keys, version: int = 0) -> pa.RecordBatch:
        cents = (keys * 37 + version * 101) % 100_000
        return pa.record_batch(
            {
                "id": pa.array(keys),
                "customer_id": pa.array((keys * 7919 % self._customers).astype(np.int32)),
                "product_id": pa.array((keys * 104_729 % self._products).astype(np.int32)),
                "price": pa.array(cents / 100).cast(pa.decimal128(10, 2)),
                "order_time": pa.array(keys + EPOCH_MS).cast(pa.timestamp("ms")),
            }
        )

    def _write(self, name: str, batches: Iterator[pa.RecordBatch]) -> int:
        self._commits += 1
        append(self.warehouse.path, f"shop.{name}", self._commits, batches)
        return self.commit_time(name, self.snapshot(name))


def _customers(keys: Keys) -> pa.RecordBatch:
    countries = pa.array([f"country {number:02d}" for number in range(COUNTRIES)])
    names = pa.array([f"customer {key}" for key in keys])
    columns = [pa.array(keys.astype(np.int32)), countries.take(pa.array(keys % COUNTRIES)), names]
    return pa.record_batch(columns, names=["id", "country", "name"])


def _products(keys: Keys) -> pa.RecordBatch:
    categories = pa.array([f"category {number:02d}" for number in range(CATEGORIES)])
    titles = pa.array([f"product {key}" for key in keys])
    kinds = categories.take(pa.array(keys // 7 % CATEGORIES))
    return pa.record_batch(
        [pa.array(keys.astype(np.int32)), kinds, titles], names=["id", "category", "title"]
    )


class Pipeline:
    """A running `streamhouse run` that keeps the view."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self._lab, self._folder = lab, folder
        script = folder / "views.sql"
        script.write_text(f"USE shop; CREATE MATERIALIZED VIEW sales AS {SELECT};")
        command = [STREAMHOUSE, "run", str(script), "--warehouse", lab.warehouse.path]
        command += ["--checkpoints", str(folder / "state")]
        with (folder / "views.log").open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)

    def refreshed(self, after: int) -> int:
        """Wait for the view's first snapshot after `after`; returns its time, in ms."""
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                break
            if self._lab.snapshot("sales") > after:
                return self._lab.commit_time("sales", after + 1)
            time.sleep(0.02)
        raise SystemExit((self._folder / "views.log").read_text()[-2000:])

    def planned_ms(self) -> int:
        """When the first refresh was planned, as its offset says."""
        (path,) = (self._folder / "state").rglob("offsets/0")
        return int(json.loads(path.read_text().splitlines()[-1])["now"])

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(60)


def figures(folder: Path, given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    lab = Lab(str(folder / "warehouse"), given.orders, given.customers, given.products)
    limit = lab.limit()
    started = time.time()
    pipeline = Pipeline(lab, folder)
    try:
        backfilled = pipeline.refreshed(0)
        seconds = (backfilled - pipeline.planned_ms()) / 1000
        rest = {"from_start_s": round(backfilled / 1000 - started, 3)}
        yield _line("backfill", limit, [seconds], rest)
        random = np.random.default_rng(5)
        times = []
        for _ in range(given.runs + 1):
            before = lab.snapshot("sales")
            changed = lab.change(random.integers(0, given.orders, given.changes))
            times.append((pipeline.refreshed(before) - changed) / 1000)
        yield _line("refresh", limit, times[1:], {})
    finally:
        pipeline.stop()
    lab.check()


def _line(name: str, limit: float, seconds: list[float], rest: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": name,
        "ratio": round(limit / statistics.median(seconds), 3),
        "goal": GOALS[name],
        "unit": "seconds of DuckDB over ours",
        "limit_s": round(limit, 3),
        "view_s": [round(one, 3) for one in seconds],
        **rest,
    }


def main() -> int:
    text = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=text)
    parser.add_argument("--orders", type=int, default=5_000_000)
    parser.add_argument("--customers", type=int, default=1_000_000)
    parser.add_argument("--products", type=int, default=10_000)
    parser.add_argument("--changes", type=int, default=1000, help="orders that change at once")
    parser.add_argument("--runs", type=int, default=5, help="of `refresh`")
    parser.add_argument("--json", action="store_true", help="print one JSON object a figure")
    given = parser.parse_args()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    with tempfile.TemporaryDirectory(prefix="streamhouse-views-") as folder:
        for line in figures(Path(folder), given):
            if given.json:
                print(json.dumps(line), flush=True)
            else:
                print(", ".join(f"{key} {value}" for key, value in line.items()), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
