"""Queries of Nexmark at a steady rate, here and in Flink, in turn on this machine.

A pipeline writes `--rate` events a second into the three tables of `nexmark.py`, another one keeps
a query over them; the second one is Flink, or Streamhouse. Flink checkpoints every second, looks
for new snapshots five times a second, and has mini-batches of 0.2 s; else as in `nexmark.py`.

freshness_ms  the age of a bid when the first snapshot of the result that has it, or a later one,
              could be read; from its creation, so with the way into the tables
recovery_s    from a SIGKILL of our driver, which is started again at once, or of Flink's
              TaskManager, of which another one starts at once, to a result with a later bid
memory_mb     the most that the query's processes had at once: the driver, its JVM and workers, or
              JobManager and TaskManager; anonymous and shared pages
equal         the rows of the bounded query, once no more events arrive

`ratio` is Flink's p50 of the freshness over ours.

    .venv/bin/python -m benchmarks.nexmark_live [--json] [--queries q0,q9] [--seconds 30]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.compute as pc
from benchmarks.flink_cluster.cluster import FlinkCluster
from benchmarks.lookup import memory_mb
from benchmarks.nexmark import COLUMNS, FLINK, QUERIES, Events
from benchmarks.views import Tables

from streamhouse.demo.driver import Driver
from streamhouse.demo.latency import Latencies, SnapshotClock
from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.paimon.read.table import Table
from streamhouse.runtime.execute import execute

BIDS = {"q0": "dateTime", "q9": "bid_dateTime", "q18": "dateTime", "q20": "bid_dateTime"}
"""Queries whose rows have the time of a bid, with the column of it."""
RATE, SKIP_S, WAIT_S, QUIET_S = 5_000, 10.0, 180.0, 6.0
GOAL = 1.0
_TICK_MS = 10.0
_RECENT = 50
_LIVE = (
    ("checkpointing.interval' = '3s'", "checkpointing.interval' = '1s'"),
    ("discovery-interval' = '1s'", "discovery-interval' = '200ms'"),
    ("allow-latency' = '2s'", "allow-latency' = '200ms'"),
)
TABLES = "CREATE DATABASE nexmark; USE nexmark; " + "; ".join(
    f"CREATE TABLE {name} ({columns}, WATERMARK FOR `dateTime` AS `dateTime` - INTERVAL '4' SECOND)"
    " WITH ('bucket' = '-1')"
    for name, columns in COLUMNS.items()
)


class LiveEvents(Events):
    """A warehouse with the tables of events, which a pipeline fills while `with` lasts."""

    def __init__(self, folder: Path, rate: int) -> None:
        Tables.__init__(self, str(folder / "warehouse"), TABLES)
        rows = ", ".join(f"{name} ROW<{columns}>" for name, columns in COLUMNS.items())
        inserts = "".join(
            f"INSERT INTO {name} SELECT made.{name}.* FROM made WHERE event_type = {number}; "
            for number, name in enumerate(COLUMNS)
        )
        script = folder / "events.sql"
        script.write_text(
            f"USE nexmark; CREATE TEMPORARY TABLE made (event_type INT, {rows}) WITH ('connector' "
            f"= 'nexmark', 'rows-per-second' = '{rate}'); {inserts}"
        )
        self._driver = driver(script, self, folder)

    def __enter__(self) -> LiveEvents:
        self._driver.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._driver.stop()


def driver(script: Path, events: Events, folder: Path) -> Driver:
    """Runs a script as a pipeline, which keeps its checkpoints in `folder`."""
    arguments = ["--warehouse", events.warehouse.path, "--checkpoints", str(folder / "state")]
    return Driver([script], arguments, script.with_suffix(".log"))


class Watched:
    """What a result shows: the ages of bids, and how soon a bid after a time is in it."""

    def __init__(self, events: Events, view: str, column: str) -> None:
        self._column, self._newest_ms = column, 0
        self._seen: list[tuple[float, int]] = []
        self.ages = Latencies(SKIP_S, _RECENT)
        self.measures = True
        address = TableAddress(dict(events.warehouse.options), f"nexmark.{view}")
        self._clock = SnapshotClock(address, self._committed)

    def _committed(self, table: Table, number: int, seen_s: float) -> None:
        found = [pc.max(batch.column(self._column)) for batch in table.read([self._column], number)]
        times = [value.cast(pa.timestamp("ms")).value for value in found if value.is_valid]
        newest, before = max(times, default=0), self._newest_ms
        if newest <= before:
            return
        self._newest_ms = newest
        self._seen.append((seen_s, newest))
        if before and self.measures:
            self.ages.add(np.arange(newest, before, -_TICK_MS), seen_s * 1000)

    def after(self, time_s: float) -> float:
        """When a bid that was made after a time was seen (both epoch seconds)."""
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            for seen, newest in list(self._seen):
                if newest > time_s * 1000:
                    return seen
            time.sleep(0.02)
        raise SystemExit(f"the result shows no new bid within {WAIT_S:.0f} s")

    def stop(self) -> None:
        self._clock.stop()


def observed(
    events: Events, name: str, view: str, seconds: float, kill: Callable[[], None],
    processes: Callable[[], list[psutil.Process]],
) -> dict[str, Any]:  # fmt: skip
    """The figures of a query that runs; `kill` kills and starts it again."""
    watched, memory = Watched(events, view, BIDS[name]), 0.0
    try:
        watched.after(time.time())
        until = time.monotonic() + SKIP_S + seconds
        while time.monotonic() < until:
            with contextlib.suppress(psutil.Error):
                memory = max(memory, sum(memory_mb(each.pid) for each in processes()))
            time.sleep(0.2)
        watched.measures = False
        killed = time.time()
        kill()
        recovery = watched.after(killed) - killed
    finally:
        watched.stop()
    return {
        "freshness_ms": watched.ages.percentiles(),
        "recovery_s": round(recovery, 2),
        "memory_mb": round(memory),
    }


def settled(events: Events, view: str) -> None:
    """Wait until a result does not change any more."""
    ended, since = 0, time.monotonic()
    while time.monotonic() - since < QUIET_S:
        time.sleep(0.5)
        if (last := events.ended_ms(view)) != ended:
            ended, since = last, time.monotonic()


def ours(folder: Path, name: str, given: argparse.Namespace) -> dict[str, Any]:
    """The figures of a query in Streamhouse."""
    view = f"ours_{name}"
    with LiveEvents(folder, given.rate) as events:
        script = folder / f"{name}.sql"
        text = QUERIES[name].replace("TABLE {view}", f"TABLE IF NOT EXISTS {view}")
        script.write_text(f"USE nexmark; {text.replace('{view}', view)}")
        query = driver(script, events, folder)
        query.start()

        def again() -> None:
            query.kill(alone=True)
            query.start()

        try:
            found = observed(events, name, view, given.seconds, again, lambda: _of(script))
            events.__exit__()
            settled(events, view)
        finally:
            query.stop()
        return {**found, "equal": events.is_equal(name, view)}


def flinks(flink: FlinkCluster, folder: Path, name: str, given: argparse.Namespace) -> Any:
    """The figures of a query in Flink."""
    view = f"flink_{name}"
    with LiveEvents(folder, given.rate) as events:
        text = FLINK.format(warehouse=events.warehouse.path)
        for slow, live in _LIVE:
            text = text.replace(slow, live)
        create, insert = QUERIES[name].replace("{view}", view).split(";\n", 1)
        execute(events.warehouse.options, f"USE nexmark; {create}")
        job = flink.submit(text + insert)
        try:
            found = observed(events, name, view, given.seconds, flink.kill, flink.processes)
        finally:
            flink.cancel(job)
        return found


def _of(script: Path) -> list[psutil.Process]:
    """The processes of a pipeline."""
    own = psutil.Process().children()
    roots = [each for each in own if str(script) in each.cmdline()]
    return [*roots, *(below for each in roots for below in each.children(recursive=True))]


def measure(given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """A line for each query, then that of the median."""
    ratios = []
    with tempfile.TemporaryDirectory(prefix="streamhouse-nexmark-") as place:
        for name in given.queries:
            folders = [Path(place) / f"{engine}_{name}" for engine in ("ours", "flink")]
            for folder in folders:
                folder.mkdir()
            own = ours(folders[0], name, given)
            with FlinkCluster(given.folder) as flink:
                theirs = flinks(flink, folders[1], name, given)
            ratio = round(theirs["freshness_ms"]["p50"] / own["freshness_ms"]["p50"], 2)
            ratios.append(ratio)
            yield {
                "name": f"{name}_fresh", "ratio": ratio, "goal": GOAL, "streamhouse": own,
                "flink": theirs,
            }  # fmt: skip
    yield {"name": "median_fresh", "ratio": statistics.median(ratios), "goal": GOAL}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    cache = Path.home() / ".cache/streamhouse/flink-peer"
    parser.add_argument("--folder", type=Path, default=cache, help="where Flink is kept")
    parser.add_argument("--queries", type=lambda text: text.split(","), default=list(BIDS))
    parser.add_argument("--rate", type=int, default=RATE, help="events a second")
    parser.add_argument("--seconds", type=float, default=30.0, help="how long ages are measured")
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    for line in measure(given):
        print(json.dumps(line) if given.json else _text(line), flush=True)
    return 0


def _text(line: Mapping[str, Any]) -> str:
    rest = {key: value for key, value in line.items() if key not in ("name", "ratio", "goal")}
    return f"{line['name']:14} {line['ratio']}  {rest or ''}"


if __name__ == "__main__":
    sys.exit(main())
