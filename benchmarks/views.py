"""A materialized view of any SELECT, recomputed, against DuckDB over the same files.

The view joins `--orders` orders with 1 M customers and 10,000 products, and groups by country and
category: COUNT(*), AVG, MAX and COUNT DISTINCT. The three tables have primary keys, and were
compacted once. A running pipeline (`streamhouse run`, two slots) keeps the view.

backfill  The first refresh: from its plan to the commit of the view's table.
refresh   `--changes` orders get other prices in one commit; from that commit to the commit of the
          view's table that shows them. The median of `--runs` times, after one that warms up.

Then there are `--kept` orders.

delta      `--delta` orders get other prices in one commit. `ratio` is the time of recomputing the
           view (REFRESH, when nothing else has changed) over that of the refresh.
restart    The pipeline is killed (SIGKILL) and started again, and orders change; from the start of
           the process to the commit of the view. `ratio` is 6 s over the median.
fan_out    A customer with `--fan-out` orders moves to another country. `ratio` is 2 s over the
           longest pause of another view of the pipeline, whose table changes five times a second.
fresh      For `--seconds`, 1,000 rows of all three tables change each second; from each commit to
           the commit of the view that shows it. `ratio` is 300 ms over the median.
memory     `ratio` is 512 MiB over the largest worker so far: anonymous and shared pages.

For `backfill` and `refresh`, `ratio` is the limit's time over ours. The limit runs the same SELECT
in DuckDB, by two threads, over the data files as they are before the first change, in memory
already; its median of three runs, after one that warms up.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.backlog import append
from benchmarks.lookup import Keys, chunks, memory_mb, workers

from streamhouse.duckdb_engine import run_bounded
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.runtime.execute import execute
from streamhouse.runtime.session.session import Session
from streamhouse.sql.batch.bounded_query import analyze_bounded
from streamhouse.sql.statements.script import parse_script
from streamhouse.sql.syntax import Select

GOALS = {
    "backfill": 0.3, "refresh": 0.3, "delta": 5.0, "restart": 1.0, "fan_out": 1.0, "fresh": 1.0,
    "memory": 1.0,
}  # fmt: skip
RESTART_S, FAN_OUT_S, FRESH_MS, WORKER_MB = 6.0, 2.0, 300.0, 512.0
PULSE = "SELECT n % 3 AS part, COUNT(*) AS n, MAX(n) AS most FROM shop.pulses GROUP BY n % 3"
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
CREATE TABLE pulses (n INT);
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


class Tables:
    """The tables of one warehouse, in the database `shop`."""

    def __init__(self, folder: str, statements: str) -> None:
        self.warehouse, self._commits = Warehouse(folder), 0
        execute(self.warehouse.options, statements)

    def snapshot(self, table: str) -> int:
        """The newest snapshot of a table; 0 if it has none, or does not exist."""
        if not self.warehouse.exists("shop", table):
            return 0
        return self.warehouse.table(f"shop.{table}").latest_snapshot_id() or 0

    def commit_time(self, table: str, snapshot: int) -> int:
        return self.warehouse.table(f"shop.{table}").snapshot(snapshot).time_ms

    def files(self, table: str) -> list[str]:
        """The data files of a table."""
        return [
            row["file_path"] for row in self.rows(f"SELECT file_path FROM shop.`{table}$files`")
        ]

    def rows(self, query: str) -> list[dict[str, Any]]:
        (statement,) = parse_script(query)
        assert isinstance(statement, Select)
        plan = analyze_bounded(statement.query, Session(self.warehouse.options))
        rows: list[dict[str, Any]] = run_bounded(plan, self.warehouse).to_pylist()
        return rows

    def write(self, name: str, batches: Iterator[pa.RecordBatch]) -> int:
        """Commit rows of a table; returns the time of the commit, in ms."""
        self._commits += 1
        append(self.warehouse.path, f"shop.{name}", self._commits, batches)
        return self.commit_time(name, self.snapshot(name))


class Lab(Tables):
    """One warehouse with the three tables."""

    def __init__(self, folder: str, orders: int, customers: int, products: int) -> None:
        super().__init__(folder, TABLES)
        self._customers, self._products = customers, products
        self._script = Path(folder).with_name("compact.sql")
        self.write("customers", (_customers(keys) for keys in chunks(np.arange(customers))))
        self.write("products", (_products(keys) for keys in chunks(np.arange(products))))
        self.add(np.arange(orders))

    def add(self, keys: Keys) -> None:
        """Add orders, and compact the tables."""
        self.write("orders", (self._orders(some) for some in chunks(keys)))
        calls = [f"CALL sys.compact('shop.{table}');" for table in TABLE_NAMES]
        self._script.write_text("\n".join(calls))
        command = [STREAMHOUSE, "run", str(self._script), "--warehouse", self.warehouse.path]
        subprocess.run(command, check=True, capture_output=True)

    def change(self, keys: Keys) -> int:
        """Commit other prices of orders; returns the time of the commit, in ms."""
        return self.write("orders", iter([self._orders(keys, self._commits)]))

    def change_all(self, keys: Keys) -> list[tuple[str, int, int]]:
        """Change orders, and a tenth as many customers and products; the table and snapshot of each
        commit, and its time in ms."""
        few = keys[: max(1, len(keys) // 10)]
        made = {
            "orders": self._orders(keys, self._commits),
            "customers": _customers(few % self._customers, self._commits),
            "products": _products(few % self._products, self._commits),
        }
        commits = []
        for name, batch in made.items():
            time_ms = self.write(name, iter([batch]))
            commits.append((name, self.snapshot(name), time_ms))
        return commits

    def crowd(self, orders: int) -> None:
        """Give many orders to customer 0."""
        for keys in chunks(np.arange(orders)):
            batch = self._orders(keys)
            ids = pa.array(np.zeros(len(keys), np.int32))
            self.write("orders", iter([batch.set_column(1, "customer_id", ids)]))

    def move(self) -> int:
        """Let customer 0 move to another country; returns the time of the commit, in ms."""
        return self.write("customers", iter([_customers(np.arange(1), 1)]))

    def pulse(self) -> None:
        """Commit a row of the other view's table."""
        rows = pa.record_batch({"n": pa.array([self._commits], pa.int32())})
        self.write("pulses", iter([rows]))

    def limit(self, runs: int = 3) -> float:
        """The seconds of the same SELECT in DuckDB over the data files."""
        times = []
        with duckdb.connect(config={"threads": 2}) as db:
            db.sql("CREATE SCHEMA shop")
            for table in TABLE_NAMES:
                files = self.files(table)
                db.sql(f"CREATE VIEW shop.{table} AS SELECT * FROM read_parquet({files})")
            for _ in range(runs + 1):
                started = time.perf_counter()
                db.sql(SELECT).fetchall()
                times.append(time.perf_counter() - started)
        return statistics.median(times[1:])

    def check(self) -> None:
        """Assert that the view has the rows of its SELECT."""
        wrong = self.rows(
            f"(SELECT * FROM shop.sales EXCEPT ALL {SELECT}) UNION ALL "
            f"({SELECT} EXCEPT ALL SELECT * FROM shop.sales)"
        )
        if wrong:
            raise SystemExit(f"the view is wrong: {wrong[:3]}")

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


def _customers(keys: Keys, version: int = 0) -> pa.RecordBatch:
    countries = pa.array([f"country {number:02d}" for number in range(COUNTRIES)])
    names = pa.array([f"customer {key}" for key in keys])
    columns = [
        pa.array(keys.astype(np.int32)),
        countries.take(pa.array((keys + version) % COUNTRIES)),
        names,
    ]
    return pa.record_batch(columns, names=["id", "country", "name"])


def _products(keys: Keys, version: int = 0) -> pa.RecordBatch:
    categories = pa.array([f"category {number:02d}" for number in range(CATEGORIES)])
    titles = pa.array([f"product {key}" for key in keys])
    kinds = categories.take(pa.array((keys // 7 + version) % CATEGORIES))
    return pa.record_batch(
        [pa.array(keys.astype(np.int32)), kinds, titles], names=["id", "category", "title"]
    )


class Pipeline:
    """A running `streamhouse run` that keeps a view, and perhaps others."""

    def __init__(self, lab: Tables, folder: Path, view: str, statements: str) -> None:
        self._lab, self._folder, self._view = lab, folder, view
        script = folder / "views.sql"
        script.write_text(f"USE shop; {statements}")
        self._command = [STREAMHOUSE, "run", str(script), "--warehouse", lab.warehouse.path]
        self._command += ["--checkpoints", str(folder / "state")]
        self.worker_mb = 0.0
        self._ended = threading.Event()
        self.start()
        self._watch = threading.Thread(target=self._watched, daemon=True)
        self._watch.start()

    def start(self) -> None:
        """Start the process."""
        with (self._folder / "views.log").open("wb") as log:
            self._process = subprocess.Popen(
                self._command, stdout=log, stderr=log, start_new_session=True
            )

    def kill(self) -> None:
        """Kill the process and its children by SIGKILL."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(60)

    def _watched(self) -> None:
        while not self._ended.wait(0.5):
            for pid in workers(self._process.pid):
                self.worker_mb = max(self.worker_mb, memory_mb(pid))

    def vectors(self) -> dict[int, dict[str, int]]:
        """The snapshots of the inputs of each batch of the view."""
        found = {}
        for path in (self._folder / "state").rglob(f"shop.{self._view}/offsets/*"):
            if path.name.isdigit():
                offset = json.loads(path.read_text().splitlines()[-1])
                found[int(offset["batch"])] = {
                    key.rpartition(".")[2]: int(position["snapshot"])
                    for key, position in offset["vector"].items()
                }
        return found

    def refreshed(self, after: int) -> int:
        """Wait for the view's first refresh after the snapshot `after`; returns its time, in ms."""
        table, deadline = f"shop.{self._view}", time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                break
            for number in range(after + 1, self._lab.snapshot(self._view) + 1):
                snapshot = self._lab.warehouse.table(table).snapshot(number)
                # Compactions commit, too.
                if snapshot.commit_kind == "APPEND":
                    return snapshot.time_ms
            time.sleep(0.02)
        raise SystemExit((self._folder / "views.log").read_text()[-2000:])

    def planned_ms(self) -> int:
        """When the first refresh was planned, as its offset says."""
        (path,) = (self._folder / "state").rglob(f"shop.{self._view}/offsets/0")
        return int(json.loads(path.read_text().splitlines()[-1])["now"])

    def stop(self) -> None:
        self._ended.set()
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(60)


def figures(folder: Path, given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    lab = Lab(str(folder / "warehouse"), given.orders, given.customers, given.products)
    limit = lab.limit()
    started = time.time()
    views = (
        f"CREATE MATERIALIZED VIEW sales AS {SELECT}; CREATE MATERIALIZED VIEW beats AS {PULSE};"
    )
    pipeline = Pipeline(lab, folder, "sales", views)
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
        lab.add(np.arange(given.orders, given.kept))
        settle(lab, "sales")
        yield _delta(lab, pipeline, given)
        yield _restart(lab, pipeline, given)
        yield _fan_out(lab, pipeline, given)
        yield _fresh(lab, pipeline, given)
        yield {
            "name": "memory",
            "ratio": round(WORKER_MB / max(1.0, pipeline.worker_mb), 3),
            "goal": GOALS["memory"],
            "worker_mb": round(pipeline.worker_mb),
        }
    finally:
        pipeline.stop()
    lab.check()


def _changed(lab: Lab, pipeline: Pipeline, keys: Keys) -> float:
    """The seconds from a commit of other prices to the commit of the view."""
    before = lab.snapshot("sales")
    changed = lab.change(keys)
    return (pipeline.refreshed(before) - changed) / 1000


def _delta(lab: Lab, pipeline: Pipeline, given: argparse.Namespace) -> dict[str, Any]:
    random = np.random.default_rng(6)
    keys = [random.choice(given.kept, given.delta, replace=False) for _ in range(6)]
    # The first one warms up: until the kept rows are built, the view is recomputed.
    ours = statistics.median([_changed(lab, pipeline, each) for each in keys][1:])
    started = time.perf_counter()
    execute(lab.warehouse.options, "ALTER MATERIALIZED VIEW shop.sales REFRESH")
    floor = time.perf_counter() - started
    rate = round(given.delta / ours)
    return _goal("delta", floor / ours, {"rows_per_s": rate, "view_s": ours, "recomputed_s": floor})


def _restart(lab: Lab, pipeline: Pipeline, given: argparse.Namespace) -> dict[str, Any]:
    random, times = np.random.default_rng(7), []
    for _ in range(3):
        pipeline.kill()
        before = lab.snapshot("sales")
        started = time.time()
        pipeline.start()
        lab.change(random.integers(0, given.kept, given.changes))
        times.append(pipeline.refreshed(before) / 1000 - started)
    return _goal("restart", RESTART_S / statistics.median(times), {"restart_s": times})


def _fan_out(lab: Lab, pipeline: Pipeline, given: argparse.Namespace) -> dict[str, Any]:
    before = lab.snapshot("sales")
    lab.crowd(given.fan_out)
    pipeline.refreshed(before)
    settle(lab, "sales")
    first, before, moved = lab.snapshot("beats"), lab.snapshot("sales"), False
    deadline = time.monotonic() + WAIT_S
    pulses = 0
    while pulses < 50 or lab.snapshot("sales") == before:
        if pulses == 10 and not moved:
            lab.move()
            moved = True
        lab.pulse()
        pulses += 1
        time.sleep(0.2)
        if time.monotonic() > deadline:
            raise SystemExit("the view does not show that a customer has moved")
    times = [lab.commit_time("beats", n) for n in range(first + 1, lab.snapshot("beats") + 1)]
    pause = max(b - a for a, b in itertools.pairwise(times)) / 1000
    return _goal("fan_out", FAN_OUT_S / pause, {"longest_pause_s": pause})


def settle(lab: Tables, view: str, quiet_s: float = 5.0) -> None:
    """Wait until a view does not change for some time."""
    last, since = lab.snapshot(view), time.monotonic()
    while time.monotonic() - since < quiet_s:
        time.sleep(0.2)
        if lab.snapshot(view) != last:
            last, since = lab.snapshot(view), time.monotonic()


def delays(
    lab: Tables, pipeline: Pipeline, view: str, first: int, commits: list[tuple[str, int, int]]
) -> list[int]:
    """The milliseconds from commits of tables to those of a view after `first` that show them."""
    vectors, table = pipeline.vectors(), lab.warehouse.table(f"shop.{view}")
    shown = [
        (vectors[each.commit_identifier], each.time_ms)
        for each in map(table.snapshot, range(first + 1, lab.snapshot(view) + 1))
        if each.commit_identifier in vectors and each.commit_kind == "APPEND"
    ]
    shows = [
        next((at - time_ms for vector, at in shown if vector[name] >= snapshot), None)
        for name, snapshot, time_ms in commits
    ]
    # The last commits may have changed nothing that the view shows.
    return [each for each in shows if each is not None]


def _fresh(lab: Lab, pipeline: Pipeline, given: argparse.Namespace) -> dict[str, Any]:
    settle(lab, "sales")
    random, commits = np.random.default_rng(8), list[tuple[str, int, int]]()
    first, started = lab.snapshot("sales"), time.monotonic()
    while time.monotonic() - started < given.seconds:
        # 250 orders, 25 customers and 25 products.
        commits += lab.change_all(random.integers(0, given.kept, 250))
        due = started + 0.3 * len(commits) / 3
        time.sleep(max(0.0, due - time.monotonic()))
    settle(lab, "sales")
    times = delays(lab, pipeline, "sales", first, commits)
    median = statistics.median(times)
    rest = {"median_ms": median, "p95_ms": float(np.percentile(times, 95))}
    return _goal("fresh", FRESH_MS / median, rest)


def _goal(name: str, ratio: float, rest: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "ratio": round(ratio, 3), "goal": GOALS[name], **rest}


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


def show(figures: Iterator[dict[str, Any]], as_json: bool) -> None:
    """Print figures, each as soon as it is there."""
    for line in figures:
        text = ", ".join(f"{key} {value}" for key, value in line.items())
        print(json.dumps(line) if as_json else text, flush=True)


def main() -> int:
    text = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=text)
    parser.add_argument("--orders", type=int, default=5_000_000)
    parser.add_argument("--kept", type=int, default=10_000_000, help="orders from `delta` on")
    parser.add_argument("--customers", type=int, default=1_000_000)
    parser.add_argument("--products", type=int, default=10_000)
    parser.add_argument("--changes", type=int, default=1000, help="orders that change at once")
    parser.add_argument("--delta", type=int, default=100_000, help="orders that change at once")
    parser.add_argument("--fan-out", type=int, default=1_000_000, help="orders of one customer")
    parser.add_argument("--seconds", type=float, default=20.0, help="of `fresh`")
    parser.add_argument("--runs", type=int, default=5, help="of `refresh`")
    parser.add_argument("--json", action="store_true", help="print one JSON object a figure")
    given = parser.parse_args()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    with tempfile.TemporaryDirectory(prefix="streamhouse-views-") as folder:
        show(figures(Path(folder), given), given.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
