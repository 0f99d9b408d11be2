"""How fast a day is repaired: 5 M rows of it inserted again from raw, the streams' table standing.

The table is the membership warehouse's: keyed, partitioned by day, 4 buckets, deletion vectors, a
`lookup` changelog, ORC. It has the day already. Three repairs, each by one process: all rows were
wrong (`repair-all`), a hundred of them (`repair-few`), none (`repair-none`). The clock is around
the statement, from reading raw to the rows' being seen, with the start of the JVM that compacts.
`ratio` is 60 s over the seconds, the goal 1.0. The limit, `limit_seconds`, is the same read and
the plain write of the rows in this process, without a comparison and without the compaction.
`peak_mb` is the most that the process and its JVM held together.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import streamhouse
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.write.commit import TableCommitter
from streamhouse.paimon.write.table_writer import TableWriter

GOAL_SECONDS = 60.0
DAY = "2026-06-01"
CHUNK = 500_000
COLUMNS = (
    "v_date STRING, id BIGINT, agent_id INT, product_id INT, city_id INT, amount DECIMAL(20, 4), "
    "status STRING, event_time TIMESTAMP(3)"
)
TABLES = f"""
CREATE TABLE raw ({COLUMNS}) PARTITIONED BY (v_date) WITH ('bucket' = '-1');
CREATE TABLE ods ({COLUMNS}, PRIMARY KEY (v_date, id) NOT ENFORCED) PARTITIONED BY (v_date) WITH (
  'bucket' = '4', 'deletion-vectors.enabled' = 'true', 'changelog-producer' = 'lookup',
  'sequence.field' = 'event_time', 'file.format' = 'orc');
CREATE TABLE plain ({COLUMNS}, PRIMARY KEY (v_date, id) NOT ENFORCED) PARTITIONED BY (v_date)
  WITH ('bucket' = '4', 'sequence.field' = 'event_time');
"""
STATUS = {
    "repair-all": "status || '!'",
    "repair-few": "CASE WHEN MOD(id, {step}) = 1 THEN status || '?' ELSE status || '!' END",
    "repair-none": "CASE WHEN MOD(id, {step}) = 1 THEN status || '?' ELSE status || '!' END",
}


def repair(name: str, rows: int) -> str:
    """The statement of one of the repairs."""
    status = STATUS[name].format(step=max(2, rows // 100))
    return (
        f"INSERT INTO ods SELECT v_date, id, agent_id, product_id, city_id, amount, {status}, "
        f"event_time FROM raw WHERE v_date BETWEEN '{DAY}' AND '{DAY}'"
    )


def fill(warehouse: str, rows: int) -> None:
    """Raw rows of the day and a tenth as many of the next, and the table made of them."""
    streamhouse.execute(warehouse, TABLES)
    options, random = {"warehouse": warehouse}, np.random.default_rng(1)
    writer = TableWriter(options, "default.raw", "fill")
    for day, count in ((DAY, rows), ("2026-06-02", rows // 10)):
        for first in range(0, count, CHUNK):
            writer.write(_chunk(random, day, first, min(CHUNK, count - first)))
    TableCommitter(options, "default.raw", "fill").commit(0, writer.prepare(0))
    writer.close()
    streamhouse.execute(warehouse, "INSERT INTO ods SELECT * FROM raw")


def _chunk(random: Any, day: str, first: int, count: int) -> pa.RecordBatch:
    ids = np.arange(first, first + count)
    random.shuffle(ids)
    words = np.array(["paid", "new", "cancelled"])
    return pa.record_batch(
        {
            "v_date": pa.repeat(day, count),
            "id": pa.array(ids),
            "agent_id": pa.array(random.integers(0, 10_000, count), pa.int32()),
            "product_id": pa.array(random.integers(0, 1_000, count), pa.int32()),
            "city_id": pa.array(random.integers(0, 300, count), pa.int32()),
            "amount": pa.array(random.integers(1, 10**6, count))
            .cast(pa.decimal128(20, 0))
            .cast(pa.decimal128(20, 4)),
            "status": pa.array(words[random.integers(0, 3, count)]),
            "event_time": pa.array(ids + 1_780_272_000_000).cast(pa.timestamp("ms")),
        }
    )


def measure(rows: int) -> list[dict[str, Any]]:
    """A figure for each repair; `right` says whether the table's rows and changes are."""
    metrics = []
    with tempfile.TemporaryDirectory(prefix="streamhouse-repair-") as folder:
        warehouse = str(Path(folder) / "warehouse")
        fill(warehouse, rows)
        limit = _limit(warehouse)
        for name, changed in zip(STATUS, (rows, _few(rows), 0), strict=True):
            seconds, peak = _timed(warehouse, name, rows)
            metrics.append(
                {
                    "name": name,
                    "ratio": round(GOAL_SECONDS / seconds, 3),
                    "goal": 1.0,
                    "unit": "60 s over the seconds of the repair",
                    "rows": rows,
                    "seconds": round(seconds, 2),
                    "limit_seconds": round(limit, 2),
                    "peak_mb": peak,
                    "right": _right(warehouse, name, rows, changed),
                }
            )
    return metrics


def _few(rows: int) -> int:
    return len(range(1, rows, max(2, rows // 100)))


def _limit(warehouse: str) -> float:
    started = time.perf_counter()
    tables = Warehouse(warehouse)
    only = {"method": "equal", "field": "v_date", "literals": [DAY]}
    writer = TableWriter({"warehouse": warehouse}, "default.plain", "limit")
    for batch in tables.table("default.raw").read(filter=only):
        writer.write(batch)
    writer.prepare(0)
    writer.close()
    return time.perf_counter() - started


def _timed(warehouse: str, name: str, rows: int) -> tuple[float, int]:
    """Seconds of the statement, in a process of its own, and the most memory held (MB)."""
    process = subprocess.Popen(
        [sys.executable, __file__, "--one-run", warehouse, name, "--rows", str(rows)],
        stdout=subprocess.PIPE,
        text=True,
    )
    peak = 0
    while process.poll() is None:
        peak = max(peak, _held(process.pid))
        time.sleep(0.2)
    assert process.stdout is not None
    if process.returncode:
        raise SystemExit(f"the repair failed with exit code {process.returncode}")
    return float(process.stdout.read().splitlines()[-1]), peak >> 20


def _held(pid: int) -> int:
    """Bytes that a process and its children hold; 0 when it is gone."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return pages * 4096 + sum(_held(int(child)) for child in children)


def _right(warehouse: str, name: str, rows: int, changed: int) -> bool:
    """Whether readers see the repaired rows, and followers were told of no other."""
    import duckdb

    table = Warehouse(warehouse).table("default.ods")
    found = pa.Table.from_batches(list(table.read(["v_date", "id", "status"])))
    changes = table.snapshot(table.latest_snapshot_id() or 1).changelog_record_count
    with duckdb.connect() as con:
        con.register("found", found)
        answer = con.sql(
            "SELECT count(*), count(DISTINCT id), count(*) FILTER (WHERE status LIKE '%!'), "
            f"count(*) FILTER (WHERE status LIKE '%?') FROM found WHERE v_date = '{DAY}'"
        ).fetchall()[0]
    few = 0 if name == "repair-all" else _few(rows)
    reported = changes == 2 * changed or name == "repair-none"
    return answer == (rows, rows, rows - few, few) and reported


def _one_run(warehouse: str, name: str, rows: int) -> None:
    before = time.perf_counter()
    done = streamhouse.execute(warehouse, repair(name, rows))
    seconds = time.perf_counter() - before
    expected = {"repair-all": rows, "repair-few": _few(rows), "repair-none": 0}[name]
    if (done.inserted, done.updated) != (0, expected):
        raise SystemExit(f"{name}: {done}, and {expected:,} rows were to be updated")
    print(seconds)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--json", action="store_true", help="print one JSON object a figure")
    parser.add_argument("--one-run", nargs=2, metavar=("WAREHOUSE", "NAME"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one_run:
        warehouse, name = given.one_run
        _one_run(warehouse, name, given.rows)
        return 0
    metrics = measure(given.rows)
    for one in metrics:
        if given.json:
            print(json.dumps(one))
        else:
            print(
                f"{one['name']:12} {one['seconds']:6.1f} s, goal {GOAL_SECONDS:g} s (limit in one "
                f"process {one['limit_seconds']:g} s), {one['peak_mb']:,} MB, right: {one['right']}"
            )
    return 0 if all(metric["right"] for metric in metrics) else 1


if __name__ == "__main__":
    sys.exit(main())
