"""The demo for an hour: does it stay fresh, quick to commit to, small in files and in memory?

`streamhouse demo --json` runs as a user would run it. Each minute gives a row of a CSV file and a
point of the curves in an SVG file: freshness of the orders shown in that minute (from their time
to their showing in the view), how long the commits to the view took (the last one of each second),
the most level-0 files that a bucket of any table with a key had, files of manifests and snapshots
of the view, and the resident memory of the driver, Spark's JVM, the sidecar and the Python workers.
The last line is JSON.
"""

from __future__ import annotations

import argparse
import csv
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from pypaimon.read.split_serializer import deserialize_split_v1
from pypaimon.schema.data_types import DataTypeParser

from streamhouse.errors import StreamhouseError
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.read.table import Table
from streamhouse.runtime.monitoring.status import Statuses

VIEW = "shop.country_sales"
LOOK_S = 5.0
STATUS_S = 1.0
MINUTE_S = 60.0
PARTS = ("driver", "spark", "sidecar", "workers")
COLUMNS = (
    "minute", "fresh_p50_ms", "fresh_p99_ms", "commit_p50_ms", "commit_p99_ms", "commits",
    "level0_max", "manifests", "snapshots", *(f"{part}_mb" for part in PARTS),
)  # fmt: skip


@dataclass
class Minute:
    """What was seen in one minute."""

    level0: int = 0
    manifests: int = 0
    snapshots: int = 0
    commits: int = 0
    commit_ms: list[float] = field(default_factory=list)
    rss: Counter[str] = field(default_factory=Counter)


class Looker:
    """Looks at a running demo from outside."""

    def __init__(self, warehouse: Path, pid: int) -> None:
        self._warehouse = Warehouse(str(warehouse))
        self._pid = pid
        self._statuses = Statuses(self._warehouse.options)
        self._batches = 0

    def look(self, seen: Minute) -> None:
        """Take in how things are now."""
        try:
            names = [f"shop.{name}" for name in self._warehouse.tables("shop")]
        except StreamhouseError:
            return
        for name in names:
            try:
                table = self._warehouse.table(name)
                if table.primary_key:
                    seen.level0 = max(seen.level0, *level0_files(table), 0)
                if name == VIEW:
                    first, last = table.earliest_snapshot_id(), table.latest_snapshot_id()
                    seen.snapshots = (last or 0) - (first or 0) + 1
                    files = [one for one, _ in table.files.names(f"{table.location}/manifest")]
                    seen.manifests = sum(not file.startswith("manifest-list") for file in files)
            except StreamhouseError:
                # Made anew or compacted while it was looked at.
                continue
        for part, size in memory(self._pid).items():
            seen.rss[part] = max(seen.rss[part], size)

    def look_at_commits(self, seen: Minute) -> None:
        """Take in the last commit to the view, from the status of the pipeline."""
        for name in self._statuses.names():
            status = self._statuses.read(name)
            for query in () if status is None else status.queries:
                if query.target == VIEW and query.batches > self._batches:
                    seen.commits += query.batches - self._batches
                    self._batches = query.batches
                    if query.commit is not None:
                        seen.commit_ms.append(query.commit.took_ms)


def level0_files(table: Table) -> list[int]:
    """How many files of level 0 each bucket of a table with a key has."""
    fields = {one["name"]: one for one in table.schema["fields"]}
    partition = [DataTypeParser.parse_data_field(fields[name]) for name in table.partition_keys]
    key = [
        DataTypeParser.parse_data_field(fields[name])
        for name in table.primary_key
        if name not in table.partition_keys
    ]
    counts: Counter[tuple[str, int]] = Counter()
    for serialised in table.splits():
        split = deserialize_split_v1(serialised, partition, key)
        counts[str(split.partition), split.bucket] += sum(file.level == 0 for file in split.files)
    return list(counts.values())


def memory(pid: int) -> Counter[str]:
    """Resident memory in MiB of what the demo runs, by part; MariaDB and the demo are left out."""
    sizes: Counter[str] = Counter()
    try:
        children = psutil.Process(pid).children(recursive=True)
    except psutil.Error:
        return sizes
    for process in children:
        try:
            name, command = process.name(), " ".join(process.cmdline())
            size = round(process.memory_info().rss / 2**20)
        except psutil.Error:
            continue
        if "java" in name:
            sizes["spark" if "PythonGatewayServer" in command else "sidecar"] += size
        elif " run " in command:
            sizes["driver"] += size
        elif "python" in name:
            sizes["workers"] += size
    return sizes


def run(seconds: float, rate: int, folder: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The demo's own report, and a row a minute."""
    command = [str(Path(sys.executable).with_name("streamhouse")), "demo", "--json"]
    command += ["--seconds", str(seconds), "--orders-per-second", str(rate)]
    rows: list[dict[str, Any]] = []
    with subprocess.Popen(
        [*command, "--dir", str(folder / "demo")],
        stdout=subprocess.PIPE,
        text=True,
    ) as demo:
        try:
            looker = Looker(folder / "demo" / "warehouse", demo.pid)
            before = Minute()
            while demo.poll() is None and not before.commits:
                time.sleep(0.2)
                looker.look_at_commits(before)
            for seen in minutes(demo, looker, time.monotonic() + seconds):
                rows.append(row(len(rows) + 1, seen))
                print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
            out, _ = demo.communicate(timeout=900)
        except BaseException:
            demo.send_signal(signal.SIGTERM)
            raise
    if demo.returncode:
        raise SystemExit(f"the demo ended with {demo.returncode}")
    report: dict[str, Any] = json.loads(out)
    for one, fresh in zip(rows, report["minutes"], strict=False):
        if fresh is not None:
            one["fresh_p50_ms"], one["fresh_p99_ms"] = fresh["p50"], fresh["p99"]
    return report, rows


def minutes(demo: subprocess.Popen[str], looker: Looker, end: float) -> Iterator[Minute]:
    """Each whole minute's sights, until `end` (monotonic) or the demo's own."""
    while demo.poll() is None and time.monotonic() + MINUTE_S <= end + LOOK_S:
        seen, until = Minute(), time.monotonic() + MINUTE_S
        while demo.poll() is None and time.monotonic() < until:
            looker.look(seen)
            next_look = min(until, time.monotonic() + LOOK_S)
            while demo.poll() is None and time.monotonic() < next_look:
                looker.look_at_commits(seen)
                time.sleep(max(0.0, min(STATUS_S, next_look - time.monotonic())))
        yield seen


def row(number: int, seen: Minute) -> dict[str, Any]:
    """A minute as a row of the CSV file."""
    took = seen.commit_ms or [float("nan")]
    p50, p99 = np.percentile(took, (50, 99))
    sizes = {f"{part}_mb": round(seen.rss[part]) for part in PARTS}
    return {
        "minute": number,
        "fresh_p50_ms": None,
        "fresh_p99_ms": None,
        "commit_p50_ms": round(float(p50), 1),
        "commit_p99_ms": round(float(p99), 1),
        "commits": seen.commits,
        "level0_max": seen.level0,
        "manifests": seen.manifests,
        "snapshots": seen.snapshots,
        **sizes,
    }


PANELS = (
    ("order to view, ms", ("fresh_p50_ms", "fresh_p99_ms")),
    ("commit to the view, ms", ("commit_p50_ms", "commit_p99_ms")),
    ("level-0 files of a bucket, at most", ("level0_max",)),
    ("files of manifests and snapshots of the view", ("manifests", "snapshots")),
    ("memory, MiB", tuple(f"{part}_mb" for part in PARTS)),
)
COLOURS = ("#1f6feb", "#d1242f", "#1a7f37", "#9a6700")
WIDTH, HEIGHT, LEFT, TOP = 760, 130, 60, 28


def curve(rows: Sequence[dict[str, Any]]) -> str:
    """All panels as an SVG picture."""
    parts = [_panel(i, title, names, rows) for i, (title, names) in enumerate(PANELS)]
    high = len(PANELS) * (HEIGHT + TOP) + 20
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH + LEFT + 20} {high}" '
        'font-family="sans-serif" font-size="12">\n'
        '<rect width="100%" height="100%" fill="white"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def _panel(place: int, title: str, names: Sequence[str], rows: Sequence[dict[str, Any]]) -> str:
    top = place * (HEIGHT + TOP) + TOP
    known = [float(one[name]) for one in rows for name in names if _is_known(one[name])]
    most = max(known, default=1.0) * 1.1 or 1.0
    last = max(2, len(rows))
    lines = [
        f'<rect x="{LEFT}" y="{top}" width="{WIDTH}" height="{HEIGHT - TOP}" fill="none" '
        'stroke="#d0d7de"/>',
        f'<text x="{LEFT}" y="{top - 6}" font-weight="bold">{title}</text>',
        f'<text x="{LEFT - 6}" y="{top + 10}" text-anchor="end">{most:,.0f}</text>',
        f'<text x="{LEFT - 6}" y="{top + HEIGHT - TOP}" text-anchor="end">0</text>',
        f'<text x="{LEFT + WIDTH}" y="{top + HEIGHT - TOP + 13}" text-anchor="end">'
        f"{len(rows)} min</text>",
    ]
    for number, name in enumerate(names):
        points = " ".join(
            f"{LEFT + WIDTH * (one['minute'] - 1) / (last - 1):.1f},"
            f"{top + (HEIGHT - TOP) * (1 - float(one[name]) / most):.1f}"
            for one in rows
            if _is_known(one[name])
        )
        colour = COLOURS[number % len(COLOURS)]
        lines.append(f'<polyline points="{points}" fill="none" stroke="{colour}" />')
        at = LEFT + WIDTH - 130 * (len(names) - number)
        lines.append(f'<text x="{at}" y="{top - 6}" fill="{colour}">{name}</text>')
    return "\n".join(lines)


def _is_known(value: Any) -> bool:
    return value is not None and value == value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=3600.0, help="how long (3600)")
    parser.add_argument("--orders-per-second", type=int, default=1000)
    parser.add_argument("--out", type=Path, default=Path("docs"), help="folder of the results")
    given = parser.parse_args()
    # Else the demo would go on alone.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with tempfile.TemporaryDirectory(prefix="streamhouse-endurance-") as folder:
        report, rows = run(given.seconds, given.orders_per_second, Path(folder))
    given.out.mkdir(parents=True, exist_ok=True)
    with (given.out / "endurance.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(rows)
    (given.out / "endurance.svg").write_text(curve(rows))
    print(json.dumps({"name": "endurance", **report, "minutes": len(rows)}))


if __name__ == "__main__":
    main()
