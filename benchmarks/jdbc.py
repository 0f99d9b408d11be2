"""How fast the `jdbc` connector writes MySQL, against PyMySQL's `executemany`.

A table of five columns (BIGINT key, two texts, DECIMAL, DATETIME) has half of the keys, with
other values. `jdbc_upsert` writes all keys: `INSERT INTO … SELECT` from a Paimon table, in one
process, from the statement's text to its COMMIT. `ratio` is the time of one `executemany` of the
same upsert and its COMMIT, with the rows at hand as tuples of Python, divided by ours; the goal is
0.8. Both write to the same private MariaDB, in turn, and what they wrote is compared.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import random
import statistics
import tempfile
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pymysql

import streamhouse
from streamhouse.demo.mariadb import MariaDB
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.write.commit import TableCommitter
from streamhouse.paimon.write.table_writer import TableWriter

GOAL = 0.8
USER = PASSWORD = "jdbc"
COLUMNS = ("id", "name", "country", "price", "seen")
TABLE = (
    "CREATE TABLE bench.{} (id BIGINT PRIMARY KEY, name VARCHAR(100), country VARCHAR(100), "
    "price DECIMAL(10, 2), seen DATETIME(3))"
)
DECLARED = "id BIGINT, name STRING, country STRING, price DECIMAL(10, 2), seen TIMESTAMP(3)"
UPSERT = (
    f"INSERT INTO theirs ({', '.join(COLUMNS)}) VALUES (%s, %s, %s, %s, %s) "
    f"ON DUPLICATE KEY UPDATE {', '.join(f'{name} = VALUES({name})' for name in COLUMNS[1:])}"
)
_START = datetime.datetime(2024, 1, 1)

Row = tuple[Any, ...]


def rows(count: int) -> list[Row]:
    """The rows, in random order of their keys."""
    numbers = list(range(count))
    random.Random(1).shuffle(numbers)
    return [
        (n, f"Customer {n}", f"Country {n % 200}", Decimal(n).scaleb(-2),
         _START + datetime.timedelta(seconds=n, milliseconds=n % 1000))
        for n in numbers
    ]  # fmt: skip


class Tables:
    """The two tables in MySQL, and the source of ours in a warehouse."""

    def __init__(self, server: MariaDB, warehouse: str, given: list[Row]) -> None:
        self._server, self._warehouse, self._given = server, warehouse, given
        server.execute(
            "CREATE DATABASE bench",
            TABLE.format("ours"),
            TABLE.format("theirs"),
            f"CREATE USER {USER} IDENTIFIED BY '{PASSWORD}'",
            f"GRANT ALL ON bench.* TO {USER}",
        )
        streamhouse.execute(warehouse, f"CREATE TABLE made ({DECLARED})")
        self._fill()
        self._statement = (
            f"CREATE TEMPORARY TABLE ours ({DECLARED}, PRIMARY KEY (id) NOT ENFORCED) WITH ("
            f"'connector' = 'jdbc', 'url' = 'jdbc:mysql://127.0.0.1:{server.port}/bench', "
            f"'table-name' = 'ours', 'username' = '{USER}', 'password' = '{PASSWORD}');"
            "INSERT INTO ours SELECT * FROM made;"
        )

    def _fill(self) -> None:
        table = Warehouse(self._warehouse).table("default.made")
        values = [dict(zip(COLUMNS, row, strict=True)) for row in self._given]
        writer = TableWriter(table.catalog_options, table.identifier, "benchmark")
        writer.write(pa.RecordBatch.from_pylist(values, table.arrow_schema))
        TableCommitter(table.catalog_options, table.identifier, "benchmark").commit(
            0, writer.prepare(0)
        )
        writer.close()

    def half(self, table: str) -> None:
        """Empty a table, then insert every second key."""
        self._server.execute(
            f"TRUNCATE bench.{table}",
            f"INSERT INTO bench.{table} SELECT seq, 'old', 'old', 0, NOW(3) "
            f"FROM seq_0_to_{len(self._given) - 1}_step_2",
            database="bench",
        )

    def ours(self) -> float:
        self.half("ours")
        start = time.perf_counter()
        streamhouse.execute(self._warehouse, self._statement)
        return time.perf_counter() - start

    def theirs(self) -> float:
        self.half("theirs")
        connection = pymysql.connect(
            host="127.0.0.1", port=self._server.port, user=USER, password=PASSWORD, database="bench"
        )
        try:
            start = time.perf_counter()
            with connection.cursor() as cursor:
                cursor.executemany(UPSERT, self._given)
            connection.commit()
            return time.perf_counter() - start
        finally:
            connection.close()

    def check(self) -> None:
        """Compare both tables with the rows."""
        for table in ("ours", "theirs"):
            found = self._server.execute(f"SELECT * FROM bench.{table} ORDER BY id")
            if found != sorted(self._given):
                raise SystemExit(f"table {table} does not have the rows that were written")


def measured(count: int, runs: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder, MariaDB(Path(folder) / "mariadb") as server:
        tables = Tables(server, f"{folder}/warehouse", rows(count))
        tables.ours()
        ours: list[float] = []
        theirs: list[float] = []
        for _ in range(runs):
            theirs.append(tables.theirs())
            ours.append(tables.ours())
        tables.check()
    seconds, base = statistics.median(ours), statistics.median(theirs)
    return {
        "name": "jdbc_upsert",
        "ratio": round(base / seconds, 3),
        "goal": GOAL,
        "unit": "seconds of executemany over ours",
        "rows": count,
        "seconds": round(seconds, 3),
        "executemany_s": round(base, 3),
        "load_1min": round(os.getloadavg()[0], 1),
    }


def main() -> int:
    text = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=text)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    given = parser.parse_args()
    figure = measured(given.rows, given.runs)
    if given.json:
        print(json.dumps(figure))
    else:
        print(
            f"{figure['name']}: {figure['seconds']} s for {figure['rows']:,} rows, executemany "
            f"{figure['executemany_s']} s: ratio {figure['ratio']}, goal {figure['goal']}"
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
