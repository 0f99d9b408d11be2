"""The progress of a long snapshot, on the terminal and in the list of pipelines."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.integration.mysql.history import Database
from tests.integration.runtime.terminal import Terminal
from tests.waiting import DEADLINE_S

from streamhouse.demo.mariadb import PASSWORD, USER
from streamhouse.source import Lag

ROWS = 200_000
"""More than are copied before the rate and the time left are known."""
SCRIPT = """
CREATE TEMPORARY TABLE numbers (id INT PRIMARY KEY NOT ENFORCED, v INT) WITH (
  'connector' = 'mysql-cdc', 'hostname' = '127.0.0.1', 'port' = '{port}', 'username' = '{user}',
  'password' = '{password}', 'database-name' = '{database}', 'table-name' = 't',
  'scan.startup.mode' = 'snapshot', 'scan.incremental.snapshot.chunk.size' = '25'
);
CREATE TABLE copy (id INT PRIMARY KEY NOT ENFORCED, v INT) WITH ('bucket' = '1');
INSERT INTO copy SELECT * FROM numbers;
"""


def test_a_terminal_shows_rows_rate_and_time_left(database: Database, tmp_path: Path) -> None:
    database.run(
        "CREATE TABLE t (id INT PRIMARY KEY, v INT)",
        f"INSERT INTO t SELECT seq, seq FROM seq_1_to_{ROWS}",
        "ANALYZE TABLE t",
    )
    script = tmp_path / "copy.sql"
    values = {"user": USER, "password": PASSWORD, "database": database.name}
    script.write_text(SCRIPT.format(port=database.server.port, **values))
    warehouse = str(tmp_path / "lake")
    terminal = Terminal(["run", str(script), "--warehouse", warehouse, "--name", "copying"])
    try:
        terminal.until(r"snapshot.*[1-9][\d,]* rows [\d,]+ rows/s +\d+% \d+:\d\d:\d\d left")
        streamhouse = str(Path(sys.executable).with_name("streamhouse"))
        listed = subprocess.run(
            [streamhouse, "pipelines", "--json", "--warehouse", warehouse],
            capture_output=True, text=True, check=True, timeout=DEADLINE_S,
        )  # fmt: skip
        (query,) = json.loads(listed.stdout)["pipelines"][0]["queries"]
        terminal.stop()
    finally:
        terminal.close()
    assert 0 < query["lag"]["rows"] < 2 * ROWS and query["lag"]["bytes"] is None


def test_the_rows_left_are_known_from_the_offset(database: Database) -> None:
    database.run(
        "CREATE TABLE t (id INT PRIMARY KEY)",
        "INSERT INTO t SELECT seq FROM seq_1_to_1000",
        "ANALYZE TABLE t",
    )
    options = {"scan.incremental.snapshot.chunk.size": "100"}
    source = database.source("t", options=options)
    offset = source.initial_offset()
    assert source.lag(offset) == Lag(rows=1000)
    offset = source.latest_offset(offset, 300)
    offset = database.source("t", options=options).latest_offset(offset, 200)
    assert source.lag(offset) == Lag(rows=500)
    assert database.source("t", options=options).rows_left(offset) == 500
    while "snapshot" in offset:
        offset = source.latest_offset(offset)
    assert source.rows_left(offset) is None
    assert not source.lag(offset).known
