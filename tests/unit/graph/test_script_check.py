"""Plans scripts for a server: errors have positions, and nothing is created."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamhouse.graph.script_check import check_script
from streamhouse.runtime.execute import execute

TABLES = "CREATE TABLE a (i INT);\nCREATE TABLE b (i INT);\n"


@pytest.fixture
def place(tmp_path: Path) -> str:
    folder = tmp_path / "warehouse"
    folder.mkdir()
    return str(folder)


def request(place: str, sql: str, **more: Any) -> dict[str, Any]:
    return check_script({"sql": sql, "warehouse": {"warehouse": place}, **more})


def wrong(place: str, sql: str) -> tuple[str, int | None, int | None]:
    found = request(place, sql)
    assert found["ok"] is False
    error = found["error"]
    return error["message"], error["line"], error["column"]


def test_a_good_script_is_drawn(place: str) -> None:
    found = request(place, TABLES + "INSERT INTO b SELECT i FROM a;")
    assert (found["ok"], found["statements"]) == (True, 3)
    assert [edge["kind"] for edge in found["graph"]["edges"]] == ["reads", "writes"]
    assert "svg" not in found
    ElementTree.fromstring(request(place, TABLES, svg=True)["svg"])
    assert list(Path(place).iterdir()) == []


@pytest.mark.parametrize(
    ("sql", "part", "line", "column"),
    [
        ("CREAT TABLE a (i INT)", "CREATE", 1, 1),
        (TABLES + "INSERT INTO b SELECT j FROM a", "'j'", 3, 22),
        (TABLES + " INSERT INTO c SELECT i FROM a", "there is no table 'c'", 3, 2),
        (TABLES + "CREATE TABLE a (i INT)", "already exists", 3, 1),
        ("CREATE TABLE a (i INT) WITH ('bukcet' = '1')", "did you mean 'bucket'", 1, 1),
        ("\nUSE nowhere", "there is no database 'nowhere'", 2, 1),
    ],
)
def test_a_mistake_is_reported_with_its_place(
    place: str, sql: str, part: str, line: int, column: int
) -> None:
    message, *where = wrong(place, sql)
    assert part in message and where == [line, column]
    assert not message.startswith("line ") and "\n" not in message


def test_what_runs_already_may_be_there(place: str) -> None:
    execute(place, "CREATE DATABASE d; CREATE TABLE a (i INT, j INT); CREATE TABLE b (i INT);")
    sql = (
        f"CREATE DATABASE d;{TABLES}CREATE VIEW v AS SELECT i FROM a; DROP TABLE gone;"
        "ALTER TABLE a ADD j INT; INSERT INTO b SELECT i FROM v;"
    )
    assert not request(place, sql)["ok"]
    found = request(place, sql, applied=True)
    assert found["ok"], found
    assert len(found["graph"]["edges"]) == 3


def test_only_the_warehouse_is_read(place: str, tmp_path: Path) -> None:
    other = tmp_path / "other"
    execute(str(other), "CREATE TABLE secret (i INT)")
    text = (
        f"CREATE CATALOG c WITH ('type' = 'paimon', 'warehouse' = '{other}',"
        "'s3.endpoint' = 'http://192.0.2.1'); USE CATALOG c; SELECT * FROM secret;"
    )
    assert "there is no table 'secret'" in wrong(place, text)[0]
    servers = """
    CREATE TEMPORARY TABLE s (id INT PRIMARY KEY NOT ENFORCED, n STRING) WITH (
      'connector' = 'mysql-cdc', 'hostname' = '192.0.2.1', 'username' = 'u', 'password' = 'hidden',
      'database-name' = 'd', 'table-name' = 't');
    CREATE TEMPORARY TABLE k (id INT PRIMARY KEY NOT ENFORCED, n STRING) WITH (
      'connector' = 'jdbc', 'url' = 'jdbc:mysql://192.0.2.1:3306/d', 'table-name' = 'k',
      'username' = 'u', 'password' = 'hidden');
    CREATE TABLE o (id INT, p AS PROCTIME());
    CREATE TABLE t (id INT, n STRING);
    CREATE TABLE u (id INT PRIMARY KEY NOT ENFORCED, n STRING);
    INSERT INTO u SELECT id, n FROM s;
    INSERT INTO t SELECT o.id, k.n FROM o JOIN k FOR SYSTEM_TIME AS OF o.p ON o.id = k.id;
    """
    found = request(place, servers, svg=True)
    assert found["ok"], found
    assert "hidden" not in str(found) and "192.0.2.1" not in str(found)


@pytest.mark.parametrize("call", ["read_csv('{}')", "read_text('{}')", "glob('{}')"])
def test_no_file_is_read(place: str, tmp_path: Path, call: str) -> None:
    file = tmp_path / "file.csv"
    file.write_text("a\n1\n")
    written = call.format(file)
    for sql in (f"SELECT * FROM {written}", f"SELECT * FROM '{file}'", f"SELECT {written}"):
        assert not request(place, TABLES + sql)["ok"], sql


@pytest.mark.parametrize("depth", [200, 3_000])
def test_deep_nesting_is_an_error_like_others(place: str, depth: int) -> None:
    sql = f"{TABLES}INSERT INTO b SELECT {'(' * depth}i{')' * depth} FROM a"
    found = request(place, sql)
    assert found["ok"] or found["error"]["message"]


SCRAPS = (
    "CREATE TABLE", "a", "(i INT)", "WITH", "('bucket' = '1')", ";", "INSERT INTO", "SELECT", "*",
    "i", "FROM", "GROUP BY", "COUNT(*)", "JOIN", "FOR SYSTEM_TIME AS OF", "ON", "AS", ",", "(", ")",
    "VALUES (1)", "DROP TABLE", "ALTER TABLE", "ADD x INT", "USE", "SET", "'k' = 'v'",
    "CREATE VIEW", "UNION ALL", "EXPLAIN", "SHOW TABLES", "MERGE INTO", "USING",
    "WHEN MATCHED THEN DELETE",
    "a$snapshots", "/*+ OPTIONS('a'='b') */", "BEGIN STATEMENT SET", "END", "CASE WHEN", "NULL",
    "INSERT OVERWRITE", "PARTITION (i = 1)", "CREATE CATALOG c WITH ('type' = 'paimon')",
)  # fmt: skip


@settings(max_examples=150, suppress_health_check=list(HealthCheck))
@given(st.lists(st.sampled_from(SCRAPS), max_size=14).map(" ".join), st.booleans())
def test_fragments_are_planned_or_are_errors(place: str, text: str, applied: bool) -> None:
    found = request(place, f"{TABLES}{text}", applied=applied, svg=True)
    assert found["ok"] or "the script cannot be planned" not in found["error"]["message"], found
    assert list(Path(place).iterdir()) == []
