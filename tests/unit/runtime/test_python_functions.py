"""Scripts that create Python functions: what they show, keep and change."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamhouse.duckdb_engine import run_bounded
from streamhouse.errors import QueryError, SqlError, UnsupportedSqlError
from streamhouse.graph.build import graph_of
from streamhouse.runtime.execute import execute
from streamhouse.runtime.script_text import parse_scripts, read_scripts
from streamhouse.runtime.session.ddl import define
from streamhouse.runtime.session.session import Session
from streamhouse.runtime.session.show_statements import describe
from streamhouse.sql.batch.bounded_query import analyze_bounded
from streamhouse.sql.statements.script import parse_script
from streamhouse.sql.syntax import Select, Show

MODULE = """
def shout(text: str) -> str:
    return text.upper() + "!"


def checked(number: int) -> int:
    if number < 0:
        raise ValueError(f"{number} is negative")
    return number
"""
CREATE = (
    "CREATE TEMPORARY FUNCTION shout AS 'script_functions.shout' LANGUAGE PYTHON;"
    "CREATE TEMPORARY FUNCTION checked AS 'script_functions.checked' LANGUAGE PYTHON;"
)
TABLES = "CREATE TABLE people (id INT PRIMARY KEY NOT ENFORCED, name STRING) WITH ('bucket' = '1');"


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "scripts"
    folder.mkdir()
    (folder / "script_functions.py").write_text(MODULE)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield folder
    sys.modules.pop("script_functions", None)


def people(warehouse: Path) -> list[tuple[int, str]]:
    session = Session({"warehouse": str(warehouse)})
    table = session.catalogs.warehouse("default_catalog").table("default.people")
    rows = [row for batch in table.read() for row in batch.to_pylist()]
    return sorted((row["id"], row["name"]) for row in rows)


def test_statements_that_change_tables(tmp_path: Path, module: Path) -> None:
    warehouse = tmp_path / "warehouse"
    done = execute(
        str(warehouse),
        f"{TABLES}{CREATE} INSERT INTO people VALUES (checked(1), shout('a')), (2, 'b'), (3, 'c');"
        "UPDATE people SET name = shout(name) WHERE checked(id) = 2;"
        "DELETE FROM people WHERE shout(name) = 'C!';"
        "MERGE INTO people USING (SELECT 2 AS id UNION ALL SELECT 4) AS s ON people.id = s.id "
        "WHEN MATCHED THEN UPDATE SET name = shout(people.name) "
        "WHEN NOT MATCHED THEN INSERT (id, name) VALUES (s.id, shout('d'))",
        modules=module,
    )
    assert people(warehouse) == [(1, "A!"), (2, "B!!"), (4, "D!")]
    assert (done.inserted, done.updated, done.deleted) == (4, 2, 1)
    with pytest.raises(QueryError, match="raised ValueError: -1 is negative"):
        execute(str(warehouse), f"{CREATE}INSERT INTO people VALUES (5, 'e'), (checked(-1), 'f')")
    assert people(warehouse) == [(1, "A!"), (2, "B!!"), (4, "D!")]


def test_long_lists_of_values(tmp_path: Path, module: Path) -> None:
    warehouse = tmp_path / "warehouse"
    rows = ", ".join(f"(checked({number}), shout('n{number}'))" for number in range(200))
    execute(str(warehouse), f"{TABLES}{CREATE}INSERT INTO people VALUES {rows}", modules=module)
    found = people(warehouse)
    assert len(found) == 200 and found[77] == (77, "N77!")
    bad = rows.replace("checked(150)", "checked(-150)")
    with pytest.raises(QueryError, match="raised ValueError: -150 is negative"):
        execute(str(warehouse), f"{CREATE}INSERT INTO people VALUES {bad}")


def test_they_are_shown_until_they_are_dropped(tmp_path: Path, module: Path) -> None:
    sys.path.append(str(module))
    session, messages = Session({"warehouse": str(tmp_path / "warehouse")}), list[str]()
    session.notice = messages.append
    displayed = []
    for statement in parse_script(
        f"{CREATE} SHOW USER FUNCTIONS; DROP FUNCTION shout; SHOW USER FUNCTIONS;"
        "CREATE FUNCTION Shout AS 'script_functions.shout' LANGUAGE PYTHON;"
        "CREATE FUNCTION IF NOT EXISTS shout AS 'script_functions.shout' LANGUAGE PYTHON;"
        "DROP FUNCTION IF EXISTS other; SHOW FUNCTIONS"
    ):
        if not define(session, statement):
            assert isinstance(statement, Show)
            displayed.append(dict(describe(session, statement)))
    assert displayed[:2] == [
        {"user functions": ["checked", "shout"]}, {"user functions": ["checked"]},
    ]  # fmt: skip
    assert {"checked", "shout", "UPPER"} <= set(displayed[2]["functions"])
    (notice,) = messages
    assert "function shout is not stored in a catalog" in notice


def test_views_that_are_kept_call_none(tmp_path: Path, module: Path) -> None:
    sys.path.append(str(module))
    session = Session({"warehouse": str(tmp_path / "warehouse")})
    kept = "CREATE VIEW loud AS SELECT shout('a') AS a"
    *_, view = statements = parse_script(f"{CREATE}{kept}")
    for statement in statements[:-1]:
        define(session, statement)
    with pytest.raises(UnsupportedSqlError, match="write CREATE TEMPORARY VIEW"):
        define(session, view)
    with pytest.raises(UnsupportedSqlError, match="write CREATE TEMPORARY VIEW"):
        graph_of(statements, {"warehouse": str(tmp_path / "warehouse")})
    *_, view, select = parse_script(
        f"{CREATE}{kept.replace('VIEW', 'TEMPORARY VIEW')}; SELECT shout(a) AS b FROM loud"
    )
    define(session, view)
    assert isinstance(select, Select)
    table = run_bounded(analyze_bounded(select.query, session), lambda scan: pytest.fail("none"))
    assert table.to_pylist() == [{"b": "A!!"}]


def test_several_files_are_one_script(tmp_path: Path, module: Path) -> None:
    first, second = module / "a.sql", tmp_path / "b.sql"
    first.write_text(CREATE)
    second.write_text("SELECT shout('a') AS a;\nCREATE FUNCTION shout AS 'a.b' LANGUAGE PYTHON;")
    files = [str(first), str(second)]
    with pytest.raises(SqlError, match=r"b.sql: line 2, column 17: .* already exists"):
        parse_scripts(files, read_scripts(files, {}))
    second.write_text("SELECT shout('a') AS a")
    statements, origins = parse_scripts(files, read_scripts(files, {}))
    assert (len(statements), origins[-1]) == (3, files[1])
    session = Session({"warehouse": str(tmp_path / "warehouse")})
    for statement in statements[:-1]:
        assert define(session, statement)
    assert str(module) in sys.path
