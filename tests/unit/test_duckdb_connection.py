"""A connection that is reopened keeps its settings and relations."""

from __future__ import annotations

import os
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from streamhouse import duckdb_connection
from streamhouse.duckdb_connection import LastingConnection


def test_settings_and_relations_survive_a_reopened_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(duckdb_connection, "QUERIES", 3)
    opened = []
    connect = duckdb.connect

    def counted(*arguments: Any, **options: Any) -> duckdb.DuckDBPyConnection:
        opened.append(1)
        return connect(*arguments, **options)

    monkeypatch.setattr(duckdb, "connect", counted)
    lasting = LastingConnection(threads=1)
    lasting.set("now", "SET VARIABLE now = 1")
    lasting.set("now", "SET VARIABLE now = 5")
    lasting.keep("dim", pa.table({"id": [1, 2], "name": ["a", "b"]}))
    lasting.keep("dim", pa.table({"id": [1, 2], "name": ["c", "d"]}))
    for number in range(1, 9):
        src = pa.table({"id": [number % 2 + 1]})
        found = lasting.run(
            "SELECT name, getvariable('now') n FROM src JOIN dim USING (id)", src=src
        )
        assert found.to_pylist() == [{"name": "cd"[number % 2], "n": 5}]
    assert len(opened) == 3
    zone = lasting.run("SELECT current_setting('TimeZone') z").to_pylist()
    assert zone == [{"z": "UTC"}]
    lasting.close()


def test_relations_of_a_failed_query_are_dropped() -> None:
    lasting = LastingConnection(threads=1)
    with pytest.raises(duckdb.Error):
        lasting.run("SELECT CAST(name AS INT) FROM src", src=pa.table({"name": ["a"]}))
    with pytest.raises(duckdb.CatalogException):
        lasting.run("SELECT * FROM src")
    lasting.close()


def test_a_connection_of_one_thread_starts_no_others() -> None:
    def threads() -> set[str]:
        return set(os.listdir("/proc/self/task"))

    before = threads()
    lasting = LastingConnection(threads=1)
    assert threads() <= before
    lasting.close()


def test_relations_of_a_cursor_end_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duckdb_connection, "QUERIES", 3)
    lasting = LastingConnection(threads=1)
    for number in range(5):
        with lasting.cursor("SELECT flink_average('3', 2, 1)", 1) as connection:
            connection.register("src", pa.table({"n": [number]}))
            connection.execute("CREATE TEMP TABLE made AS SELECT * FROM src")
            found = connection.execute(
                "SELECT n, flink_average('3', 2, 1), current_setting('TimeZone') FROM made"
            )
            assert found.fetchall() == [(number, "1.5", "UTC")]
    lasting.close()
