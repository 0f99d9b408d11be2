"""A new query that reads a whole table of MySQL into a table with rows, without Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.integration.mysql.history import Database
from tests.unit.runtime.local_pipeline import LocalPipeline

from streamhouse.demo.mariadb import PASSWORD, USER
from streamhouse.errors import StreamhouseError


def test_rows_that_stay_are_said(database: Database, tmp_path: Path) -> None:
    lake = LocalPipeline(tmp_path)
    columns = "(id INT PRIMARY KEY NOT ENFORCED, v INT)"
    database.run(
        "CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1), (2, 2)"
    )
    lake.do(f"CREATE TABLE copied {columns} WITH ('bucket' = '1')")
    script = f"""CREATE TEMPORARY TABLE t {columns} WITH ('connector' = 'mysql-cdc',
      'hostname' = '127.0.0.1', 'port' = '{database.server.port}', 'username' = '{USER}',
      'password' = '{PASSWORD}', 'database-name' = '{database.name}', 'table-name' = 't');
    INSERT INTO copied SELECT id, v FROM t"""

    def said(name: str, **more: bool) -> bool:
        return "copied has rows already" in "\n".join(lake.run(script, name, **more))

    assert not said("a.sql")
    database.run("DELETE FROM t WHERE id = 1")
    assert not said("a.sql")  # It resumes.
    assert lake.rows("copied") == [{"id": 2, "v": 2}]
    database.run("DELETE FROM t")
    with pytest.raises(StreamhouseError, match="which a new query would write again"):
        lake.run(script, "b.sql")
    assert not said("a.sql", from_scratch=True)
    assert lake.rows("copied") == []
    lake.do("INSERT INTO copied VALUES (9, 9)")
    database.run("INSERT INTO t VALUES (3, 3)")
    assert said("a.sql", from_scratch=True, keep_targets=True)
    assert [row["id"] for row in lake.rows("copied")] == [3, 9]
