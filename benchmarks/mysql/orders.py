"""The table of the MySQL benchmarks, its server, and the script that copies it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pymysql

from streamhouse.demo.mariadb import PASSWORD, USER, MariaDB
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.runtime.run_output import RunOutput

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
FROM seq_{first}_to_{last}
"""
_COLUMNS = """
  id BIGINT, customer BIGINT, name STRING, city STRING, price DECIMAL(12, 2), weight DOUBLE,
  changed TIMESTAMP(3), `day` DATE, state STRING, note STRING, PRIMARY KEY (id) NOT ENFORCED
"""
_COPY = """
CREATE TEMPORARY TABLE source_orders ({columns}) WITH (
  'connector' = 'mysql-cdc', 'hostname' = '127.0.0.1', 'port' = '{port}',
  'username' = '{user}', 'password' = '{password}', 'database-name' = 'shop',
  'table-name' = 'orders', 'jdbc.properties.useSSL' = 'false', {options}
);
{target};
SET 'parallelism.default' = '2';
INSERT INTO {name} SELECT * FROM source_orders;
"""
TARGETS = {
    "paimon": "CREATE TABLE {name} ({columns}) WITH ('bucket' = '2')",
    "blackhole": "CREATE TEMPORARY TABLE {name} ({columns}) WITH ('connector' = 'blackhole')",
}
_SUMS = """
SELECT COUNT(*), SUM(customer), SUM(LENGTH(name)), SUM(LENGTH(city)), SUM(price),
  SUM(ROUND(weight)), MAX(changed), MIN(day), SUM(LENGTH(state)), SUM(LENGTH(note))
FROM orders
"""


class Quiet(RunOutput):
    """A printer for scripts whose output nobody reads."""

    def notice(self, text: str) -> None:
        print(text, file=sys.stderr)


def script(port: int, target: str, name: str, options: str) -> str:
    """A script that copies the table into `name`; `options`: more of the source's, in SQL."""
    create = TARGETS[target].format(name=name, columns=_COLUMNS)
    return _COPY.format(
        columns=_COLUMNS, port=port, user=USER, password=PASSWORD, target=create, name=name,
        options=options,
    )  # fmt: skip


def copy(warehouse: str, port: int, target: str, name: str, options: str) -> dict[str, float]:
    """Seconds of the script, from when the runtime gets it until it has caught up."""
    import pypaimon.catalog.catalog_factory  # noqa: F401  # before the clock: 0.5 s

    from streamhouse.runtime.script import ScriptOptions, ScriptRunner
    from streamhouse.runtime.spark.session import start_session
    from streamhouse.sql.statements.script import parse_script

    before = time.perf_counter()
    start_session("mysql")
    started = time.perf_counter()
    settings = ScriptOptions(name, {"warehouse": warehouse}, until_caught_up=True)
    ScriptRunner(settings, Quiet()).run(parse_script(script(port, target, name, options)))
    return {"seconds": time.perf_counter() - started, "session_s": started - before}


def connection(port: int) -> pymysql.Connection[Any]:
    return pymysql.connect(
        host="127.0.0.1", port=port, user=USER, password=PASSWORD, database="shop",
        ssl_disabled=True,
    )  # fmt: skip


def check(server: MariaDB, warehouse: str, name: str) -> None:
    """End the program if the copy is not the table."""
    (expected,) = server.execute(_SUMS, database="shop")
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


def server_cpu(server: MariaDB) -> float:
    """Seconds of processor time that the server has taken."""
    times = psutil.Process(server.pid).cpu_times()
    return float(times.user + times.system)


def in_fresh_process(*arguments: str) -> dict[str, float]:
    """The figures of one turn, in a process of its own."""
    program = Path(__file__).parents[1] / "mysql_cdc.py"
    command = [sys.executable, str(program), "--one", *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=RUN_SECONDS)
    if done.returncode:
        raise SystemExit(f"a turn failed with exit code {done.returncode}")
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result
