"""Windows and joins in time as views, against DuckDB and against the same without time.

`events` has `--events` rows of one hour, of 100,000 keys and 100 pages; `visits` has `--visits`
rows of 100,000 keys in clusters, and `answers` one for each of them, within two minutes.

tumble    COUNT(*) by key in windows of an hour. `ratio` is the time of the same SELECT in DuckDB,
          by two threads over the data files, over that of the view's first refresh.
hop       COUNT(*) by page in windows of an hour that begin each minute. `ratio` is the time of the
          same by TUMBLE of an hour over ours.
session   COUNT(*) of the sessions of each key. `ratio`: COUNT(*) by key over ours.
interval  COUNT(*) by page of the answers within a minute. `ratio`: all answers, over ours.
fresh     For `--seconds`, 1,000 events a second into windows of a minute; from each commit to the
          commit of the view that shows it. `ratio` is 300 ms over the median.

Each time is the median of `--runs` views, after one that warms up: from CREATE to the commit of the
first refresh.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.lookup import Keys, chunks
from benchmarks.views import EPOCH_MS, FRESH_MS, Pipeline, Tables, delays, settle, show

from streamhouse.runtime.execute import execute

GOALS = {"tumble": 0.3, "hop": 0.5, "session": 0.3, "interval": 0.3, "fresh": 1.0}
HOUR_MS = 3_600_000
KEYS, PAGES, CLUSTERS = 100_000, 100, 2
START_MS = EPOCH_MS - EPOCH_MS % HOUR_MS
TABLES = """
CREATE DATABASE IF NOT EXISTS shop; USE shop;
CREATE TABLE events (id BIGINT, k INT, page INT, ts TIMESTAMP(3)) WITH ('bucket' = '-1');
CREATE TABLE visits (id BIGINT, k INT, page INT, ts TIMESTAMP(3)) WITH ('bucket' = '-1');
CREATE TABLE answers (id BIGINT, ts TIMESTAMP(3)) WITH ('bucket' = '-1');
CREATE TABLE live (id BIGINT, k INT, page INT, ts TIMESTAMP(3)) WITH ('bucket' = '-1');
"""
_WINDOWED = (
    "SELECT {0}, window_start, window_end, COUNT(*) AS n FROM {1} GROUP BY {0}, window_start, "
    "window_end"
)
_TUMBLE = "TUMBLE(TABLE shop.{}, DESCRIPTOR(ts), INTERVAL '1' {})"
_JOIN = (
    "SELECT v.page, COUNT(*) AS n FROM shop.visits v JOIN shop.answers a ON v.id = a.id{} "
    "GROUP BY v.page"
)
TUMBLE = _WINDOWED.format("k", _TUMBLE.format("events", "HOUR"))
PAGES_BY_HOUR = _WINDOWED.format("page", _TUMBLE.format("events", "HOUR"))
HOP = _WINDOWED.format(
    "page", "HOP(TABLE shop.events, DESCRIPTOR(ts), INTERVAL '1' MINUTE, INTERVAL '1' HOUR)"
)
SESSION = _WINDOWED.format(
    "k", "SESSION(TABLE shop.visits PARTITION BY k, DESCRIPTOR(ts), INTERVAL '10' MINUTE)"
)
GROUP = "SELECT k, MIN(ts) AS first_, MAX(ts) AS last_, COUNT(*) AS n FROM shop.visits GROUP BY k"
INTERVAL = _JOIN.format(" AND a.ts BETWEEN v.ts AND v.ts + INTERVAL '1' MINUTE")
DUCKDB = (
    "SELECT k, time_bucket(INTERVAL 1 HOUR, ts) AS s, count(*) AS n FROM read_parquet({}) GROUP BY "
    "ALL"
)


class Lab(Tables):
    """One warehouse with events, visits and answers."""

    def __init__(self, folder: str, events: int, visits: int) -> None:
        super().__init__(folder, TABLES)
        self._views, self._live = 0, 0
        hour = (_rows(ids, (ids * 104_729) % HOUR_MS) for ids in chunks(np.arange(events)))
        self.write("events", hour)
        self.write("visits", (_rows(ids, _clustered(ids, visits)) for ids in _chunks(visits)))
        self.write("answers", (_answers(ids, visits) for ids in _chunks(visits)))

    def refresh(self, query: str) -> float:
        """The seconds until a new view has the rows of a query."""
        self._views += 1
        started, name = time.perf_counter(), f"shop.view_{self._views}"
        execute(
            self.warehouse.options,
            f"CREATE MATERIALIZED VIEW {name} AS {query}; ALTER MATERIALIZED VIEW {name} REFRESH",
        )
        seconds = time.perf_counter() - started
        assert self.rows(f"SELECT COUNT(*) AS n FROM {name}")[0]["n"]
        return seconds

    def limit(self, runs: int) -> float:
        """The seconds of counting in hours in DuckDB over the data files."""
        sql, times = DUCKDB.format(self.files("events")), []
        with duckdb.connect(config={"threads": 2}) as db:
            for _ in range(runs + 1):
                started = time.perf_counter()
                db.sql(sql).to_arrow_table()
                times.append(time.perf_counter() - started)
        return statistics.median(times[1:])

    def happen(self, count: int) -> tuple[str, int, int]:
        """Commit events of now; their table, its snapshot, and the time of the commit in ms."""
        ids = np.arange(self._live, self._live + count)
        self._live += count
        now = np.full(count, int(time.time() * 1000) - START_MS)
        time_ms = self.write("live", iter([_rows(ids, now)]))
        return "live", self.snapshot("live"), time_ms


def _chunks(rows: int) -> Iterator[Keys]:
    return chunks(np.arange(rows))


def _clustered(ids: Keys, rows: int) -> Keys:
    """Times of the rows of each key in clusters of half an hour, twelve hours apart."""
    cluster = ids // (max(1, rows // CLUSTERS))
    return cluster * 12 * HOUR_MS + (ids * 104_729) % (HOUR_MS // 2)


def _rows(ids: Keys, ms: Keys) -> pa.RecordBatch:
    return pa.record_batch(
        {
            "id": pa.array(ids),
            "k": pa.array((ids * 7919 % KEYS).astype(np.int32)),
            "page": pa.array((ids * 7919 % PAGES).astype(np.int32)),
            "ts": pa.array(ms + START_MS).cast(pa.timestamp("ms")),
        }
    )


def _answers(ids: Keys, rows: int) -> pa.RecordBatch:
    ms = _clustered(ids, rows) + ids * 37 % 120_000
    times = pa.array(ms + START_MS).cast(pa.timestamp("ms"))
    return pa.record_batch({"id": pa.array(ids), "ts": times})


def figures(folder: Path, given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    lab = Lab(str(folder / "warehouse"), given.events, given.visits)

    def seconds(query: str) -> float:
        return statistics.median([lab.refresh(query) for _ in range(given.runs + 1)][1:])

    yield _goal("tumble", lab.limit(given.runs), seconds(TUMBLE))
    yield _goal("hop", seconds(PAGES_BY_HOUR), seconds(HOP))
    yield _goal("session", seconds(GROUP), seconds(SESSION))
    yield _goal("interval", seconds(_JOIN.format("")), seconds(INTERVAL))
    yield _fresh(lab, folder, given)


def _goal(name: str, limit: float, seconds: float) -> dict[str, Any]:
    return {
        "name": name,
        "ratio": round(limit / seconds, 3),
        "goal": GOALS[name],
        "limit_s": round(limit, 3),
        "view_s": round(seconds, 3),
    }


def _fresh(lab: Lab, folder: Path, given: argparse.Namespace) -> dict[str, Any]:
    query = _WINDOWED.format("k", _TUMBLE.format("live", "MINUTE"))
    pipeline = Pipeline(lab, folder, "minutes", f"CREATE MATERIALIZED VIEW minutes AS {query};")
    try:
        lab.happen(100)
        pipeline.refreshed(0)
        settle(lab, "minutes")
        first, started, commits = lab.snapshot("minutes"), time.monotonic(), []
        while time.monotonic() - started < given.seconds:
            commits.append(lab.happen(100))
            time.sleep(max(0.0, started + 0.1 * len(commits) - time.monotonic()))
        settle(lab, "minutes")
        times = delays(lab, pipeline, "minutes", first, commits)
    finally:
        pipeline.stop()
    median = statistics.median(times)
    return {
        "name": "fresh",
        "ratio": round(FRESH_MS / median, 3),
        "goal": GOALS["fresh"],
        "median_ms": median,
        "p95_ms": float(np.percentile(times, 95)),
    }


def main() -> int:
    text = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=text)
    parser.add_argument("--events", type=int, default=5_000_000)
    parser.add_argument("--visits", type=int, default=2_000_000)
    parser.add_argument("--seconds", type=float, default=20.0, help="of `fresh`")
    parser.add_argument("--runs", type=int, default=3, help="views of each query")
    parser.add_argument("--json", action="store_true", help="print one JSON object a figure")
    given = parser.parse_args()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    with tempfile.TemporaryDirectory(prefix="streamhouse-windows-") as folder:
        show(figures(Path(folder), given), given.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
