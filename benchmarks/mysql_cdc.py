"""The MySQL connector against PyMySQL alone, in the same run, with a MariaDB of its own.

snapshot  a table of `--rows` rows of ten columns (BIGINT key, unsigned INT, two VARCHARs with and
          without NULLs, DECIMAL, DOUBLE, DATETIME(3), DATE, ENUM, a longer VARCHAR). Ours: a
          script with `'scan.startup.mode' = 'snapshot'` copies it into a table of the warehouse
          with the same primary key and two buckets, or with `--target blackhole` into nothing, in
          two tasks. The clock starts when the Spark session is up and the script is given to the
          runtime; it stops when the query has ended: planning, the start of Python workers,
          reading, writing and commits are in it. The limit: one PyMySQL server-side cursor that
          fetches all rows and drops them. `ratio` is the limit's time over ours.

Each turn is a process of its own, limit and ours in turn; times are medians. The copy is compared
with the table: count and sums of the columns.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pymysql

from streamhouse.demo.mariadb import PASSWORD, USER, MariaDB
from streamhouse.paimon.catalog.warehouse import Warehouse

GOALS = {"snapshot": 2.5}
RUN_SECONDS = 900
SERVER = (
    "--innodb-buffer-pool-size=1G",
    "--innodb-log-file-size=512M",
    "--innodb-flush-log-at-trx-commit=0",
)
ORDERS = """
CREATE TABLE orders (
  id BIGINT PRIMARY KEY, customer INT UNSIGNED NOT NULL, name VARCHAR(40) NOT NULL,
  city VARCHAR(30), price DECIMAL(12,2) NOT NULL, weight DOUBLE, changed DATETIME(3) NOT NULL,
  day DATE, state ENUM('new','paid','sent','lost') NOT NULL, note VARCHAR(60)
)
"""
FILL = """
INSERT INTO orders SELECT
  seq, seq * 7919 % 10000, CONCAT('customer of order ', seq),
  ELT(1 + seq % 5, 'Köln', 'Rome', 'Lima', NULL, 'New York'), seq % 100000 / 100,
  IF(seq % 7 = 0, NULL, seq / 7),
  '2024-01-01' + INTERVAL seq SECOND + INTERVAL seq % 1000 * 1000 MICROSECOND,
  '2020-01-01' + INTERVAL seq % 1000 DAY, 1 + seq % 4,
  IF(seq % 3 = 0, NULL, CONCAT('note ', REPEAT('x', seq % 40)))
FROM seq_1_to_{rows}
"""
COLUMNS = """
  id BIGINT, customer BIGINT, name STRING, city STRING, price DECIMAL(12, 2), weight DOUBLE,
  changed TIMESTAMP(3), `day` DATE, state STRING, note STRING, PRIMARY KEY (id) NOT ENFORCED
"""
COPY = """
CREATE TEMPORARY TABLE source_orders ({columns}) WITH (
  'connector' = 'mysql-cdc', 'hostname' = '127.0.0.1', 'port' = '{port}',
  'username' = '{user}', 'password' = '{password}', 'database-name' = 'shop',
  'table-name' = 'orders', 'scan.startup.mode' = 'snapshot', 'jdbc.properties.useSSL' = 'false'
);
{target};
SET 'parallelism.default' = '2';
INSERT INTO {name} SELECT * FROM source_orders;
"""
TARGETS = {
    "paimon": "CREATE TABLE {name} ({columns}) WITH ('bucket' = '2')",
    "blackhole": ("CREATE TEMPORARY TABLE {name} ({columns}) WITH ('connector' = 'blackhole')"),
}
SUMS = """
SELECT COUNT(*), SUM(customer), SUM(LENGTH(name)), SUM(LENGTH(city)), SUM(price),
  SUM(ROUND(weight)), MAX(changed), MIN(day), SUM(LENGTH(state)), SUM(LENGTH(note))
FROM orders
"""


class Quiet:
    """A printer for scripts whose output nobody reads."""

    def notice(self, text: str) -> None:
        print(text, file=sys.stderr)

    def rows(self, reader: pa.RecordBatchReader) -> None: ...

    def changes(self, batch: pa.RecordBatch) -> None: ...


def copy(warehouse: str, port: int, target: str, name: str) -> dict[str, float]:
    """Seconds of the snapshot; in a fresh process."""
    from streamhouse.runtime.script import Script, ScriptOptions
    from streamhouse.runtime.spark.session import start_session
    from streamhouse.sql.statements.script import parse_script

    before = time.perf_counter()
    start_session("snapshot")
    started = time.perf_counter()
    create = TARGETS[target].format(name=name, columns=COLUMNS)
    text = COPY.format(
        columns=COLUMNS, port=port, user=USER, password=PASSWORD, target=create, name=name
    )
    options = ScriptOptions(name, {"warehouse": warehouse}, until_caught_up=True)
    Script(options, Quiet()).run(parse_script(text))
    return {"seconds": time.perf_counter() - started, "session_s": started - before}


def cursor(port: int) -> dict[str, float]:
    """Seconds of a server-side cursor that fetches and drops all rows."""
    connection = pymysql.connect(
        host="127.0.0.1", port=port, user=USER, password=PASSWORD, database="shop",
        ssl_disabled=True,
    )  # fmt: skip
    started = time.perf_counter()
    with connection.cursor(pymysql.cursors.SSCursor) as rows:
        rows.execute("SELECT * FROM orders")
        while rows.fetchmany(1000):
            pass
    return {"seconds": time.perf_counter() - started}


def check(server: MariaDB, warehouse: str, name: str) -> None:
    """End the program if the copy is not the table."""
    (expected,) = server.execute(SUMS, database="shop")
    batches = Warehouse(warehouse).table(f"default.{name}").read()
    table = pa.Table.from_batches(list(batches))
    found = [
        table.num_rows,
        pc.sum(table["customer"]),
        *(pc.sum(pc.binary_length(table[column])) for column in ("name", "city")),
        pc.sum(table["price"]),
        pc.sum(pc.round(table["weight"])),
        pc.max(table["changed"]),
        pc.min(table["day"]),
        *(pc.sum(pc.binary_length(table[column])) for column in ("state", "note")),
    ]
    values = [one.as_py() if isinstance(one, pa.Scalar) else one for one in found]
    if values != list(expected):
        raise SystemExit(f"the copy is wrong: {values} instead of {list(expected)}")


def in_fresh_process(*arguments: str) -> dict[str, float]:
    command = [sys.executable, __file__, "--one", *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=RUN_SECONDS)
    if done.returncode:
        raise SystemExit(f"a turn failed with exit code {done.returncode}")
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def snapshot(server: MariaDB, folder: str, given: argparse.Namespace) -> dict[str, Any]:
    server.execute("CREATE DATABASE shop")
    server.execute("SET sql_log_bin = 0", ORDERS, FILL.format(rows=given.rows), database="shop")
    warehouse = f"{folder}/warehouse"
    Warehouse(warehouse).create_database("default")
    limits, ours, sessions = [], [], []
    for run in range(given.runs):
        limits.append(in_fresh_process("cursor", str(server.port))["seconds"])
        name = f"copy_{run}"
        found = in_fresh_process("copy", warehouse, str(server.port), given.target, name)
        ours.append(found["seconds"])
        sessions.append(found["session_s"])
        if given.target == "paimon":
            check(server, warehouse, name)
    limit, own = statistics.median(limits), statistics.median(ours)
    return {
        "name": "snapshot",
        "ratio": round(limit / own, 3),
        "goal": GOALS["snapshot"],
        "unit": "times as fast as a server-side cursor of PyMySQL",
        "rows": given.rows,
        "rows_per_s": round(given.rows / own),
        "limit_s": round(limit, 2),
        "ours_s": round(own, 2),
        "ratios": [round(a / b, 3) for a, b in zip(limits, ours, strict=True)],
        "session_s": round(statistics.median(sessions), 2),
        "target": given.target,
        "load_1min": round(os.getloadavg()[0], 1),
    }


def measure(given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    with (
        tempfile.TemporaryDirectory(prefix="streamhouse-mysql-") as folder,
        MariaDB(Path(folder) / "mariadb", server_options=SERVER) as server,
    ):
        yield snapshot(server, folder, given)


def main() -> int:
    text = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=text)
    parser.add_argument("--rows", type=int, default=2_000_000, help="of the snapshot")
    parser.add_argument("--runs", type=int, default=3, help="figures are medians over them")
    parser.add_argument("--target", choices=list(TARGETS), default="paimon")
    parser.add_argument("--json", action="store_true", help="print one JSON object a figure")
    parser.add_argument("--one", nargs="+", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        kind, *rest = given.one
        found = cursor(int(rest[0])) if kind == "cursor" else copy(rest[0], int(rest[1]), *rest[2:])
        print(json.dumps(found))
        return 0
    for line in measure(given):
        if given.json:
            print(json.dumps(line), flush=True)
        else:
            rest = [f"{key} {value}" for key, value in line.items() if key not in _HEAD]
            print(f"{line['name']:8} {line['ratio']:6} {line['goal']:5}   {', '.join(rest)}")
    return 0


_HEAD = ("name", "ratio", "goal")

if __name__ == "__main__":
    sys.exit(main())
