"""The queries of Nexmark over a backlog, here and in Flink, in turn on this machine.

`--events` events of Nexmark lie in three tables of Paimon without keys. Each query (`nexmark.sql`)
is one INSERT into a Paimon table, the same for both. A clock starts when Flink's job runs, or when
the script is given to the runtime of Streamhouse, whose Spark has started; it stops at the commit
of the last rows. The last events of all tables are a day later, so that all windows before close.

Flink runs with parallelism 2, splits of 4 MB, mini-batches (2 s, 50,000 rows), split distinct
aggregates, object reuse, and checkpoints every 3 s, at which its tables are committed. Its job has
ended if nothing is committed for 15 s.

`ratio` is our events/s over those of Flink; q6 has none, as Flink refuses it. `equal`: our rows are
those of the bounded query. `rows` are those of both tables. Where equal times or prices make
several results right, as in q18 and q19, Flink's rows may be others.

    .venv/bin/python -m benchmarks.nexmark [--quick] [--json] [--queries q4,q7]

`--page` writes the figures into a page with the marks of `_MARKS`, as `docs/reference/nexmark.md`.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.backlog import run_script
from benchmarks.flink_cluster.cluster import JOB_S, FlinkCluster
from benchmarks.lookup import memory_mb, workers
from benchmarks.views import Tables

from streamhouse.paimon.read.table import Table
from streamhouse.runtime.execute import execute

GOAL, MEDIAN_GOAL = 1.0, 3.0
QUERIES = dict(
    re.findall(
        r"-- name: (\w+)\n(.*?;\n.*?;)\n",
        Path(__file__).with_suffix(".sql").read_text(),
        re.DOTALL,
    )
)
EVENTS, QUICK_EVENTS = 10_000_000, 500_000
CLOSED = ("q5", "q7", "q8", "q11")
"""They return each window once, when it is closed; that of the last events is not."""
REFUSED = ("q6",)
"""Flink refuses them: its OVER takes no updates."""
_MARKS = "<!-- figures -->\n", "<!-- end of figures -->\n"
_LATER = " + INTERVAL '1' DAY"
RATE, QUIET_S = 10_000, 15.0
COLUMNS = {
    "person": "id BIGINT, name STRING, emailAddress STRING, creditCard STRING, city STRING, "
    "state STRING, `dateTime` TIMESTAMP(3), extra STRING",
    "auction": "id BIGINT, itemName STRING, description STRING, initialBid BIGINT, reserve BIGINT, "
    "`dateTime` TIMESTAMP(3), expires TIMESTAMP(3), seller BIGINT, category BIGINT, extra STRING",
    "bid": "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, "
    "`dateTime` TIMESTAMP(3), extra STRING",
}
FLINK = """
SET 'table.local-time-zone' = 'UTC';
SET 'parallelism.default' = '2';
SET 'execution.checkpointing.interval' = '3s';
SET 'pipeline.object-reuse' = 'true';
SET 'table.exec.source.idle-timeout' = '2s';
SET 'table.exec.mini-batch.enabled' = 'true';
SET 'table.exec.mini-batch.allow-latency' = '2s';
SET 'table.exec.mini-batch.size' = '50000';
SET 'table.optimizer.distinct-agg.split.enabled' = 'true';
CREATE CATALOG lake WITH ('type' = 'paimon', 'warehouse' = 'file://{warehouse}',
  'table-default.source.split.target-size' = '4mb',
  'table-default.continuous.discovery-interval' = '1s');
USE CATALOG lake;
USE nexmark;
"""


class Events(Tables):
    """A warehouse with the events, and with the tables of the queries."""

    def __init__(self, folder: str, events: int) -> None:
        super().__init__(folder, "CREATE DATABASE nexmark;")
        rows = ", ".join(f"{name} ROW<{columns}>" for name, columns in COLUMNS.items())
        statements = [
            f"USE nexmark; CREATE TEMPORARY TABLE made (event_type INT, {rows}) WITH ('connector' "
            f"= 'nexmark', 'first-event.rate' = '{RATE}', 'events.num' = '{events}')",
            # So that the tables have the times of one clock.
            "CREATE TABLE events WITH ('bucket' = '-1') AS SELECT * FROM made",
        ]
        for number, (name, columns) in enumerate(COLUMNS.items()):
            fields = re.findall(r"`?(\w+)`? (?:BIGINT|STRING|TIMESTAMP)", columns)
            last = ", ".join(
                f"MAX(`{field}`){_LATER if field == 'dateTime' else ''}" for field in fields
            )
            statements += [
                f"CREATE TABLE {name} ({columns}, WATERMARK FOR `dateTime` AS `dateTime` - "
                "INTERVAL '4' SECOND) WITH ('bucket' = '-1', 'target-file-size' = '16mb')",
                f"INSERT INTO {name} SELECT {', '.join(f'{name}.`{f}`' for f in fields)} "
                f"FROM events WHERE event_type = {number}",
                f"INSERT INTO {name} SELECT {last} FROM {name}",
            ]
        before = "`dateTime` < (SELECT MAX(`dateTime`) FROM bid) - INTERVAL '1' HOUR"
        statements += [
            f"CREATE VIEW {name}_before AS SELECT * FROM {name} WHERE {before}" for name in COLUMNS
        ]
        statements += [
            "CREATE TEMPORARY TABLE numbers (`key` BIGINT) WITH ('connector' = 'datagen', "
            "'fields.key.kind' = 'sequence', 'fields.key.start' = '0', 'fields.key.end' = '9999')",
            "CREATE TABLE side_input AS SELECT `key`, CAST(`key` AS STRING) AS `value` "
            "FROM numbers",
            "DROP TABLE events",
        ]
        execute(self.warehouse.options, "; ".join(statements))

    def result(self, view: str) -> Table:
        return self.warehouse.table(f"nexmark.{view}")

    def ended_ms(self, view: str) -> int:
        """The time of the last commit of rows to a table, in ms; 0 if there is none."""
        table = self.result(view)
        numbers = range(table.latest_snapshot_id() or 0, 0, -1)
        found = (table.snapshot(number) for number in numbers)
        return next((each.time_ms for each in found if each.commit_kind == "APPEND"), 0)

    def count(self, view: str) -> int:
        (row,) = self.rows(f"SELECT COUNT(*) AS n FROM nexmark.{view}")
        return int(row["n"])

    def is_equal(self, name: str, view: str) -> bool:
        """Whether a table has the rows of its bounded query."""
        return self.has_rows_of(view, select_of(name, "_before" if name in CLOSED else ""))

    def has_rows_of(self, view: str, select: str) -> bool:
        """Whether a table has the rows of a SELECT."""
        kept = f"SELECT * FROM nexmark.{view}"
        wrong = f"({kept} EXCEPT ALL {select}) UNION ALL ({select} EXCEPT ALL {kept})"
        return not self.rows(f"SELECT * FROM ({wrong}) LIMIT 1")


def select_of(name: str, end: str = "") -> str:
    """The SELECT of a query; `end`: that of the names of the tables of events that it reads."""
    select = str(QUERIES[name]).partition(";\n")[2].partition("\n")[2].rstrip(";")
    for table in (*COLUMNS, "side_input"):
        read = f"{table}{end if table in COLUMNS else ''}"
        select = re.sub(rf"(?i)(FROM|JOIN|TABLE|\bA,)\s+{table}\b", rf"\1 nexmark.{read}", select)
    return select


def ours(events: Events, name: str, total: int) -> dict[str, Any]:
    """The figures of a query in a process of its own."""
    view = f"ours_{name}"
    command = [sys.executable, "-m", "benchmarks.nexmark", "--one", events.warehouse.path, name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        memory = 0.0
        while process.poll() is None:
            memory = max(memory, *(memory_mb(pid) for pid in (process.pid, *workers(process.pid))))
            time.sleep(0.2)
        assert process.stdout is not None
        lines = process.stdout.read().splitlines()
    if process.returncode:
        raise SystemExit(f"{name}: the run failed")
    seconds = (events.ended_ms(view) - json.loads(lines[-1])) / 1000
    return {
        "events_per_s": round(total / seconds),
        "seconds": round(seconds, 2),
        "rows": events.count(view),
        "memory_mb": round(memory),
        "equal": events.is_equal(name, view),
    }


def one_run(warehouse: str, name: str) -> None:
    """Run a query until it has caught up; prints when its clock started, in ms."""
    from streamhouse.runtime.spark.session import start_session
    from streamhouse.runtime.spark.settings import SparkOptions

    options = SparkOptions("local[2]", {})
    start_session(name, options)
    started = time.time_ns() // 1_000_000
    text = f"USE nexmark; {QUERIES[name].replace('{view}', f'ours_{name}')}"
    run_script(text, name, warehouse, spark=options)
    print(started)


def flinks(flink: FlinkCluster, events: Events, name: str, total: int) -> dict[str, Any]:
    """The figures of a query in Flink."""
    view = f"flink_{name}"
    text = FLINK.format(warehouse=events.warehouse.path) + QUERIES[name].replace("{view}", view)
    job = flink.submit(text)
    ended, since, deadline = 0, time.monotonic(), time.monotonic() + JOB_S
    while time.monotonic() - since < QUIET_S or not ended:
        time.sleep(1)
        state = flink.job(job)["state"]
        if state in ("FAILED", "CANCELED") or time.monotonic() > deadline:
            flink.cancel(job)
            return {"state": state}
        if (last := events.ended_ms(view)) != ended:
            ended, since = last, time.monotonic()
    seconds = (ended - float(flink.job(job)["timestamps"]["RUNNING"])) / 1000
    flink.cancel(job)
    return {
        "events_per_s": round(total / seconds),
        "seconds": round(seconds, 2),
        "rows": events.count(view),
    }


def measure(folder: Path, given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """A line for each query, then that of the median."""
    ratios = []
    with tempfile.TemporaryDirectory(prefix="streamhouse-nexmark-") as place:
        events = Events(f"{place}/warehouse", given.events)
        own = {name: ours(events, name, given.events) for name in given.queries}
        with FlinkCluster(folder) as flink:
            # The first job of a JVM is slower.
            flinks(flink, events, "q0", given.events)
            execute(events.warehouse.options, "DROP TABLE nexmark.flink_q0")
            for name in given.queries:
                refused = name in REFUSED
                theirs = {} if refused else flinks(flink, events, name, given.events)
                line = _line(name, own[name], theirs)
                ratios += [line["ratio"]] if line["ratio"] else []
                yield line
    yield {"name": "median", "ratio": statistics.median(ratios), "goal": MEDIAN_GOAL}


def _line(name: str, own: Mapping[str, Any], theirs: Mapping[str, Any]) -> dict[str, Any]:
    both = "events_per_s" in theirs
    ratio = round(own["events_per_s"] / theirs["events_per_s"], 2) if both else None
    return {"name": name, "ratio": ratio, "goal": GOAL, "streamhouse": own, "flink": theirs}


def write_page(page: Path, lines: list[dict[str, Any]], events: int) -> None:
    """Write the figures of all queries as a table between the marks of a page."""
    *queries, median = lines
    rows = [
        f"Measured on {time.strftime('%Y-%m-%d')} with {events:,} events. The median is "
        f"**{median['ratio']:.1f} times** Flink.",
        "",
        "| query | Streamhouse, events/s | Flink, events/s | | memory of our workers | equal |",
        "|---|---|---|---|---|---|",
    ]
    for line in queries:
        own, theirs = line["streamhouse"], line["flink"].get("events_per_s")
        shown = ("refused" if line["name"] in REFUSED else "failed", "")
        if theirs is not None:
            shown = f"{theirs:,}", f"{line['ratio']:.1f} times"
        rows.append(
            f"| {line['name']} | {own['events_per_s']:,} | {shown[0]} | {shown[1]} | "
            f"{own['memory_mb']} MB | {'yes' if own['equal'] else '**no**'} |"
        )
    before, rest = page.read_text().split(_MARKS[0])
    after = rest.split(_MARKS[1])[1]
    page.write_text("".join([before, _MARKS[0], *(f"{row}\n" for row in rows), _MARKS[1], after]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    cache = Path.home() / ".cache/streamhouse/flink-peer"
    parser.add_argument("--folder", type=Path, default=cache, help="where Flink is kept")
    parser.add_argument("--events", type=int, default=EVENTS)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_EVENTS:,} events")
    parser.add_argument("--queries", type=lambda text: text.split(","), default=list(QUERIES))
    parser.add_argument("--page", type=Path, help="write the figures into this page")
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")
    parser.add_argument("--one", nargs=2, metavar=("WAREHOUSE", "QUERY"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        one_run(*given.one)
        return 0
    if given.quick:
        given.events = QUICK_EVENTS
    given.folder.mkdir(parents=True, exist_ok=True)
    lines = []
    for line in measure(given.folder, given):
        lines.append(line)
        if given.json:
            print(json.dumps(line), flush=True)
        else:
            rest = {key: value for key, value in line.items() if key not in ("name", "ratio")}
            print(f"{line['name']:8} {line['ratio']}  {rest}", flush=True)
    if given.page:
        write_page(given.page, lines, given.events)
    return 0


if __name__ == "__main__":
    sys.exit(main())
