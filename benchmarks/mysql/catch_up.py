"""Catching up with the binlog, over plain mysql-replication that iterates the same row events."""

from __future__ import annotations

import os
import statistics
import time
from typing import Any

from benchmarks.mysql.orders import (
    FILL,
    ORDERS,
    check,
    copy,
    in_fresh_process,
    server_cpu,
)
from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.row_event import (
    DeleteRowsEvent,
    UpdateRowsEvent,
    WriteRowsEvent,
)

from streamhouse.demo.mariadb import PASSWORD, USER, MariaDB

GOAL = 3.0
_BULK = 1_000
"""Rows of a bulk statement, and statements of one row in a transaction of the others."""
_STATEMENTS = """
CREATE PROCEDURE one_by_one(changes INT)
BEGIN
  DECLARE n INT DEFAULT 0;
  WHILE n < changes DO
    IF n % 100 = 0 THEN START TRANSACTION; END IF;
    IF n % 5 = 4 THEN
      DELETE FROM orders WHERE id = n + 1;
    ELSE
      UPDATE orders SET customer = n, price = price + 1, state = 'sent' WHERE id = n + 1;
    END IF;
    SET n = n + 1;
    IF n % 100 = 0 OR n = changes THEN COMMIT; END IF;
  END WHILE;
END
"""


def turn(kind: str, port: str, file: str, pos: str, *rest: str) -> dict[str, float]:
    """One turn from a position of the binlog: `iterate`, or `copy` with warehouse and table."""
    if kind == "iterate":
        return _iterate(int(port), file, int(pos))
    warehouse, target, name = rest
    options = (
        "'scan.startup.mode' = 'specific-offset', "
        f"'scan.startup.specific-offset.file' = '{file}', "
        f"'scan.startup.specific-offset.pos' = '{pos}'"
    )
    return copy(warehouse, int(port), target, name, options)


def _iterate(port: int, file: str, pos: int) -> dict[str, float]:
    settings = {"host": "127.0.0.1", "port": port, "user": USER, "passwd": PASSWORD}
    started, rows, events = time.perf_counter(), 0, 0
    stream = BinLogStreamReader(
        connection_settings=settings, server_id=7, log_file=file, log_pos=pos,
        resume_stream=True, only_events=[WriteRowsEvent, UpdateRowsEvent, DeleteRowsEvent],
    )  # fmt: skip
    for event in stream:
        events += 1
        rows += len(event.rows)
    stream.close()
    return {"seconds": time.perf_counter() - started, "rows": rows, "events": events}


def _position(server: MariaDB) -> tuple[str, str]:
    file, pos, *_ = server.execute("SHOW MASTER STATUS")[0]
    return str(file), str(pos)


def change(server: MariaDB, changes: int) -> tuple[str, str]:
    """Half of the changes insert rows in bulk; the rest, one a statement, change and delete them.

    Returns the position in the binlog before them.
    """
    server.execute("DROP DATABASE IF EXISTS shop", "CREATE DATABASE shop")
    server.execute(ORDERS, _STATEMENTS, database="shop")
    start, inserts = _position(server), changes // 2
    for first in range(1, inserts + 1, _BULK):
        last = min(inserts, first + _BULK - 1)
        server.execute(FILL.format(first=first, last=last), database="shop")
    server.execute(f"CALL one_by_one({changes - inserts})", database="shop")
    return start


def figure(server: MariaDB, warehouse: str, changes: int, runs: int, target: str) -> dict[str, Any]:
    """The line `catch_up`; the limit has one run, as it takes most of the time."""
    start = change(server, changes)
    place = (str(server.port), *start)
    found = in_fresh_process("catch_up", "iterate", *place)
    if found["rows"] != changes:
        raise SystemExit(f"mysql-replication read {found['rows']} rows instead of {changes}")
    limit, ours, cpu = found["seconds"], list[float](), list[float]()
    for run in range(runs):
        name, before = f"caught_up_{run}", server_cpu(server)
        ours.append(
            in_fresh_process("catch_up", "copy", *place, warehouse, target, name)["seconds"]
        )
        cpu.append(server_cpu(server) - before)
        if target == "paimon":
            check(server, warehouse, name)
    own = statistics.median(ours)
    return {
        "name": "catch_up",
        "ratio": round(limit / own, 3),
        "goal": GOAL,
        "unit": "times as fast as plain mysql-replication iterates the rows",
        "rows": changes,
        "events": round(found["events"]),
        "rows_per_s": round(changes / own),
        "limit_s": round(limit, 2),
        "ours_s": round(own, 2),
        "server_cpu_s": round(statistics.median(cpu), 2),
        "ratios": [round(limit / seconds, 3) for seconds in ours],
        "target": target,
        "load_1min": round(os.getloadavg()[0], 1),
    }
