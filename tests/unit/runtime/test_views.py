"""Views: created, stored, read, and their errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.runtime.test_script import BATCH, CollectedOutput, Run
from tests.unit.runtime.test_script import run as run
from typer.testing import CliRunner

from streamhouse.cli.main import build
from streamhouse.errors import StreamhouseError
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.sql.statements.create_view import CreateView
from streamhouse.sql.statements.script import parse_script

ORDERS = """
CREATE TABLE orders (id INT, agent STRING, score INT, day_ STRING, proc_time AS PROCTIME(),
  PRIMARY KEY (id) NOT ENFORCED) WITH ('bucket' = '1');
CREATE TABLE agents (name STRING PRIMARY KEY NOT ENFORCED, city STRING) WITH ('bucket' = '1');
INSERT INTO orders VALUES (1, 'Ann', 5, 'mon'), (2, 'Ben', 7, 'mon'), (3, 'Ann', 9, 'tue');
INSERT INTO agents VALUES ('Ann', 'Oslo');
"""
VIEWS = """
CREATE VIEW monday AS SELECT * FROM orders WHERE day_ = 'mon';
CREATE VIEW IF NOT EXISTS scores (who, points) COMMENT 'it''s so' AS
  SELECT agent, score * 10 FROM monday -- nested
;
"""
Rows = list[tuple[Any, ...]]


def rows(output: CollectedOutput, place: int = -1) -> Rows:
    return [tuple(row.values()) for row in output.tables[place]]


def test_a_view_is_read_like_its_table(run: Run) -> None:
    output = run(ORDERS + VIEWS + "SELECT who, points FROM scores WHERE points > 50;")
    assert output.changed == [
        {"rowkind": "+I", "who": "Ben", "points": 70},
    ]
    output = run(BATCH + "SELECT * FROM scores ORDER BY points;")
    assert output.tables == [[{"who": "Ann", "points": 50}, {"who": "Ben", "points": 70}]]
    output = run(
        BATCH + "SELECT s.who, COUNT(*) FROM scores AS s JOIN monday m ON m.agent = s.who "
        "WHERE s.points IN (SELECT points FROM scores) GROUP BY s.who ORDER BY 1;"
    )
    assert rows(output) == [("Ann", 1), ("Ben", 1)]


def test_a_view_is_joined_by_its_own_processing_time(run: Run) -> None:
    text = (
        "SELECT m.id, a.city FROM monday AS m "
        "LEFT JOIN agents FOR SYSTEM_TIME AS OF m.proc_time AS a ON a.name = m.agent;"
    )
    output = run(ORDERS + VIEWS + text)
    assert output.changed == [
        {"rowkind": "+I", "id": 1, "city": "Oslo"}, {"rowkind": "+I", "id": 2, "city": None}
    ]  # fmt: skip
    assert rows(run(BATCH + text)) == [(1, "Oslo"), (2, None)]


def test_statements_that_change_rows_read_views(run: Run) -> None:
    run(ORDERS + VIEWS)
    run(
        "MERGE INTO agents AS a USING (SELECT DISTINCT who FROM scores) AS s ON a.name = s.who "
        "WHEN NOT MATCHED THEN INSERT (name, city) VALUES (s.who, 'new');"
        "UPDATE agents SET city = 'seen' WHERE name IN (SELECT agent FROM monday WHERE id = 1);"
    )
    output = run(BATCH + "SELECT * FROM agents;")
    assert rows(output) == [("Ann", "seen"), ("Ben", "new")]


def test_a_view_keeps_its_columns_and_its_database(run: Run) -> None:
    run(ORDERS + VIEWS + "ALTER TABLE orders ADD extra INT; CREATE DATABASE other;")
    output = run(BATCH + "USE other; SELECT * FROM `default`.monday WHERE id = 1;")
    assert list(output.tables[0][0]) == ["id", "agent", "score", "day_", "proc_time"]
    (described,) = run("DESCRIBE scores;").tables
    assert [(row["name"], row["type"]) for row in described] == [
        ("who", "STRING"), ("points", "INT")
    ]  # fmt: skip


def test_hints_reach_the_table(run: Run) -> None:
    run(ORDERS + VIEWS + "INSERT INTO orders VALUES (4, 'Cid', 1, 'mon');")
    output = run(BATCH + "SELECT id FROM monday /*+ OPTIONS('scan.snapshot-id' = '1') */;")
    assert rows(output) == [(1,), (2,)]
    output = run("SELECT who FROM scores /*+ OPTIONS('scan.mode' = 'latest') */ AS s;")
    assert output.changed == []
    run("CREATE VIEW old AS SELECT id FROM orders VERSION AS OF 1;")
    assert rows(run("SELECT * FROM old;")) == [(1,), (2,), (3,)]


def test_temporary_views_are_of_their_script(run: Run) -> None:
    output = run(
        ORDERS + "CREATE TEMPORARY VIEW mine AS SELECT id FROM orders;"
        "CREATE TEMPORARY VIEW yours AS SELECT id + 1 AS id FROM mine; SHOW VIEWS; SHOW TABLES;"
        + BATCH
        + "SELECT MAX(id) FROM yours; DROP TEMPORARY VIEW yours; SHOW VIEWS;"
    )
    assert [rows(output, n) for n in range(4)] == [
        [("mine",), ("yours",)],
        [("agents",), ("mine",), ("orders",), ("yours",)],
        [(4,)],
        [("mine",)],
    ]
    with pytest.raises(StreamhouseError, match="there is no table 'mine'"):
        run("SELECT id FROM mine;")


def test_the_text_of_show_create_creates_the_same_view(run: Run, tmp_path: Path) -> None:
    output = run(ORDERS + VIEWS + "SHOW CREATE VIEW scores; SHOW VIEWS;")
    ((text,),) = rows(output, 0)
    assert rows(output, 1) == [("monday",), ("scores",)]
    (statement,) = parse_script(text)
    assert isinstance(statement, CreateView) and statement.comment == "it's so"
    run("DROP VIEW scores;" + text + ";")
    assert rows(run(BATCH + "SELECT * FROM scores;")) == [("Ann", 50), ("Ben", 70)]
    kept_file = json.loads((tmp_path / "default.db/.views/scores.json").read_text())
    assert [field["name"] for field in kept_file["fields"]] == ["who", "points"]
    assert Warehouse(str(tmp_path)).tables("default") == ["agents", "orders"]


def test_query_prints_a_view_of_another_run(run: Run, tmp_path: Path) -> None:
    run(ORDERS + VIEWS)
    for name in ("scores", "default.scores"):
        words = ["query", f"SELECT * FROM {name} WHERE points = 70", "--format", "json"]
        words += ["--warehouse", str(tmp_path)]
        result = CliRunner().invoke(build(words), words)
        assert (result.exit_code, json.loads(result.stdout)) == (0, [{"who": "Ben", "points": 70}])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("CREATE VIEW monday AS SELECT id FROM orders", "view default.monday already exists"),
        ("CREATE VIEW orders AS SELECT id FROM agents", "'default.orders' is a table"),
        ("CREATE TABLE monday (id INT)", "there is a view of that name"),
        (
            "CREATE VIEW v (a, b) AS SELECT id FROM orders",
            "names 2 column(s), but its query returns 1",
        ),
        ("CREATE VIEW v (a, a) AS SELECT id, id FROM orders", "a column is named twice"),
        ("CREATE VIEW v (a INT) AS SELECT id FROM orders", "have no types of their own"),
        ("CREATE VIEW v AS SELECT nosuch FROM orders", "there is no column 'nosuch'"),
        ("CREATE VIEW v AS SELECT id FROM nosuch", "there is no table 'nosuch'"),
        ("CREATE VIEW v AS INSERT INTO orders VALUES (1)", "expected SELECT or WITH"),
        ("CREATE VIEW v$x AS SELECT id FROM orders", "a name with $"),
        ("CREATE VIEW nosuch.v AS SELECT id FROM orders", "there is no database 'nosuch'"),
        ("DROP VIEW orders", "'default.orders' is a table; write DROP TABLE"),
        ("DROP VIEW mondy", "did you mean 'monday'?"),
        ("DROP TABLE monday", "'default.monday' is a view"),
        ("DROP DATABASE `default`", "still has views (monday, scores)"),
        ("ALTER TABLE monday ADD x INT", "'default.monday' is a view"),
        ("INSERT INTO monday VALUES (1)", "'default.monday' is a view"),
        ("DELETE FROM monday", "'default.monday' is a view"),
        ("SHOW CREATE VIEW orders", "'orders' is not a view"),
        ("SELECT * FROM monday VERSION AS OF 1", "is a view, which takes no AS OF"),
        (
            "SELECT o.id FROM orders AS o JOIN monday FOR SYSTEM_TIME AS OF o.proc_time AS m "
            "ON m.id = o.id",
            "cannot be looked up",
        ),
        ("SELECT scre FROM monday", "there is no column 'scre'; did you mean 'score'?"),
    ],
)
def test_mistakes_have_their_place(run: Run, text: str, message: str) -> None:
    run(ORDERS + VIEWS)
    with pytest.raises(StreamhouseError, match=r"line 2, column \d+: ") as caught:
        run("-- a comment\n" + text)
    assert message in str(caught.value)


def test_what_a_view_reads_may_go(run: Run) -> None:
    run(ORDERS + VIEWS)
    run("ALTER TABLE orders RENAME agent TO seller;")
    with pytest.raises(
        StreamhouseError, match="line 2, column 11: there is no column 'agent'; .*renamed"
    ):
        run("SELECT *\n   FROM   scores;")
    run("DROP VIEW monday;")
    with pytest.raises(StreamhouseError, match="line 1, column 17: there is no table 'monday'"):
        run("SELECT who FROM scores;")


def test_a_view_that_reads_itself_is_an_error(run: Run, tmp_path: Path) -> None:
    run(ORDERS + VIEWS)
    folder = tmp_path / "default.db/.views"
    (folder / "monday.json").write_text((folder / "scores.json").read_text())
    with pytest.raises(
        StreamhouseError, match=r"line 1, column 15: view default\.\w+ reads itself"
    ):
        run("SELECT * FROM monday;")
    (folder / "monday.json").write_text("{}")
    with pytest.raises(StreamhouseError, match="is not a view definition .* CREATE it again"):
        run("SELECT * FROM monday;")
    run("DROP VIEW IF EXISTS scores; DROP VIEW IF EXISTS scores;")


def test_a_view_of_a_passing_table_is_passing(run: Run, tmp_path: Path) -> None:
    made = (
        "CREATE TEMPORARY TABLE made (id INT) WITH ('connector' = 'datagen', "
        "'number-of-rows' = '3', 'fields.id.kind' = 'sequence', 'fields.id.start' = '1', "
        "'fields.id.end' = '3');"
    )
    output = run(
        made + "CREATE VIEW v AS SELECT id * 2 AS n FROM made; CREATE VIEW w AS SELECT n FROM v; "
        "SELECT n FROM w;"
    )
    assert [row["n"] for row in output.changed] == [2, 4, 6]
    assert [text.split(",")[0] for text in output.notices if text.startswith("view")] == [
        "view default.v reads 'made'", "view default.w reads 'v'"
    ]  # fmt: skip
    assert not (tmp_path / "default.db/.views").exists()
