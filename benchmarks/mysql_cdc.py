"""The MySQL connector against its libraries, in the same run, with a MariaDB of its own.

The table has ten columns (BIGINT key, unsigned INT, two VARCHARs with and without NULLs, DECIMAL,
DOUBLE, DATETIME(3), DATE, ENUM, a longer VARCHAR). Scripts copy it into a table of the warehouse
with the same primary key and two buckets, or with `--target blackhole` into nothing, with two
tasks. The clock starts when the Spark session is up and the runtime gets the script; it stops when
the query has ended: planning, the start of Python workers, reading, writing and commits are in it.
Python's libraries are imported before the clock starts, in the limit's turns, too.

snapshot   `--rows` rows with `'scan.startup.mode' = 'snapshot'`, against one PyMySQL server-side
           cursor that fetches all rows and drops them.
catch_up   `--changes` changes of rows from a position of the binlog on: half of them inserts of
           1,000 rows a statement, the rest updates and deletes of one row each, 100 a transaction;
           against plain mysql-replication that iterates the same row events and their rows, once.
           `ratio` is the limit's time over ours in both.
freshness  `streamhouse run` follows a table of 10,000 rows while single rows are updated and
           committed, `--rate` a second for `--seconds`; the first 5 s do not count. A change is
           readable when a reader first sees a snapshot with it. `ratio` is 700 ms over the median.
sync       `streamhouse sync mysql-database` of `--tables` small tables, see `mysql_sync.py`.
           `ratio` is 10 s over the time until all are followed.
memory     (only with `--only memory`) a snapshot of `--memory-rows` rows whose keys have a huge gap
           and clusters, and of which some neighbours have 200 KB. `ratio` is 1 GiB over the peak
           of the resident size of the largest Python worker.

`server_cpu_s` is the processor time of the server in our turn (`server_cores`: a second). Each turn
is a process of its own, limit and ours in turn; times are medians. Copies are compared with the
table: count and sums of the columns.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks import mysql_sync
from benchmarks.mysql import catch_up, freshness, memory, snapshot
from benchmarks.mysql.orders import SERVER, TARGETS

from streamhouse.demo.mariadb import MariaDB
from streamhouse.paimon.catalog.warehouse import Warehouse

NAMES = ("snapshot", "catch_up", "freshness", "sync")
"""The figures that are measured by default."""
MORE_NAMES = ("memory",)
_TURNS: dict[str, Callable[..., dict[str, float]]] = {
    "snapshot": snapshot.turn,
    "catch_up": catch_up.turn,
}


def measure(given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The lines, one after the other."""
    with tempfile.TemporaryDirectory(prefix="streamhouse-mysql-") as name:
        folder = Path(name)
        warehouse = str(folder / "warehouse")
        Warehouse(warehouse).create_database("default")
        with MariaDB(folder / "mariadb", server_options=SERVER) as server:
            if "snapshot" in given.only:
                yield snapshot.figure(server, warehouse, given.rows, given.runs, given.target)
            if "catch_up" in given.only:
                yield catch_up.figure(server, warehouse, given.changes, given.runs, given.target)
            if "memory" in given.only:
                yield memory.figure(server, folder, warehouse, given.memory_rows)
            if "freshness" in given.only:
                yield freshness.figure(server, folder, warehouse, given.seconds, given.rate)
    if "sync" in given.only:
        yield mysql_sync.measure(given.tables, given.runs)


def main() -> int:
    text = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=text)
    parser.add_argument("--rows", type=int, default=2_000_000, help="of the snapshot")
    parser.add_argument("--changes", type=int, default=1_000_000, help="of rows, to catch up with")
    parser.add_argument("--seconds", type=float, default=60.0, help="of the freshness")
    parser.add_argument("--rate", type=float, default=100.0, help="changes a second")
    parser.add_argument("--tables", type=int, default=200, help="of the sync")
    parser.add_argument("--memory-rows", type=int, default=10_000_000, help="of `memory`")
    parser.add_argument("--runs", type=int, default=3, help="figures are medians over them")
    parser.add_argument("--target", choices=list(TARGETS), default="paimon")
    parser.add_argument("--only", nargs="+", choices=[*NAMES, *MORE_NAMES], default=list(NAMES))
    parser.add_argument("--json", action="store_true", help="print one JSON object a figure")
    parser.add_argument("--one", nargs="+", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        name, *rest = given.one
        print(json.dumps(_TURNS[name](*rest)))
        return 0
    for line in measure(given):
        if given.json:
            print(json.dumps(line), flush=True)
        else:
            rest = [f"{key} {value}" for key, value in line.items() if key not in _HEAD]
            print(f"{line['name']:9} {line['ratio']:6} {line['goal']:5}   {', '.join(rest)}")
    return 0


_HEAD = ("name", "ratio", "goal")

if __name__ == "__main__":
    sys.exit(main())
