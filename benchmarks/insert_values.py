"""How long an INSERT … VALUES of many rows takes, from its text to rows that can be read.

The statement has 10,000 rows of 16 columns of mixed types (2.2 MB of text) and goes into an empty
table with a primary key and one bucket. Every value is a literal, a cast of one, NULL or a function
of one literal, and a twelfth of the rows has NULLs.

parse     `parse_script` of the text: the statements that `streamhouse run` starts with
land      `streamhouse.execute` of the text in a process that is running: parse, plan, compute,
          write and commit
execute   the command `streamhouse execute -`, the text on its standard input: from the start of the
          process to its end
run       the command `streamhouse run script.sql`, the same; it starts no Spark, since nothing in
          the script is continuous

`ratio` is 5 s over the seconds, the goal 1.0. Each figure is the median of several runs, each into
a table of its own. After each run the table is read back and compared with what was inserted.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

import streamhouse
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.sql.statements.script import parse_script

GOAL_S = 5.0
DEFINITION = """CREATE TABLE {} (
  id BIGINT PRIMARY KEY NOT ENFORCED, amount INT, size SMALLINT, age TINYINT, ratio DOUBLE,
  share FLOAT, price DECIMAL(12, 2), name STRING, quoted STRING, note STRING, upper STRING,
  active BOOLEAN, day DATE, at TIMESTAMP(3), seen TIMESTAMP(6), parsed TIMESTAMP(3)
) WITH ('bucket' = '1');
"""
_START = datetime.datetime(2024, 1, 1)


def rows(count: int) -> list[tuple[Any, ...]]:
    """The rows as values of Python."""
    found = []
    for n in range(count):
        at = _START + datetime.timedelta(seconds=97 * n, milliseconds=n % 1000)
        note = None if n % 12 == 0 else f"note {n}, (with) 'marks'"
        active = None if n % 12 == 0 else n % 2 == 0
        found.append(
            (n, n % 2001 - 1000, n % 300, n % 100, n * 0.25, n % 64 + 0.5,
             Decimal(n * 7).scaleb(-2), f"name {n}", f"it's {n}", note, f"KEY {n}", active,
             at.date(), at, at + datetime.timedelta(microseconds=n % 1000),
             at.replace(microsecond=0))
        )  # fmt: skip
    return found


def statement(table: str, given: list[tuple[Any, ...]]) -> str:
    """The INSERT of rows."""
    return f"INSERT INTO {table} VALUES\n" + ",\n".join(map(_row, given)) + ";\n"


def _row(row: tuple[Any, ...]) -> str:
    (n, amount, size, age, ratio, share, price, name, quoted, note, upper, active, day, at, seen,
     parsed) = row  # fmt: skip
    cells = (
        n, amount, f"CAST({size} AS SMALLINT)", age, ratio, f"CAST({share} AS FLOAT)", price,
        _text(name), _text(quoted), _text(note), f"UPPER({_text(upper.lower())})",
        "NULL" if active is None else str(active).upper(), f"DATE '{day}'",
        f"TIMESTAMP '{at.isoformat(' ', 'milliseconds')}'",
        f"TIMESTAMP '{seen.isoformat(' ', 'microseconds')}'", f"TO_TIMESTAMP('{parsed}')",
    )  # fmt: skip
    return f"({', '.join(map(str, cells))})"


def _text(value: str | None) -> str:
    return "NULL" if value is None else "'" + value.replace("'", "''") + "'"


class Ways:
    """The ways of a statement into a table, each with the seconds that it takes."""

    def __init__(self, folder: Path, count: int) -> None:
        self._folder = folder
        self._warehouse = str(folder / "warehouse")
        self._given = rows(count)
        self._tables = 0
        streamhouse.execute(self._warehouse, DEFINITION.format("warm"))
        streamhouse.execute(self._warehouse, statement("warm", self._given[:100]))

    def parse(self) -> float:
        text = statement("t", self._given)
        start = time.perf_counter()
        parse_script(text)
        return time.perf_counter() - start

    def land(self) -> float:
        return self._into_table(lambda text: streamhouse.execute(self._warehouse, text))

    def execute(self) -> float:
        command = [_program(), "execute", "-", "--warehouse", self._warehouse]
        return self._into_table(
            lambda text: subprocess.run(
                command, input=text, text=True, check=True, stdout=subprocess.DEVNULL
            )
        )

    def run(self) -> float:
        script = self._folder / "script.sql"
        command = [_program(), "run", str(script), "--warehouse", self._warehouse]

        def land(text: str) -> None:
            subprocess.run(command, check=True, capture_output=True)

        return self._into_table(land, script.write_text)

    def _into_table(
        self, land: Callable[[str], object], prepare: Callable[[str], object] = len
    ) -> float:
        """The seconds that `land` takes for the statement; the rows must be there then."""
        self._tables += 1
        table = f"t{self._tables}"
        streamhouse.execute(self._warehouse, DEFINITION.format(table))
        text = statement(table, self._given)
        prepare(text)
        start = time.perf_counter()
        land(text)
        seconds = time.perf_counter() - start
        self._check(table)
        return seconds

    def _check(self, name: str) -> None:
        table = Warehouse(self._warehouse).table(f"default.{name}")
        found = pa.Table.from_batches(table.read()).sort_by("id").to_pylist()
        if [tuple(row.values()) for row in found] != self._given:
            raise SystemExit(f"table {name} does not have the rows that were inserted")


def _program() -> str:
    return str(Path(sys.executable).with_name("streamhouse"))


def figure(name: str, seconds: list[float]) -> dict[str, Any]:
    median = statistics.median(seconds)
    return {
        "name": name,
        "ratio": round(GOAL_S / median, 3),
        "goal": 1.0,
        "unit": "5 s over the median of the seconds",
        "median_s": round(median, 3),
        "min_s": round(min(seconds), 3),
        "max_s": round(max(seconds), 3),
        "load_1min": round(os.getloadavg()[0], 1),
    }


def main() -> int:
    text = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=text)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--runs", type=int, default=3)
    ways = ["parse", "land", "execute", "run"]
    parser.add_argument("--only", nargs="+", choices=ways, default=ways)
    parser.add_argument("--json", action="store_true", help="print one JSON object a figure")
    given = parser.parse_args()
    if not given.json:
        print(f"{'way':8} {'ratio':>7} {'goal':>5} {'median s':>9} {'min s':>7} {'max s':>7}")
    with tempfile.TemporaryDirectory(prefix="streamhouse-insert-") as folder:
        one = Ways(Path(folder), given.rows)
        for name in given.only:
            found = figure(name, [getattr(one, name)() for _ in range(given.runs)])
            if given.json:
                print(json.dumps(found), flush=True)
            else:
                print(
                    f"{name:8} {found['ratio']:7} {found['goal']:5} {found['median_s']:9} "
                    f"{found['min_s']:7} {found['max_s']:7}   load {found['load_1min']}",
                    flush=True,
                )
    return 0


if __name__ == "__main__":
    sys.exit(main())
