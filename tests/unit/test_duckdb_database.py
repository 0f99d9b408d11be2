"""Every database of DuckDB is opened with the settings that keep its rows right."""

from __future__ import annotations

import re
from pathlib import Path

import streamhouse
from streamhouse.duckdb_database import open_database

_WARM = Path("serve/queries/worker.py")
"""Opens a database to load DuckDB, and runs nothing in it."""


def test_only_one_function_opens_databases() -> None:
    root = Path(streamhouse.__file__).parent
    opening = {
        path.relative_to(root)
        for path in root.rglob("*.py")
        if re.search(r"duckdb\.connect\(", path.read_text())
    }
    assert opening == {_WARM, Path("duckdb_database.py")}


def test_an_outer_join_that_matches_nothing_keeps_its_rows() -> None:
    with open_database(memory_limit="100MB") as db:
        db.execute("CREATE TABLE l AS SELECT range AS a FROM range(3)")
        db.execute("CREATE TABLE r AS SELECT 3 + range AS b FROM range(3)")
        query = (
            "SELECT a, b, sum(w) FROM (SELECT a, b, 1 AS w FROM l LEFT JOIN r ON 2 = b UNION ALL "
            "SELECT a, b, -1 AS w FROM l LEFT JOIN r ON 1 = b WHERE a > 99) GROUP BY a, b "
            "HAVING sum(w) <> 0"
        )
        assert len(db.sql(query).fetchall()) == 3
        assert db.sql("SELECT current_setting('TimeZone')").fetchall() == [("UTC",)]
