"""Paimon tables through Spark, each figure against pypaimon-rust alone, in the same run.

The table has five columns: id BIGINT (the key), customer_id INT, price DOUBLE, country STRING,
changed TIMESTAMP(3). `ratio` is the limit's time over ours: 1 is as fast as the limit.

scan    Three sorted runs, whose keys alternate, and a tenth of each run's keys again in the next:
        as many rows as `--rows` come out. Ours: `spark.read.format("paimon")` into Spark's `noop`
        sink, which takes every row with all columns; `aggregate_s` is a sum or maximum of every
        column instead. The limit: the same splits read by the Rust core into Arrow batches, which
        are dropped, by one thread or by two, whichever is faster.
write   `--rows` rows of a fifth as many keys, from `spark.range`, by `df.write.format("paimon")`.
        Making the rows is in our time; `generated_s` is that alone, into the `noop` sink.
        `by_key_s` is the same after `repartition("id")` with `distribution = by-key`. The limit:
        the very same rows, in memory as Arrow, through writers of the Rust core and one commit, by
        one thread or by two (each its own buckets), whichever is faster. What was written is
        read and summed in both cases.
commit  The 99th percentile of the time of one commit of 100 rows, at `--pace` commits a second,
        without compaction over that with it beside, as a pipeline has it (manifests merged,
        compaction by the sidecar). For the first, manifests are merged between commits, outside
        of the clock, or each commit would be slower than the last and the ratio better. Five
        turns of each, in turn.

Spark is `local[2]` with its own default settings. One turn of each, limit and ours, is run before
the clock starts: both are warm; `first_s` is that turn of ours, with the start of Python workers.
Times are medians of `--runs` turns, limit and ours in turn.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
from pypaimon_rust.datafusion import Split
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import streamhouse
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.java.sidecar import Sidecar
from streamhouse.paimon.maintenance.service import Maintenance
from streamhouse.paimon.read.table import READ_BATCH_ROWS, Table
from streamhouse.paimon.write.bucket_hash import bucket_of
from streamhouse.paimon.write.commit import TableCommitter
from streamhouse.paimon.write.table_writer import TableWriter
from streamhouse.sql.plan import Column

SLOTS = 2
COLUMNS = [
    Column("id", "BIGINT"), Column("customer_id", "INT"), Column("price", "DOUBLE"),
    Column("country", "STRING"), Column("changed", "TIMESTAMP(3)"),
]  # fmt: skip
CHUNK = 65_536
COMMIT_ROWS = 100
MERGE_EVERY = 15
TURNS = 5
SETTLE_S = 2.0
EPOCH_MS = 1_700_000_000_000
GOALS = {"scan": 0.3, "write": 0.3, "commit": 0.33}

Work = Callable[[], float]
"""Does something and tells the seconds of the part that counts."""


class Lab:
    """A warehouse of tables of five columns, and a Spark session over it."""

    def __init__(self, folder: str, buckets: int) -> None:
        self.warehouse = Warehouse(folder)
        self.warehouse.create_database("lab")
        self._buckets = buckets
        self._made = 0

    def table(self) -> Table:
        self._made += 1
        options = {"bucket": str(self._buckets)}
        name = f"t{self._made}"
        self.warehouse.create_table("lab", name, COLUMNS, ["id"], options=options)
        return self.warehouse.table(f"lab.{name}")

    def write(self, table: Table, number: int, batches: Sequence[pa.RecordBatch]) -> float:
        """Write and commit through Streamhouse's own classes; the seconds of the commit."""
        options = self.warehouse.options
        writer = TableWriter(options, table.identifier, "benchmark")
        for batch in batches:
            writer.write(batch)
        messages = writer.prepare(number)
        writer.close()
        committer = TableCommitter(options, table.identifier, "benchmark")
        started = time.perf_counter()
        committer.commit(number, messages)
        return time.perf_counter() - started

    def frame(self, spark: SparkSession, table: Table) -> DataFrame:
        reader = spark.read.format("paimon").option("warehouse", self.warehouse.path)
        return reader.load(table.identifier)

    def save(self, frame: DataFrame, table: Table, **options: str) -> None:
        writer = frame.write.format("paimon").option("warehouse", self.warehouse.path)
        writer.options(**options).mode("append").save(table.identifier)


def rows_of(keys: Any) -> pa.RecordBatch:
    """Rows with these keys; the rest follows from the key."""
    countries = pa.array([f"country {number:02d}" for number in range(50)])
    changed = pa.array(keys + EPOCH_MS).cast(pa.timestamp("ms"))
    return pa.record_batch(
        {
            "id": pa.array(keys),
            "customer_id": pa.array(keys % 10_000, pa.int32()),
            "price": pa.array((keys % 1000).astype(np.float64)),
            "country": countries.take(pa.array(keys % 50)),
            "changed": changed,
        }
    )


def scan(lab: Lab, spark: SparkSession, rows: int, runs: int) -> dict[str, Any]:
    table = lab.table()
    keys = np.arange(rows, dtype=np.int64)
    for run in range(3):
        again = (keys % 3 == (run - 1) % 3) & (keys // 3 % 10 == 0) & (run > 0)
        chosen = keys[(keys % 3 == run) | again]
        chunks = [chosen[first : first + CHUNK] for first in range(0, len(chosen), CHUNK)]
        lab.write(table, run, [rows_of(chunk) for chunk in chunks])
    splits = table.splits()
    frame = lab.frame(spark, table)
    totals = [f.sum("id"), f.sum("customer_id"), f.sum("price"), f.max("country"), f.max("changed")]
    (found,) = frame.agg(f.count("*"), *totals).collect()
    if (found[0], found[1]) != (rows, rows * (rows - 1) // 2):
        raise SystemExit(f"the scan is wrong: {found}")
    works = {
        "limit_1": lambda: seconds(lambda: read_all(table, splits, 1)),
        "limit_2": lambda: seconds(lambda: read_all(table, splits, SLOTS)),
        "spark": lambda: seconds(lambda: to_noop(frame)),
        "aggregate": lambda: seconds(lambda: frame.agg(*totals).collect()),
    }
    return figure("scan", rows, works, runs)


def read_all(table: Table, splits: Sequence[bytes], threads: int) -> None:
    def one(part: Sequence[bytes]) -> None:
        builder = table.rust.new_read_builder({"read.batch-size": str(READ_BATCH_ROWS)})
        for _ in builder.new_read().read_arrow([Split.deserialize(split) for split in part]):
            pass

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(one, [splits[thread::threads] for thread in range(threads)]))


def to_noop(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def write(lab: Lab, spark: SparkSession, rows: int, runs: int) -> dict[str, Any]:
    keys = max(1, rows // 5)
    made = generated(spark, rows, keys)
    ids = np.arange(rows, dtype=np.int64) * 7919 % keys
    batches = [rows_of(ids[first : first + CHUNK]) for first in range(0, rows, CHUNK)]
    expected = (keys, keys * (keys - 1) // 2)

    def checked(save: Callable[[Table], None]) -> Work:
        def work() -> float:
            table = lab.table()
            took = seconds(lambda: save(table))
            read = [batch.column("id") for batch in table.read(["id"])]
            found = pa.chunked_array(read).to_numpy()
            if (len(found), int(found.sum())) != expected:
                raise SystemExit(f"the write is wrong: {len(found)} rows")
            return took

        return work

    parts = by_bucket(batches, lab.table())
    works = {
        "limit_1": checked(lambda table: write_all(table, [batches])),
        "limit_2": checked(lambda table: write_all(table, parts)),
        "spark": checked(lambda table: lab.save(made, table)),
        "by_key": checked(
            lambda table: lab.save(made.repartition("id"), table, distribution="by-key")
        ),
        "generated": lambda: seconds(lambda: to_noop(made)),
    }
    return figure("write", rows, works, runs)


def generated(spark: SparkSession, rows: int, keys: int) -> DataFrame:
    """The same rows as `rows_of` makes of the same keys; multiplied by a prime, keys are mixed."""
    mixed = (f.col("id") * 7919 % keys).alias("id")
    return spark.range(0, rows, 1, SLOTS).select(mixed).selectExpr(
        "id",
        "cast(id % 10000 AS int) AS customer_id",
        "cast(id % 1000 AS double) AS price",
        "concat('country ', lpad(cast(id % 50 AS string), 2, '0')) AS country",
        f"cast(timestamp_millis(id + {EPOCH_MS}) AS timestamp_ntz) AS changed",
    )  # fmt: skip


def by_bucket(batches: Sequence[pa.RecordBatch], table: Table) -> list[list[pa.RecordBatch]]:
    """The rows for each thread: those of its own buckets."""
    parts: list[list[pa.RecordBatch]] = [[] for _ in range(SLOTS)]
    for batch in batches:
        buckets = bucket_of([batch.column("id")], table.bucket) % SLOTS
        for slot, part in enumerate(parts):
            part.append(batch.filter(pa.array(buckets == slot)))
    return parts


def write_all(table: Table, parts: Sequence[Sequence[pa.RecordBatch]]) -> None:
    builder = table.rust.new_stream_write_builder().with_commit_user("benchmark")

    def one(batches: Sequence[pa.RecordBatch]) -> list[Any]:
        writer = builder.new_write()
        for batch in batches:
            writer.write_arrow(batch)
        messages: list[Any] = writer.prepare_commit(True, 0)
        writer.close()
        return messages

    with ThreadPoolExecutor(len(parts)) as pool:
        found = [message for part in pool.map(one, parts) for message in part]
    builder.new_commit().filter_and_commit({0: found})


def commit(lab: Lab, commits: int, pace: float) -> dict[str, Any]:
    options = lab.warehouse.options
    alone, concurrent_commit = lab.table(), lab.table()
    without: list[float] = []
    with_it: list[float] = []
    part = -(-commits // TURNS)
    maintenance = Maintenance(options, lambda: (concurrent_commit.identifier,))
    maintenance.start()
    try:
        with Sidecar(options) as sidecar:

            def merge(number: int) -> None:
                if number % MERGE_EVERY == 0:
                    sidecar.compact_manifests(alone.identifier)

            # Turn 0 warms both up: the start of a sidecar is part of a pipeline's start.
            for turn in range(TURNS + 1):
                times = committed(lab, alone, part, pace, turn * part, merge)
                without += times if turn else []
                times = committed(lab, concurrent_commit, part, pace, turn * part)
                with_it += times if turn else []
                # What is still to be compacted is no business of the other table's turn.
                time.sleep(SETTLE_S if part > MERGE_EVERY else 0)
    finally:
        maintenance.stop()
    if part > MERGE_EVERY and not maintenance.counts["compactions"]:
        raise SystemExit("nothing was compacted beside the commits")
    limit, ours = (percentile(times, 99) for times in (without, with_it))
    return {
        "name": "commit",
        "ratio": round(limit / ours, 3),
        "goal": GOALS["commit"],
        "unit": "ms",
        "p99_without": round(1000 * limit, 1),
        "p99_with": round(1000 * ours, 1),
        "p50_without": round(1000 * percentile(without, 50), 1),
        "p50_with": round(1000 * percentile(with_it, 50), 1),
        "max_with": round(1000 * max(with_it), 1),
        "commits": len(with_it),
        "compactions": maintenance.counts["compactions"],
        "failures": maintenance.counts["failures"],
    }


def committed(
    lab: Lab,
    table: Table,
    commits: int,
    pace: float,
    first: int,
    between: Callable[[int], None] = lambda number: None,
) -> list[float]:
    """The seconds of each commit; one is due a fixed time after the one before was."""
    times = []
    draw = np.random.default_rng(first)
    for number in range(first, first + commits):
        due = time.perf_counter() + 1 / pace
        keys = draw.integers(0, 10_000, COMMIT_ROWS)
        times.append(lab.write(table, number, [rows_of(keys)]))
        between(number)
        time.sleep(max(0.0, due - time.perf_counter()))
    return times


def percentile(times: Sequence[float], percent: float) -> float:
    return float(np.percentile(times, percent))


def seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def figure(name: str, rows: int, works: dict[str, Work], runs: int) -> dict[str, Any]:
    """One turn of each to warm up, then `runs` turns of all; the line of the figure."""
    first = {key: work() for key, work in works.items()}["spark"]
    turns = [{key: work() for key, work in works.items()} for _ in range(runs)]
    medians = {key: statistics.median(turn[key] for turn in turns) for key in works}
    limit = min(medians.pop("limit_1"), medians.pop("limit_2"))
    ours = medians.pop("spark")
    return {
        "name": name,
        "ratio": round(limit / ours, 3),
        "goal": GOALS[name],
        "unit": "rows/s",
        "rows": rows,
        "limit": round(rows / limit),
        "spark": round(rows / ours),
        "ratios": [
            round(min(turn["limit_1"], turn["limit_2"]) / turn["spark"], 3) for turn in turns
        ],
        "limit_s": round(limit, 3),
        "spark_s": round(ours, 3),
        **{f"{key}_s": round(value, 3) for key, value in medians.items()},
        "first_s": round(first, 3),
    }


@contextmanager
def spark_session() -> Iterator[SparkSession]:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(f"local[{SLOTS}]").appName("benchmark")
    builder = builder.config("spark.ui.enabled", "false")
    spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    streamhouse.register(spark)
    try:
        yield spark
    finally:
        spark.stop()


def measure(given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    with tempfile.TemporaryDirectory(prefix="streamhouse-paimon-") as folder:
        lab = Lab(folder, given.buckets)
        if set(given.only) & {"scan", "write"}:
            with spark_session() as spark:
                if "scan" in given.only:
                    yield scan(lab, spark, given.rows, given.runs)
                if "write" in given.only:
                    yield write(lab, spark, given.rows, given.runs)
        if "commit" in given.only:
            yield commit(Lab(f"{folder}/commits", given.buckets), given.commits, given.pace)


def main() -> int:
    text = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=text)
    parser.add_argument("--rows", type=int, default=5_000_000, help="of the scan and the write")
    parser.add_argument("--buckets", type=int, default=4, help="of each table")
    parser.add_argument("--runs", type=int, default=3, help="figures are medians over them")
    parser.add_argument("--commits", type=int, default=300, help="with and without compaction")
    parser.add_argument("--pace", type=float, default=5.0, help="commits a second")
    parser.add_argument("--only", nargs="+", choices=list(GOALS), default=list(GOALS))
    parser.add_argument("--json", action="store_true", help="print one JSON object a figure")
    given = parser.parse_args()
    if not given.json:
        print(f"{'figure':8} {'ratio':>6} {'goal':>5}   details")
    for line in measure(given):
        if given.json:
            print(json.dumps(line), flush=True)
        else:
            rest = [f"{key} {value}" for key, value in line.items() if key not in _HEAD]
            print(f"{line['name']:8} {line['ratio']:6} {line['goal']:5}   {', '.join(rest)}")
    return 0


_HEAD = ("name", "ratio", "goal")

if __name__ == "__main__":
    sys.exit(main())
