"""The most memory that a worker takes while a large, skewed table is copied."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
from benchmarks.mysql.orders import FILL, ORDERS, RUN_SECONDS, check, script, server_cpu

from streamhouse.demo.mariadb import MariaDB

MOST_BYTES = 1 << 30
_WIDE_BYTES = 200_000
_WIDE_ROWS = 1 / 2000
_NAME = "skewed"


def fill(server: MariaDB, rows: int) -> None:
    """Half of the keys are dense; after a huge gap the rest is in clusters, also below zero.

    One row in 2,000 has a note of 200 KB; they are neighbours.
    """
    server.execute("DROP DATABASE IF EXISTS shop", "CREATE DATABASE shop")
    server.execute("SET sql_log_bin = 0", ORDERS, "ALTER TABLE orders MODIFY note MEDIUMTEXT",
                   FILL.format(first=1, last=rows), database="shop")  # fmt: skip
    wide = max(1, round(rows * _WIDE_ROWS))
    clustered = "IF(id % 7 = 0, -1, 1) * 1125899906842624 + (id DIV 1000) * 1000000000 + id % 1000"
    server.execute(
        "SET sql_log_bin = 0",
        f"UPDATE orders SET note = REPEAT('w', {_WIDE_BYTES}) "
        f"WHERE id BETWEEN {rows // 3} AND {rows // 3 + wide - 1}",
        f"UPDATE orders SET id = {clustered} WHERE id > {rows // 2} ORDER BY id DESC",
        "ANALYZE TABLE orders",
        database="shop",
    )


class _Peaks:
    """The greatest resident size of each Python process under another one, in bytes."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = psutil.Process(process.pid)
        self.workers: dict[int, int] = {}
        self.driver = 0

    def poll(self) -> None:
        with contextlib.suppress(psutil.Error):
            self.driver = max(self.driver, _peak(self._process.pid))
            for child in self._process.children(recursive=True):
                with contextlib.suppress(psutil.Error, OSError):
                    if "java" not in child.name():
                        peak = max(self.workers.get(child.pid, 0), _peak(child.pid))
                        self.workers[child.pid] = peak


def _peak(pid: int) -> int:
    """The greatest resident size that a process has had."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) << 10
    return 0


def figure(server: MariaDB, folder: Path, warehouse: str, rows: int) -> dict[str, Any]:
    """The line `memory`."""
    fill(server, rows)
    text = script(server.port, "paimon", _NAME, "'scan.startup.mode' = 'snapshot'")
    (folder / "memory.sql").write_text(text)
    command = [str(Path(sys.executable).with_name("streamhouse")), "run", "--until-caught-up"]
    before, began = server_cpu(server), time.monotonic()
    with (folder / "memory.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--warehouse", warehouse, str(folder / "memory.sql")],
            stdout=log,
            stderr=log,
        )
    peaks, deadline = _Peaks(process), time.monotonic() + 2 * RUN_SECONDS
    while process.poll() is None:
        peaks.poll()
        time.sleep(0.2)
        if time.monotonic() > deadline:
            process.kill()
            raise SystemExit("the script did not end")
    seconds = time.monotonic() - began
    if process.returncode:
        raise SystemExit(f"the script failed: {(folder / 'memory.log').read_text()[-2000:]}")
    check(server, warehouse, _NAME)
    most = max(peaks.workers.values())
    return {
        "name": "memory",
        "ratio": round(MOST_BYTES / most, 3),
        "goal": 1.0,
        "unit": "1 GiB over the peak of the resident size of the largest worker",
        "rows": rows,
        "worker_mb": most >> 20,
        "driver_mb": peaks.driver >> 20,
        "seconds": round(seconds, 1),
        "rows_per_s": round(rows / seconds),
        "server_cpu_s": round(server_cpu(server) - before, 1),
        "load_1min": round(os.getloadavg()[0], 1),
    }
