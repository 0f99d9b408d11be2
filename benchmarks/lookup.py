"""Lookup joins as they run, warm, against the same join in one process without Spark.

A pipeline (`streamhouse run`, two slots) joins orders with a table `members` of five columns (id,
the primary key; name; country; level; credit), all of which the query reads, and sums per country
into an aggregation table. First come some orders to warm it up: workers start, the dimension is
cached. Then `--runs` times `--orders` orders are committed at once; the clock runs from that commit
to the commit of the view whose sum has them all, both as their snapshots tell.

full     1 M members, which each worker keeps whole. `ratio` is the limit's time over ours. The
         limit reads the same orders by the Rust core and joins them in DuckDB with the members,
         which it holds in memory as the workers do; by one thread or by two, whichever is faster.
bucket   the same members, orders and limit; each order goes to the task that holds the bucket of
         its member.
partial  20 M members looked up by their primary key. The keys of orders are Zipf-distributed
         (exponent 1) over all members. `ratio` is rows/s over 100,000. `worker_mb` is the
         greatest memory of a worker while it ran (anonymous and shared pages; mapped files can
         be dropped at any time); more than 512 is a failure.

Times are medians of the runs.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt
import psutil
import pyarrow as pa
import pyarrow.compute as pc

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.backlog import append

from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.sql.plan import Column

GOALS = {"full": 0.25, "bucket": 0.15, "partial": 1.0}
PARTIAL_ROWS_S = 100_000
WORKER_MB = 512
COUNTRIES = 50
CHUNK = 262_144
WAIT_S = 600.0
_SPARK_MODULES = "streamhouse.runtime.spark.worker_"
MEMBERS = [
    Column("id", "BIGINT", False), Column("name", "STRING"), Column("country", "STRING"),
    Column("level", "INT"), Column("credit", "DOUBLE"),
]  # fmt: skip
ORDERS = [Column("order_id", "BIGINT"), Column("member_id", "BIGINT"), Column("price", "DOUBLE")]
VIEW = """
CREATE TABLE sales (
  country STRING PRIMARY KEY NOT ENFORCED, orders BIGINT, revenue DOUBLE, credit DOUBLE,
  levels BIGINT, letters BIGINT
) WITH (
  'bucket' = '1', 'merge-engine' = 'aggregation',
  'fields.default-aggregate-function' = 'sum'
);
INSERT INTO sales
SELECT /*+ LOOKUP('table'='m', 'strategy'='{strategy}') */
  m.country, 1, o.price, m.credit, CAST(m.level AS BIGINT), CAST(CHAR_LENGTH(m.name) AS BIGINT)
FROM orders AS o
JOIN members FOR SYSTEM_TIME AS OF PROCTIME() AS m ON o.member_id = m.id;
"""
LIMIT = """
SELECT m.country, count(*), sum(o.price), sum(m.credit), sum(m.level), sum(length(m.name))
FROM orders AS o JOIN members AS m ON o.member_id = m.id GROUP BY m.country
"""
Keys = npt.NDArray[np.int64]
Draw = Callable[[int], Keys]


@dataclass
class Lab:
    """One warehouse with members, and orders that come."""

    warehouse: Warehouse
    members: int
    draw: Draw
    commits: int = 0
    total: float = 0.0

    @classmethod
    def make(cls, folder: str, members: int, buckets: int, draw: Draw) -> Lab:
        warehouse = Warehouse(folder)
        warehouse.create_database("default")
        made = cls(warehouse, members, draw)
        warehouse.create_table(
            "default", "members", MEMBERS, ["id"], options={"bucket": str(buckets)}
        )
        warehouse.create_table("default", "orders", ORDERS, options={"bucket": "-1"})
        made._write("members", (members_of(keys) for keys in chunks(np.arange(members))))
        return made

    def order(self, count: int) -> int:
        """Commit new orders; the snapshot's time."""
        first = self.commits * 1_000_000_000
        keys = self.draw(count)
        prices = (keys % 1000).astype(np.float64)
        self.total += float(prices.sum())
        self._write(
            "orders",
            (
                pa.record_batch(
                    {
                        "order_id": pa.array(np.arange(first + at, first + at + len(part))),
                        "member_id": pa.array(part),
                        "price": pa.array((part % 1000).astype(np.float64)),
                    }
                )
                for at, part in zip(range(0, count, CHUNK), chunks(keys), strict=True)
            ),
        )
        table = self.warehouse.table("default.orders")
        return table.snapshot(table.latest_snapshot_id() or 1).time_ms

    def _write(self, name: str, batches: Iterator[pa.RecordBatch]) -> None:
        self.commits += 1
        append(self.warehouse.path, f"default.{name}", self.commits, batches)


def chunks(keys: Keys) -> Iterator[Keys]:
    for first in range(0, len(keys), CHUNK):
        yield keys[first : first + CHUNK]


def members_of(keys: Keys) -> pa.RecordBatch:
    """Rows with these keys; the rest follows from the key."""
    countries = pa.array([f"country {number:02d}" for number in range(COUNTRIES)])
    return pa.record_batch(
        {
            "id": pa.array(keys),
            "name": pc.binary_join_element_wise("member", pa.array(keys).cast(pa.string()), " "),
            "country": countries.take(pa.array(keys % COUNTRIES)),
            "level": pa.array((keys % 7).astype(np.int32)),
            "credit": pa.array((keys % 100).astype(np.float64)),
        }
    )


class Pipeline:
    """A running `streamhouse run`, its workers watched."""

    def __init__(self, lab: Lab, strategy: str) -> None:
        self._lab = lab
        folder = Path(lab.warehouse.path)
        script = folder.with_name("lookup.sql")
        script.write_text(VIEW.format(strategy=strategy))
        self._log = folder.with_name("lookup.log")
        command = [str(Path(sys.executable).with_name("streamhouse")), "run", str(script)]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*command, "--warehouse", str(folder)], stdout=log, stderr=log
            )
        self.worker_mb = 0.0
        self._ended = threading.Event()
        self._watch = threading.Thread(target=self._watched, daemon=True)
        self._watch.start()

    def until_all(self) -> int:
        """Wait until the view has all orders; the time of the snapshot that has them first."""
        deadline = time.monotonic() + WAIT_S
        seen = 0
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise SystemExit(f"the pipeline has ended: {self._log.read_text()[-2000:]}")
            if self._lab.warehouse.exists("default", "sales"):
                table = self._lab.warehouse.table("default.sales")
                latest = table.latest_snapshot_id() or 0
                for snapshot in range(seen + 1, latest + 1):
                    found = pa.Table.from_batches(
                        table.read(["revenue"], snapshot=snapshot), table.read_schema(["revenue"])
                    )
                    if pc.sum(found.column("revenue")).as_py() == self._lab.total:
                        return table.snapshot(snapshot).time_ms
                seen = latest
            time.sleep(0.05)
        raise SystemExit(f"the view has not got all orders: {self._log.read_text()[-2000:]}")

    def stop(self) -> None:
        self._ended.set()
        self._watch.join()
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(60)

    def _watched(self) -> None:
        while not self._ended.wait(0.1):
            for child in workers(self._process.pid):
                self.worker_mb = max(self.worker_mb, memory_mb(child))


def workers(root: int) -> list[int]:
    """Python processes of Spark below a process."""
    found = []
    with contextlib.suppress(psutil.Error):
        for child in psutil.Process(root).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if any(_SPARK_MODULES in word for word in child.cmdline()):
                    found.append(child.pid)
    return found


def memory_mb(pid: int) -> float:
    """Memory of a process that cannot be dropped: anonymous and shared pages."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    kept = [line for line in lines if line.startswith(("RssAnon:", "RssShmem:"))]
    return sum(int(line.split()[1]) for line in kept) / 1024


def uniform(members: int) -> Draw:
    random = np.random.default_rng(3)
    return lambda count: random.integers(0, members, count)


def zipf(members: int) -> Draw:
    """Ranks of exponent 1, spread over all keys."""
    random = np.random.default_rng(4)

    def draw(count: int) -> Keys:
        ranks = np.exp(random.random(count) * np.log(members)).astype(np.int64) - 1
        return np.asarray(ranks * 7_368_787 % members)

    return draw


def limits(lab: Lab, snapshots: list[int]) -> Iterator[float]:
    """The seconds in one process for the orders of each snapshot, the members in memory."""
    names = [column.name for column in MEMBERS]
    members = pa.Table.from_batches(list(lab.warehouse.table("default.members").read(names)))
    table = lab.warehouse.table("default.orders")
    for snapshot in snapshots:
        times = []
        for threads in (1, 2):
            with duckdb.connect(config={"threads": threads}) as db:
                db.register("members", members)
                started = time.perf_counter()
                splits = table.changes(snapshot - 1, snapshot)
                batches = list(table.read(["member_id", "price"], splits=splits))
                db.register("orders", pa.Table.from_batches(batches))
                db.sql(LIMIT).fetchall()
                times.append(time.perf_counter() - started)
        yield min(times)


def measured(lab: Lab, strategy: str, orders: int, runs: int) -> tuple[list[float], float]:
    """The seconds of each run, and the greatest memory of a worker."""
    pipeline = Pipeline(lab, strategy)
    try:
        lab.order(max(1000, orders // 4))
        pipeline.until_all()
        times = []
        # The first one warms up: what it had to read is there for the others.
        for _ in range(runs + 1):
            committed = lab.order(orders)
            times.append((pipeline.until_all() - committed) / 1000)
        return times[1:], pipeline.worker_mb
    finally:
        pipeline.stop()


def full(folder: str, given: argparse.Namespace) -> dict[str, Any]:
    return against_limit("full", folder, given)


def bucket(folder: str, given: argparse.Namespace) -> dict[str, Any]:
    return against_limit("bucket", folder, given)


def against_limit(strategy: str, folder: str, given: argparse.Namespace) -> dict[str, Any]:
    lab = Lab.make(f"{folder}/warehouse", given.members, 4, uniform(given.members))
    times, _ = measured(lab, strategy, given.orders, given.runs)
    latest = lab.warehouse.table("default.orders").latest_snapshot_id() or 0
    best = statistics.median(limits(lab, list(range(latest - given.runs + 1, latest + 1))))
    ours = statistics.median(times)
    return {
        "name": strategy,
        "ratio": round(best / ours, 3),
        "goal": GOALS[strategy],
        "unit": "rows/s",
        "members": given.members,
        "limit": round(given.orders / best),
        "pipeline": round(given.orders / ours),
        "limit_s": round(best, 3),
        "pipeline_s": [round(one, 3) for one in times],
    }


def partial(folder: str, given: argparse.Namespace) -> dict[str, Any]:
    members = given.partial_members
    lab = Lab.make(f"{folder}/warehouse", members, 16, zipf(members))
    orders = max(1, given.orders // 4)
    times, worker_mb = measured(lab, "partial", orders, given.runs)
    if not worker_mb:
        raise SystemExit("found no worker whose memory could be measured")
    if worker_mb > WORKER_MB:
        raise SystemExit(f"a worker took {worker_mb:.0f} MiB, more than {WORKER_MB}")
    ours = orders / statistics.median(times)
    return {
        "name": "partial",
        "ratio": round(ours / PARTIAL_ROWS_S, 3),
        "goal": GOALS["partial"],
        "unit": "rows/s",
        "members": members,
        "pipeline": round(ours),
        "pipeline_s": [round(one, 3) for one in times],
        "worker_mb": round(worker_mb),
    }


FIGURES: dict[str, Callable[[str, argparse.Namespace], dict[str, Any]]] = {
    "full": full,
    "bucket": bucket,
    "partial": partial,
}


def main() -> int:
    text = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=text)
    parser.add_argument(
        "--orders", type=int, default=8_000_000, help="of a run; a quarter of them of `partial`"
    )
    parser.add_argument("--members", type=int, default=1_000_000, help="of `full` and `bucket`")
    parser.add_argument("--partial-members", type=int, default=20_000_000, help="of `partial`")
    parser.add_argument("--runs", type=int, default=3, help="figures are medians over them")
    parser.add_argument("--only", nargs="+", choices=list(FIGURES), default=list(FIGURES))
    parser.add_argument("--json", action="store_true", help="print one JSON object a figure")
    given = parser.parse_args()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    if not given.json:
        print(f"{'figure':16} {'ratio':>6} {'goal':>5}   details")
    for name in given.only:
        with tempfile.TemporaryDirectory(prefix="streamhouse-lookup-") as folder:
            line = FIGURES[name](folder, given)
        if given.json:
            print(json.dumps(line), flush=True)
        else:
            rest = [f"{key} {value}" for key, value in line.items() if key not in _HEAD]
            print(f"{line['name']:16} {line['ratio']:6} {line['goal']:5}   {', '.join(rest)}")
    return 0


_HEAD = ("name", "ratio", "goal")

if __name__ == "__main__":
    sys.exit(main())
