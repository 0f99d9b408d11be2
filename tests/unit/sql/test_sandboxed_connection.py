"""Connections for users' SQL texts share a database, and nothing else."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import duckdb
import pytest

from streamhouse.sql.expressions import sandboxed_connection as module
from streamhouse.sql.expressions.binder import computes
from streamhouse.sql.expressions.sandboxed_connection import sandboxed


def test_tables_of_one_connection_are_not_seen_by_another() -> None:
    with sandboxed() as one, sandboxed() as two:
        one.execute("CREATE TEMP TABLE src (a INT)")
        two.execute("CREATE TEMP TABLE src (b VARCHAR)")
        assert one.sql("SELECT * FROM src").columns == ["a"]
        assert two.sql("SELECT * FROM src").columns == ["b"]
    with sandboxed() as three, pytest.raises(duckdb.CatalogException):
        three.sql("SELECT * FROM src")


def test_files_and_variables_of_python_are_out_of_reach(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("a\n1\n")
    variable = duckdb.sql("SELECT 1")
    with sandboxed() as connection:
        for name in (f"'{file}'", "variable"):
            with pytest.raises(duckdb.Error):
                connection.execute(f"SELECT * FROM {name}")
        with pytest.raises(duckdb.Error):
            connection.execute("SET enable_external_access = true")
    del variable


def test_every_connection_is_in_utc() -> None:
    with sandboxed() as connection:
        connection.execute("SET TimeZone = 'Asia/Shanghai'")
    with sandboxed() as connection:
        assert connection.sql("SELECT current_setting('TimeZone')").fetchall() == [("UTC",)]


def test_an_unusable_database_is_replaced() -> None:
    assert computes("1")
    module._databases[os.getpid()].close()
    assert computes("1")


def test_threads_describe_side_by_side() -> None:
    with ThreadPoolExecutor(8) as threads:
        result = list(threads.map(lambda n: computes(f"{n} + 1"), range(200)))
    assert all(result)
