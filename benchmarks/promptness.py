"""How soon a committed row can be read, where readers wait for a compaction.

A pipeline (`streamhouse run`) writes the same rows, 2 commits a second, into five tables, each by a
query of its own: all five, and what looks after them, in one driver. Of each table a reader (the
class behind `spark.readStream` and continuous queries over a table) follows the changes and notes
when a row came. A row's time is that time less the commit time of the snapshot of the
table that brought it, as the query's lineage tells.

lookup             `changelog-producer` = `lookup`
full-compaction    `changelog-producer` = `full-compaction`
full-compaction-1  the same, with `full-compaction.delta-commits` = 1
first-row          `merge-engine` = `first-row`, each key new
deletion-vectors   `deletion-vectors.enabled` = `true`

The other tables have 20,000 keys, so after 20 s at 500 rows a commit rows are updates. A row that
is overwritten before anybody could read it counts as read with the row that took its place.
`ratio` is 2 s over the median, the goal 1.0. The first 15 seconds after all readers have had rows
are left out. Rows that have not come two minutes after the last commit are a failure.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

import streamhouse
from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.changelog.stream_source import PaimonSource
from streamhouse.paimon.write.commit import TableCommitter
from streamhouse.paimon.write.table_writer import TableWriter
from streamhouse.runtime.state.lineage import SUFFIX, read_lineage
from streamhouse.source import ROW_KIND, Offset

GOAL_S = 2.0
KEYS = 20_000
START_S = 240.0
LAST_S = 120.0
POLL_S = 0.02
EVENTS = "CREATE TABLE events (n BIGINT, id BIGINT, amount DOUBLE) WITH ('bucket' = '-1');"
FIRST_ROW = "first-row"
KINDS = {
    "lookup": "'changelog-producer' = 'lookup'",
    "full-compaction": "'changelog-producer' = 'full-compaction'",
    "full-compaction-1": (
        "'changelog-producer' = 'full-compaction', 'full-compaction.delta-commits' = '1'"
    ),
    FIRST_ROW: "'merge-engine' = 'first-row'",
    "deletion-vectors": "'deletion-vectors.enabled' = 'true'",
}
Times = npt.NDArray[np.float64]
"""A time for each row, by its number: ms since 1970, NaN if there is none."""


def table_of(kind: str) -> str:
    return f"t_{kind.replace('-', '_')}"


def definition(kind: str) -> str:
    return (
        f"CREATE TABLE {table_of(kind)} (id BIGINT PRIMARY KEY NOT ENFORCED, n BIGINT, "
        f"amount DOUBLE) WITH ('bucket' = '1', {KINDS[kind]});"
    )


def query(kind: str) -> str:
    key = "n" if kind == FIRST_ROW else "id"
    return f"INSERT INTO {table_of(kind)} SELECT {key}, n, amount FROM events;"


class Writer:
    """Commits rows, numbered from 0, to the table of events at a steady pace until stopped."""

    def __init__(self, warehouse: str, rows: int, pace_s: float) -> None:
        self._options = {"warehouse": warehouse}
        self._rows = rows
        self._pace_s = pace_s
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.commits = 0

    def start(self) -> None:
        self._thread.start()

    @property
    def written(self) -> int:
        """How many rows have been committed."""
        return self.commits * self._rows

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        due = time.monotonic()
        while not self._stopped.wait(max(0.0, due - time.monotonic())):
            due = max(due + self._pace_s, time.monotonic())
            self._commit(self.commits)
            self.commits += 1

    def _commit(self, number: int) -> None:
        numbers = np.arange(number * self._rows, (number + 1) * self._rows)
        rows = {
            "n": pa.array(numbers),
            "id": pa.array(numbers % KEYS),
            "amount": pa.array((numbers % 1000).astype(np.float64)),
        }
        writer = TableWriter(self._options, "default.events", "driver")
        writer.write(pa.record_batch(rows))
        messages = writer.prepare(number)
        writer.close()
        TableCommitter(self._options, "default.events", "driver").commit(number, messages)


@dataclass
class Reader:
    """Follows the changes of one table, and notes when each row came."""

    source: PaimonSource
    offset: Offset = field(default_factory=lambda: {"snapshot": 0})
    newest: int = -1
    came: list[tuple[npt.NDArray[np.int64], float]] = field(default_factory=list)

    @classmethod
    def of(cls, warehouse: str, kind: str) -> Reader:
        return cls(PaimonSource({"warehouse": warehouse}, f"default.{table_of(kind)}", ["n"]))

    def poll(self) -> None:
        """Read what is new."""
        end = self.source.latest_offset(self.offset)
        if end == self.offset:
            return
        for partition in self.source.partitions(self.offset, end):
            for batch in self.source.read(partition):
                kinds = batch.column(batch.schema.get_field_index(ROW_KIND))
                rows = batch.filter(pc.is_in(kinds, value_set=pa.array(["+I", "+U"])))
                if rows.num_rows:
                    numbers = rows.column(0).to_numpy(zero_copy_only=False).astype(np.int64)
                    self.came.append((numbers, time.time() * 1000))
                    self.newest = max(self.newest, int(numbers.max()))
        self.source.committed(end)
        self.offset = end

    def readable(self, rows: int, keys: int) -> Times:
        """When each row could be read, or that of its key which took its place."""
        found = np.full(rows, np.nan)
        for numbers, at in reversed(self.came):
            found[numbers[numbers < rows]] = at
        for first in range((rows - 1) // keys * keys - keys, -1, -keys):
            after = found[first + keys : first + 2 * keys]
            here = found[first : first + len(after)]
            here[np.isnan(here)] = after[np.isnan(here)]
        return found


class Pipeline:
    """The command as a process."""

    def __init__(self, folder: Path, warehouse: str, kinds: list[str]) -> None:
        script = folder / "promptness.sql"
        script.write_text("\n".join(query(kind) for kind in kinds))
        self._log = folder / "promptness.log"
        command = [str(Path(sys.executable).with_name("streamhouse")), "run", str(script)]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*command, "--warehouse", warehouse], stdout=log, stderr=log
            )

    def check(self) -> None:
        if self._process.poll() is not None:
            raise SystemExit(f"the pipeline has ended: {self._log.read_text()[-2000:]}")

    def stop(self) -> None:
        """Stop it between two batches, with all of its lineage written."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def committed(warehouse: str, kind: str, rows_a_commit: int, rows: int) -> Times:
    """When the table's snapshot that brought each row was committed."""
    table = Warehouse(warehouse).table(f"default.{table_of(kind)}")
    own = [s for s in table.snapshots.newest_first() if s.commit_kind == "APPEND"]
    times = {(s.commit_user, s.commit_identifier): s.time_ms for s in own}
    found = np.full(rows, np.nan)
    first = 0
    address = TableAddress({"warehouse": warehouse}, table.identifier).auxiliary_table(SUFFIX)
    for batch in read_lineage(address):
        source = json.loads(batch["end_offset"])["source"]
        # The only writer of events makes a snapshot of each commit.
        last = int(source["snapshot"]) * rows_a_commit
        if last > first:
            found[first:last] = times[batch["query_id"], batch["batch_id"]]
        first = last
    return found


def measure(given: argparse.Namespace) -> list[dict[str, Any]]:
    """A figure for each kind of table."""
    kinds: list[str] = given.only
    with tempfile.TemporaryDirectory(prefix="streamhouse-promptness-") as folder:
        warehouse = str(Path(folder) / "warehouse")
        streamhouse.execute(warehouse, EVENTS + "".join(definition(kind) for kind in kinds))
        readers = {kind: Reader.of(warehouse, kind) for kind in kinds}
        writer = Writer(warehouse, given.rows, 1 / given.commits)
        pipeline = Pipeline(Path(folder), warehouse, kinds)
        try:
            writer.start()
            first, last = watch(given, readers, writer, pipeline)
        finally:
            writer.stop()
            pipeline.stop()
            for reader in readers.values():
                reader.source.close()
        metrics = []
        for kind, reader in readers.items():
            keys = max(KEYS, writer.written) if kind == FIRST_ROW else KEYS
            commits = committed(warehouse, kind, given.rows, writer.written)
            read = reader.readable(writer.written, keys)
            metrics.append(figure(kind, commits[first:last], read[first:last]))
    return metrics


def watch(
    given: argparse.Namespace, readers: dict[str, Reader], writer: Writer, pipeline: Pipeline
) -> tuple[int, int]:
    """Read until the time is over; the first row that counts, and the one after the last."""

    def until(what: Callable[[], bool], seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while not what() and time.monotonic() < deadline:
            pipeline.check()
            for reader in readers.values():
                reader.poll()
            time.sleep(POLL_S)
        return what()

    if not until(lambda: all(reader.newest >= 0 for reader in readers.values()), START_S):
        raise SystemExit(f"no rows in all tables after {START_S:g} s")
    until(lambda: False, given.aside)
    first = writer.written
    until(lambda: False, given.seconds)
    writer.stop()
    last = writer.written
    until(lambda: all(reader.newest >= last - 1 for reader in readers.values()), LAST_S)
    return first, last


def figure(kind: str, commits: Times, read: Times) -> dict[str, Any]:
    ages = (read - commits) / 1000
    counted = ages[~np.isnan(ages)]
    if not counted.size:
        raise SystemExit(f"{kind}: no row has become readable")
    seconds = (np.nanmax(commits) - np.nanmin(commits)) / 1000
    p50 = float(np.percentile(counted, 50))
    return {
        "name": kind,
        "ratio": round(GOAL_S / max(p50, 0.001), 3),
        "goal": 1.0,
        "unit": "2 s over the median of the seconds from commit to readable",
        "p50_s": round(p50, 3),
        "p99_s": round(float(np.percentile(counted, 99)), 3),
        "max_s": round(float(counted.max()), 3),
        "rows": int(counted.size),
        "missing": int(ages.size - counted.size),
        "commits_per_s": round((len(np.unique(commits)) - 1) / seconds, 2) if seconds else None,
        "load_1min": round(os.getloadavg()[0], 1),
    }


def main() -> int:
    text = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=text)
    parser.add_argument("--seconds", type=float, default=60.0, help="measured")
    parser.add_argument("--aside", type=float, default=15.0, help="seconds left out before")
    parser.add_argument("--rows", type=int, default=500, help="of a commit")
    parser.add_argument("--commits", type=float, default=2.0, help="a second")
    parser.add_argument("--only", nargs="+", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--json", action="store_true", help="print one JSON object a figure")
    given = parser.parse_args()
    metrics = measure(given)
    if not given.json:
        print(f"{'table':18} {'ratio':>6} {'goal':>5} {'p50 s':>7} {'p99 s':>7} {'max s':>7}")
    for one in metrics:
        if given.json:
            print(json.dumps(one), flush=True)
        else:
            print(
                f"{one['name']:18} {one['ratio']:6} {one['goal']:5} {one['p50_s']:7} "
                f"{one['p99_s']:7} {one['max_s']:7}   {one['commits_per_s']} commits/s, "
                f"{one['missing']} of {one['rows'] + one['missing']} rows missing"
            )
    return 0 if not any(metric["missing"] for metric in metrics) else 1


if __name__ == "__main__":
    sys.exit(main())
