"""How a table's changes come to a thousand readers of `streamhouse serve`.

A real server process follows a table with a primary key; a process of its own has all the readers,
as WebSockets. Then 20 of the table's 200 rows are changed at each commit, two commits a second.
Each reader has what it makes of its events compared with what was committed, at every event.

every_change    the share of reader × commit pairs that came, each after the one before; goal 1.0
delay_p99       1 s over the 99th percentile of the seconds from just after a commit until a reader
                has the change, over all pairs
server_memory   1 GiB over the server's largest resident size
rows_read_once  rows that commits changed over rows that the server encoded for its readers, as its
                metrics count them: 1.0 if each was read and encoded once, whoever reads

Nothing compacts the table meanwhile, so the server's looks take longer towards the end. Server,
readers and the writer share the machine. With --json one object a figure is printed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import uvloop
from websockets.asyncio.client import ClientConnection, connect

from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.write.commit import TableCommitter
from streamhouse.paimon.write.table_writer import TableWriter
from streamhouse.sql.plan import Column

TABLE = "shop.numbers"
COLUMNS = [Column("id", "BIGINT"), Column("number", "BIGINT"), Column("written_ms", "BIGINT")]
ROWS = 200
CHANGED = 20
GOAL_S = 1.0
GOAL_BYTES = 1 << 30
START_S = 120.0
LAST_S = 60.0
TOGETHER = 50


def changed_by(number: int) -> list[int]:
    """The ids of the rows that a commit changes; the first one writes all."""
    if number == 0:
        return list(range(ROWS))
    return [(number * CHANGED + i) % ROWS for i in range(CHANGED)]


def snapshot_of(number: int) -> int:
    """The snapshot of a commit: nobody else writes the table."""
    return number + 1


class Truth:
    """The table after each commit, as a list of numbers by id."""

    def __init__(self) -> None:
        self._states: list[list[int]] = []

    def at(self, snapshot: int) -> list[int]:
        while len(self._states) < snapshot:
            number = len(self._states)
            state = list(self._states[-1]) if self._states else [0] * ROWS
            for row in changed_by(number):
                state[row] = number
            self._states.append(state)
        return self._states[snapshot - 1]


class Reader:
    """One WebSocket, and what it makes of the events that come."""

    def __init__(self, truth: Truth) -> None:
        self._truth = truth
        self._state: list[int | None] = [None] * ROWS
        self.snapshot = 0
        self.came: list[tuple[int, int, float]] = []
        self.wrong: str | None = None

    def take(self, event: dict[str, Any], at: float) -> None:
        """Apply an event; the snapshots from and to which it leads, and when, are noted."""
        for row in event["rows"]:
            place, kind = row["id"], row["rowkind"]
            if kind in ("-U", "-D"):
                if self._state[place] != row["number"]:
                    raise ValueError(f"row {place} was not {row['number']}")
                continue
            self._state[place] = row["number"]
        if event["more"]:
            return
        before, self.snapshot = self.snapshot, event["snapshot"]
        if self.snapshot <= before:
            raise ValueError(f"snapshot {self.snapshot} came after {before}")
        if self._state != self._truth.at(self.snapshot):
            raise ValueError(f"other rows than those of snapshot {self.snapshot}")
        if event["type"] == "changes":
            self.came.append((before, self.snapshot, at))


class Readers:
    """All readers, in the process that the benchmark starts for them."""

    def __init__(self, url: str, count: int) -> None:
        self._url = url
        self._last: int | None = None
        truth = Truth()
        self._readers = [Reader(truth) for _ in range(count)]
        self._parsed: dict[str, dict[str, Any]] = {}
        self._gate = asyncio.Semaphore(TOGETHER)
        self._ready = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def run(self, results: Path) -> None:
        loop = asyncio.get_running_loop()
        threading.Thread(target=self._listen, args=(loop,), daemon=True).start()
        self._tasks = [asyncio.create_task(self._read(reader)) for reader in self._readers]
        await asyncio.wait_for(self._ready.wait(), START_S)
        print("ready", flush=True)
        await asyncio.gather(*self._tasks)
        rows = [(i, *one) for i, reader in enumerate(self._readers) for one in reader.came]
        np.save(results, np.array(rows, np.float64).reshape(-1, 4))
        for reader in self._readers:
            if reader.wrong is not None:
                print(f"a reader ended: {reader.wrong}", file=sys.stderr)
                break

    def _listen(self, loop: asyncio.AbstractEventLoop) -> None:
        """The benchmark tells the last snapshot, and from when on waiting is in vain."""
        self._last = int(sys.stdin.readline())
        loop.call_soon_threadsafe(self._end_soon, loop)

    def _end_soon(self, loop: asyncio.AbstractEventLoop) -> None:
        for task in self._tasks:
            loop.call_later(LAST_S, task.cancel)

    async def _read(self, reader: Reader) -> None:
        try:
            async with self._gate:
                connection = await connect(
                    self._url, compression=None, ping_interval=None, max_size=None, proxy=None
                )
                await self._begin(reader, connection)
            async with connection:
                # The last commit changes rows, so that a reader never waits for nothing.
                while self._last is None or reader.snapshot < self._last:
                    await self._next(reader, connection)
        except (asyncio.CancelledError, Exception) as error:  # noqa: BLE001  # told in the figures
            reader.wrong = f"{type(error).__name__}: {error}"
            self._ready.set()

    async def _begin(self, reader: Reader, connection: ClientConnection) -> None:
        while reader.snapshot == 0:
            await self._next(reader, connection)
        if all(one.snapshot for one in self._readers):
            self._ready.set()

    async def _next(self, reader: Reader, connection: ClientConnection) -> None:
        text = await connection.recv(decode=True)
        at = time.time()
        event = self._parsed.get(text)
        if event is None:
            event = json.loads(text)
            if len(self._parsed) > TOGETHER:
                self._parsed.clear()
            self._parsed[text] = event
        if event["type"] != "heartbeat":
            reader.take(event, at)


@dataclass
class Writer:
    """Commits to the table, and when each commit was done."""

    warehouse: str
    done: dict[int, float] = field(default_factory=dict)

    def commit(self, number: int) -> None:
        ids = changed_by(number)
        now = time.time_ns() // 1_000_000
        columns = {"id": ids, "number": [number] * len(ids), "written_ms": [now] * len(ids)}
        batch = pa.record_batch({name: pa.array(v, pa.int64()) for name, v in columns.items()})
        options = {"warehouse": self.warehouse}
        writer = TableWriter(options, TABLE, "benchmark")
        writer.write(batch)
        messages = writer.prepare(number)
        writer.close()
        TableCommitter(options, TABLE, "benchmark").commit(number, messages)
        self.done[snapshot_of(number)] = time.time()

    def run(self, commits: int, pace_s: float) -> None:
        """Commits 1, 2, …, each due a fixed time after the one before."""
        due = time.monotonic()
        for number in range(1, commits + 1):
            due += pace_s
            time.sleep(max(0.0, due - time.monotonic()))
            self.commit(number)


@contextmanager
def serving(folder: Path, warehouse: str) -> Iterator[tuple[int, psutil.Process]]:
    """A server of the warehouse: its port, and its process."""
    port_file, log = folder / "port", folder / "serve.log"
    command = [str(Path(sys.executable).with_name("streamhouse")), "serve", "--port", "0"]
    command += ["--warehouse", warehouse, "--port-file", str(port_file)]
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out)
    try:
        deadline = time.monotonic() + START_S
        while not (port_file.exists() and port_file.read_text().strip()):
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"the server does not start: {log.read_text()[-2000:]}")
            time.sleep(0.05)
        yield int(port_file.read_text()), psutil.Process(process.pid)
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def reading(url: str, count: int, results: Path) -> Iterator[subprocess.Popen[str]]:
    """The process of the readers, once each has the table."""
    command = [sys.executable, __file__, "--read", url, "--clients", str(count)]
    process = subprocess.Popen(
        [*command, "--results", str(results)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        if process.stdout.readline().strip() != "ready":
            raise SystemExit("the readers did not come to read")
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


@dataclass(frozen=True)
class Used:
    """What the server has used: processor time for the changes, memory, rows that it encoded."""

    cpu_s: float
    rss: int
    rows: float


def cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def largest_rss(process: psutil.Process) -> int:
    """The largest resident size so far in bytes, as the system counts it where it does."""
    with_peak = Path(f"/proc/{process.pid}/status")
    found = re.search(r"VmHWM:\s+(\d+) kB", with_peak.read_text()) if with_peak.exists() else None
    return int(process.memory_info().rss) if found is None else 1024 * int(found[1])


def rows_encoded(port: int) -> float:
    """How many changed rows the server has encoded, as its metrics tell."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    pattern = rf'^streamhouse_stream_rows_total{{view="{re.escape(TABLE)}"}} (\S+)$'
    found = re.search(pattern, text, re.MULTILINE)
    if found is None:
        raise SystemExit(f"the server's metrics have no rows of {TABLE}")
    return float(found[1])


def measure(clients: int, seconds: float, pace: float) -> list[dict[str, Any]]:
    """The four figures."""
    commits = max(1, round(seconds * pace))
    with tempfile.TemporaryDirectory(prefix="streamhouse-serve-bench-") as name:
        folder = Path(name)
        warehouse = str(folder / "warehouse")
        made = Warehouse(warehouse)
        made.create_database("shop")
        made.create_table("shop", "numbers", COLUMNS, ["id"], options={"bucket": "1"})
        writer, results = Writer(warehouse), folder / "results.npy"
        writer.commit(0)
        with serving(folder, warehouse) as (port, server):
            url = f"ws://127.0.0.1:{port}/views/{TABLE}/changes"
            with reading(url, clients, results) as readers:
                before = cpu_s(server)
                writer.run(commits, 1 / pace)
                assert readers.stdin is not None
                readers.stdin.write(f"{snapshot_of(commits)}\n")
                readers.stdin.flush()
                readers.wait(2 * LAST_S)
            used = Used(cpu_s(server) - before, largest_rss(server), rows_encoded(port))
        came = np.load(results)
    return metrics(clients, commits, came, writer.done, used)


def metrics(
    clients: int,
    commits: int,
    came: np.ndarray[Any, np.dtype[np.float64]],
    done: dict[int, float],
    used: Used,
) -> list[dict[str, Any]]:
    delays = [
        at - done[snapshot]
        for _, before, after, at in came.tolist()
        for snapshot in range(int(before) + 1, int(after) + 1)
    ]
    pairs = clients * commits
    if not delays:
        raise SystemExit("no change came to any reader")
    p50, p99 = (float(np.percentile(delays, percent)) for percent in (50, 99))
    load = round(os.getloadavg()[0], 1)
    return [
        {
            "name": "every_change",
            # Never rounded up to all.
            "ratio": 1.0 if len(delays) == pairs else min(0.9999, round(len(delays) / pairs, 4)),
            "goal": 1.0,
            "unit": "reader × commit pairs that came in order, of all",
            "clients": clients,
            "commits": commits,
            "events": len(came),
        },
        {
            "name": "delay_p99",
            "ratio": round(GOAL_S / max(p99, 0.001), 3),
            "goal": 1.0,
            "unit": "1 s over the 99th percentile of the seconds from commit to reader",
            "p50_s": round(p50, 3),
            "p99_s": round(p99, 3),
            "max_s": round(max(delays), 3),
            "server_cpu_s": round(used.cpu_s, 2),
            "load_1min": load,
        },
        {
            "name": "server_memory",
            "ratio": round(GOAL_BYTES / used.rss, 3),
            "goal": 1.0,
            "unit": "1 GiB over the server's largest resident size",
            "rss_mb": round(used.rss / 2**20),
        },
        {
            "name": "rows_read_once",
            "ratio": round(CHANGED * commits / used.rows, 4) if used.rows else 0.0,
            "goal": 1.0,
            "unit": "rows that commits changed, over rows that the server encoded",
            "committed": CHANGED * commits,
            "encoded": int(used.rows),
        },
    ]


def main() -> int:
    text = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=text)
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--commits", type=float, default=2.0, help="a second")
    parser.add_argument("--json", action="store_true", help="print one JSON object a figure")
    # How the benchmark starts the process of its readers.
    parser.add_argument("--read", help=argparse.SUPPRESS)
    parser.add_argument("--results", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.read is not None:
        uvloop.run(read(given.read, given.clients, given.results))
        return 0
    found = measure(given.clients, given.seconds, given.commits)
    for one in found:
        if given.json:
            print(json.dumps(one), flush=True)
        else:
            rest = [f"{key} {value}" for key, value in one.items() if key not in _HEAD]
            print(f"{one['name']:15} {one['ratio']:8} {one['goal']:5}   {', '.join(rest)}")
    return 0 if found[0]["ratio"] == 1.0 else 1


async def read(url: str, count: int, results: Path) -> None:
    await Readers(url, count).run(results)


_HEAD = ("name", "ratio", "goal", "unit")

if __name__ == "__main__":
    sys.exit(main())
