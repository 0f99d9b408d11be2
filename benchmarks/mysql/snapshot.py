"""The snapshot of a table, over a server-side cursor of PyMySQL that fetches and drops it."""

from __future__ import annotations

import os
import statistics
import time
from typing import Any

import pymysql
from benchmarks.mysql.orders import (
    FILL,
    ORDERS,
    check,
    connection,
    copy,
    in_fresh_process,
    server_cpu,
)

from streamhouse.demo.mariadb import MariaDB

GOAL = 2.5
_OPTIONS = "'scan.startup.mode' = 'snapshot'"


def turn(kind: str, port: str, *rest: str) -> dict[str, float]:
    """One turn: `cursor`, or `copy` with warehouse, target and table."""
    if kind == "cursor":
        return _cursor(int(port))
    warehouse, target, name = rest
    return copy(warehouse, int(port), target, name, _OPTIONS)


def _cursor(port: int) -> dict[str, float]:
    started = time.perf_counter()
    with connection(port).cursor(pymysql.cursors.SSCursor) as rows:
        rows.execute("SELECT * FROM orders")
        while rows.fetchmany(1000):
            pass
    return {"seconds": time.perf_counter() - started}


def figure(server: MariaDB, warehouse: str, rows: int, runs: int, target: str) -> dict[str, Any]:
    """The line `snapshot`."""
    server.execute("DROP DATABASE IF EXISTS shop", "CREATE DATABASE shop")
    fill = FILL.format(first=1, last=rows)
    server.execute("SET sql_log_bin = 0", ORDERS, fill, database="shop")
    port = str(server.port)
    limits, ours, cpu, sessions = [], [], [], []
    for run in range(runs):
        limits.append(in_fresh_process("snapshot", "cursor", port)["seconds"])
        name, before = f"copy_{run}", server_cpu(server)
        found = in_fresh_process("snapshot", "copy", port, warehouse, target, name)
        cpu.append(server_cpu(server) - before)
        ours.append(found["seconds"])
        sessions.append(found["session_s"])
        if target == "paimon":
            check(server, warehouse, name)
    limit, own = statistics.median(limits), statistics.median(ours)
    return {
        "name": "snapshot",
        "ratio": round(limit / own, 3),
        "goal": GOAL,
        "unit": "times as fast as a server-side cursor of PyMySQL",
        "rows": rows,
        "rows_per_s": round(rows / own),
        "limit_s": round(limit, 2),
        "ours_s": round(own, 2),
        "server_cpu_s": round(statistics.median(cpu), 2),
        "ratios": [round(a / b, 3) for a, b in zip(limits, ours, strict=True)],
        "session_s": round(statistics.median(sessions), 2),
        "target": target,
        "load_1min": round(os.getloadavg()[0], 1),
    }
