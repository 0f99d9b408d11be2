"""Several files run as one script."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark import SparkContext
from typer.testing import CliRunner

from streamhouse.cli.main import build
from streamhouse.paimon.catalog.warehouse import Warehouse

TABLES = "CREATE DATABASE d; USE d; CREATE TABLE t (a INT PRIMARY KEY NOT ENFORCED);"


@pytest.fixture(autouse=True)
def signals() -> Iterator[None]:
    """The command takes Ctrl-C and SIGTERM for its own."""
    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in kept.items():
        signal.signal(number, handler)


def run(folder: Path, *texts: str) -> tuple[int, str]:
    files = []
    for number, text in enumerate(texts):
        files.append(folder / f"part{number}.sql")
        files[-1].write_text(text)
    command = ["run", *map(str, files), "--warehouse", str(folder / "lake")]
    ended = CliRunner().invoke(build(command), command)
    return ended.exit_code, ended.output


def test_files_run_as_one_script(tmp_path: Path) -> None:
    code, output = run(tmp_path, TABLES, "INSERT INTO t VALUES (1), (2);")
    assert code == 0, output
    table = Warehouse(str(tmp_path / "lake")).table("d.t")
    assert sum(batch.num_rows for batch in table.read()) == 2


@pytest.mark.parametrize("wrong", ["CREAT TABLE u (a INT)", "\nINSERT INTO nowhere VALUES (1)"])
def test_an_error_names_its_file(tmp_path: Path, wrong: str) -> None:
    code, output = run(tmp_path, TABLES, wrong)
    assert code == 1
    assert output.startswith(f"error: {tmp_path / 'part1.sql'}: line {1 + wrong.count(chr(10))},")


def test_a_single_file_needs_no_name(tmp_path: Path) -> None:
    _, output = run(tmp_path, "CREAT TABLE u (a INT)")
    assert output.startswith("error: line 1, column 1:")


def test_an_error_in_a_script_comes_before_spark_and_leaves_nothing(tmp_path: Path) -> None:
    script, warehouse = tmp_path / "s.sql", tmp_path / "w"
    script.write_text(
        "CREATE TEMPORARY TABLE s (k INT) WITH ('connector' = 'datagen', 'number-of-rows' = '3');"
        "CREATE TABLE t (k INT);\nINSERT INTO t SELECT kk FROM s;"
    )
    before = SparkContext._active_spark_context
    words = ["run", str(script), "--warehouse", str(warehouse)]
    done = CliRunner().invoke(build(words), words)
    assert done.exit_code == 1 and "starting Spark" not in done.stderr
    assert done.stderr.startswith("error: line 2, column 22: there is no column 'kk'")
    assert not warehouse.exists()
    # Another test of this process may have started one.
    assert SparkContext._active_spark_context is before
