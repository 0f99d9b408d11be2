"""How soon 200 small MySQL tables are followed, in how much memory, by one `streamhouse sync`.

The clock starts with the command, and stops when it reports that all tables were read and are
followed: the start of Python, Spark and the relay log, creating the Paimon tables, the snapshots
and their commits are in it. Then each table is changed once, and `freshness_s` is the time until
all changes are in Paimon. Memory is that of the command and its child processes, where shared pages
count once.

`ratio` is 10 s over the seconds, the goal 1.0. After each run all tables are compared with MySQL.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.mysql.orders import server_cpu

from streamhouse.demo.mariadb import PASSWORD, USER, MariaDB
from streamhouse.demo.measured_run import PeakMemory
from streamhouse.paimon.catalog.warehouse import Warehouse

GOAL_S = 10.0
MOST_MB = 1536
_DEADLINE_S = 300.0
_ROWS = 20
_TABLE = (
    "CREATE TABLE many.t{0} (id INT PRIMARY KEY, name VARCHAR(40), price DECIMAL(10, 2),"
    " made DATETIME(3), note TEXT)"
)


def fill(server: MariaDB, tables: int) -> None:
    """Create the tables with their rows."""
    server.execute("DROP DATABASE IF EXISTS many", "CREATE DATABASE many")
    for number in range(tables):
        rows = ", ".join(
            f"({row}, 'name {row}', {row}.25, '2024-01-01 00:00:{row:02}', NULL)"
            for row in range(_ROWS)
        )
        server.execute(_TABLE.format(number), f"INSERT INTO many.t{number} VALUES {rows}")


def measured(server: MariaDB, folder: Path, tables: int) -> dict[str, float]:
    """One run into a new warehouse."""
    conf = {
        "hostname": "127.0.0.1", "port": str(server.port), "username": USER,
        "password": PASSWORD, "database-name": "many",
    }  # fmt: skip
    command = [
        str(Path(sys.executable).with_name("streamhouse")),
        *("sync", "mysql-database", "--warehouse", str(folder), "--database", "ods", "--json"),
        *("--table-conf", "bucket=1", "--table-conf", "changelog-producer=input"),
        *(word for key, value in conf.items() for word in ("--mysql-conf", f"{key}={value}")),
    ]
    began, before = time.monotonic(), server_cpu(server)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        memory = PeakMemory(process.pid)
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if json.loads(line)["followed"] == tables:
                    break
            followed, cpu = time.monotonic() - began, server_cpu(server) - before
            changed = time.monotonic()
            for number in range(tables):
                server.execute(f"UPDATE many.t{number} SET note = 'new' WHERE id = 7")
            written = time.monotonic()
            _await_changes(folder, tables)
            fresh, peak_mb = time.monotonic() - written, memory.stop()
        finally:
            process.terminate()
    check(server, folder, tables)
    return {
        "followed_s": followed,
        "server_cpu_s": cpu,
        "writing_s": written - changed,
        "freshness_s": fresh,
        "peak_mb": peak_mb,
    }


def _await_changes(folder: Path, tables: int) -> None:
    deadline = time.monotonic() + _DEADLINE_S
    warehouse = Warehouse(str(folder))
    waiting = list(range(tables))
    while waiting:
        assert time.monotonic() < deadline, f"not followed: {len(waiting)} tables"
        waiting = [
            one
            for one in waiting
            if "new" not in {row["note"] for row in _rows(warehouse, f"ods.t{one}")}
        ]


def _rows(warehouse: Warehouse, table: str) -> list[dict[str, Any]]:
    return [row for batch in warehouse.table(table).read() for row in batch.to_pylist()]


def check(server: MariaDB, folder: Path, tables: int) -> None:
    """Compare all tables with MySQL; a benchmark of wrong rows is none."""
    warehouse = Warehouse(str(folder))
    for number in range(tables):
        there = sorted(server.execute(f"SELECT * FROM many.t{number}"))
        here = sorted(tuple(row.values()) for row in _rows(warehouse, f"ods.t{number}"))
        assert here == there, f"t{number} differs"


def measure(tables: int, runs: int) -> dict[str, Any]:
    """The figure of some runs, with a server of their own."""
    with tempfile.TemporaryDirectory(prefix="streamhouse-sync-") as name:
        folder, found = Path(name), []
        with MariaDB(folder / "mariadb") as server:
            for run in range(runs):
                fill(server, tables)
                found.append(measured(server, folder / f"run{run}", tables))
    return figure(found, tables)


def figure(runs: list[dict[str, float]], tables: int) -> dict[str, Any]:
    """The figure of all runs; times and memory of the median run."""
    median = statistics.median(run["followed_s"] for run in runs)
    return {
        "name": "sync",
        "ratio": round(GOAL_S / median, 3),
        "goal": 1.0,
        "unit": "10 s over the seconds until all tables are followed",
        "tables": tables,
        "median_s": round(median, 2),
        "server_cpu_s": round(statistics.median(run["server_cpu_s"] for run in runs), 2),
        "freshness_s": round(statistics.median(run["freshness_s"] for run in runs), 2),
        "peak_mb": round(max(run["peak_mb"] for run in runs)),
        "most_mb": MOST_MB,
        "load_1min": round(os.getloadavg()[0], 1),
    }


def main() -> int:
    text = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=text)
    parser.add_argument("--tables", type=int, default=200)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="print one JSON object a figure")
    given = parser.parse_args()
    found = measure(given.tables, given.runs)
    if given.json:
        print(json.dumps(found))
    else:
        print("  ".join(f"{key} {value}" for key, value in found.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
