"""How soon a change can be read in Paimon after its COMMIT in MySQL, at a steady rate."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pymysql
from benchmarks.mysql.orders import FILL, ORDERS, script, server_cpu

from streamhouse.demo.mariadb import MariaDB
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.read.table import Table

GOAL = 1.0
GOAL_MS = 700.0
_ROWS = 10_000
_START_S, _LAST_S, _POLL_S = 120.0, 30.0, 0.005
_ASIDE_S = 5.0
_TABLE = "fresh"


class _Writer:
    """Commits single changes at a rate; `customer` of a row numbers its last change."""

    def __init__(self, server: MariaDB, rate: float) -> None:
        self._connection = pymysql.connect(
            unix_socket=str(server.socket), user="root", database="shop", autocommit=True
        )
        self._pause = 1 / rate
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="changes", daemon=True)
        self.committed: list[float] = []

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()
        self._connection.close()

    def _run(self) -> None:
        due = time.monotonic()
        with self._connection.cursor() as cursor:
            while not self._stopped.wait(max(0.0, due - time.monotonic())):
                due += self._pause
                number = len(self.committed)
                cursor.execute(
                    f"UPDATE orders SET customer = {100_000 + number}, price = price + 1 "
                    f"WHERE id = {1 + number % _ROWS}"
                )
                self.committed.append(time.time())


class _Reader:
    """Notes when each snapshot of the table can be read."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self.seen: dict[int, float] = {}

    def poll(self) -> None:
        latest = self._table.latest_snapshot_id() or 0
        now = time.time()
        for number in range(max(self.seen, default=0) + 1, latest + 1):
            self.seen[number] = now

    def readable(self, changes: int) -> np.ndarray[Any, Any]:
        """When each change was in a snapshot; read once all have been seen."""
        found = np.full(changes, np.nan)
        for number, at in self.seen.items():
            for batch in self._table.read(
                splits=self._table.changes(number - 1, number, "delta"), columns=["customer"]
            ):
                changed = batch.column("customer").to_numpy(zero_copy_only=False) - 100_000
                changed = changed[(changed >= 0) & (changed < changes)].astype(np.int64)
                found[changed] = np.fmin(found[changed], at)
        return found


def figure(
    server: MariaDB, folder: Path, warehouse: str, seconds: float, rate: float
) -> dict[str, Any]:
    """The line `freshness`."""
    server.execute("DROP DATABASE IF EXISTS shop", "CREATE DATABASE shop")
    server.execute(ORDERS, FILL.format(first=1, last=_ROWS), database="shop")
    text = script(server.port, "paimon", _TABLE, "'scan.startup.mode' = 'initial'")
    (folder / "fresh.sql").write_text(text)
    command = [str(Path(sys.executable).with_name("streamhouse")), "run", str(folder / "fresh.sql")]
    with (folder / "fresh.log").open("wb") as log:
        process = subprocess.Popen([*command, "--warehouse", warehouse], stdout=log, stderr=log)
    try:
        reader = _Reader(_copied(warehouse, process))
        writer = _Writer(server, rate)
        before, began = server_cpu(server), time.monotonic()
        writer.start()
        _watch(reader, process, _ASIDE_S + seconds)
        cpu = (server_cpu(server) - before) / (time.monotonic() - began)
        writer.stop()
        _watch(reader, process, 3.0)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
    committed = np.array(writer.committed)
    ages = 1000 * (reader.readable(len(committed)) - committed)
    counted = ages[committed > committed[0] + _ASIDE_S]
    missing = int(np.isnan(counted).sum())
    if missing:
        raise SystemExit(f"{missing} of {counted.size} changes are in no snapshot of the table")
    p50 = float(np.percentile(counted, 50))
    return {
        "name": "freshness",
        "ratio": round(GOAL_MS / p50, 3),
        "goal": GOAL,
        "unit": "700 ms over the median of the time from COMMIT to readable in Paimon",
        "p50_ms": round(p50),
        "p99_ms": round(float(np.percentile(counted, 99))),
        "max_ms": round(float(counted.max())),
        "changes": int(counted.size),
        "per_s": round(len(committed) / (committed[-1] - committed[0]), 1),
        "snapshots": len(reader.seen),
        "server_cores": round(cpu, 3),
        "load_1min": round(os.getloadavg()[0], 1),
    }


def _copied(warehouse: str, process: subprocess.Popen[bytes]) -> Table:
    """The table, once the script has copied the rows."""
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline and process.poll() is None:
        if Path(warehouse, "default.db", _TABLE, "snapshot").is_dir():
            table = Warehouse(warehouse).table(f"default.{_TABLE}")
            latest = table.latest_snapshot_id()
            if latest and (table.snapshot(latest).total_record_count or 0) >= _ROWS:
                return table
        time.sleep(0.1)
    raise SystemExit(f"the table was not copied within {_START_S:g} s")


def _watch(reader: _Reader, process: subprocess.Popen[bytes], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise SystemExit("the script has ended")
        reader.poll()
        time.sleep(_POLL_S)
