"""Names that scripts for Flink use, and notices about their declarations."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.runtime.test_script import CollectedOutput

from streamhouse.errors import OptionError, TableError
from streamhouse.graph.build import graph_of
from streamhouse.runtime.script import ScriptOptions, ScriptRunner
from streamhouse.runtime.script_text import read_script
from streamhouse.runtime.session.session import Session
from streamhouse.sql.statements.script import parse_script
from streamhouse.sql.syntax import CreateTable

MADE = """
  (id INT, at_ TIMESTAMP(3), WATERMARK FOR at_ AS at_ - INTERVAL '5' SECOND) WITH (
  'connector' = 'datagen', 'fields.id.kind' = 'sequence', 'fields.id.start' = '1',
  'fields.id.end' = '3');
"""
LAKE = "CREATE CATALOG lake WITH ('type' = 'paimon', 'warehouse' = '{path}'); "


def run(text: str, warehouse: Path | None = None) -> CollectedOutput:
    output = CollectedOutput()
    given = None if warehouse is None else {"warehouse": str(warehouse)}
    ScriptRunner(ScriptOptions("s.sql", given, until_caught_up=True), output).run(
        parse_script(text)
    )
    return output


@pytest.mark.parametrize(
    "select",
    [
        "SELECT id FROM default_catalog.default_database.made",
        "USE CATALOG default_catalog; SELECT id FROM made",
        "USE default_catalog.default_database; SELECT id FROM seen",
        "USE CATALOG default_catalog; SELECT id FROM `default_database`.seen",
        "SELECT id FROM default_catalog.`default`.made",
    ],
)
def test_temporary_tables_may_be_in_flinks_own_catalog(tmp_path: Path, select: str) -> None:
    view = "CREATE TEMPORARY VIEW seen AS SELECT id, PROCTIME() AS p FROM made; "
    text = f"CREATE TABLE made {MADE} {view}" + LAKE + "USE CATALOG lake; " + select
    output = run(text.format(path=tmp_path))
    assert [row["id"] for row in output.changed] == [1, 2, 3]
    assert not output.notices


def test_flinks_database_is_the_default_one_of_a_given_warehouse(tmp_path: Path) -> None:
    text = f"USE default_catalog.default_database; CREATE TABLE made {MADE}"
    output = run(text + "SELECT id FROM default_database.made", tmp_path)
    assert len(output.changed) == 3
    # A database of that name that is there is meant itself.
    session = Session({"warehouse": str(tmp_path)})
    assert session.full(("default_database", "t")) == ("default_catalog", "default", "t")
    (tmp_path / "default_database.db").mkdir()
    assert session.full(("default_database", "t"))[1] == "default_database"


def test_tables_that_last_need_a_warehouse(tmp_path: Path) -> None:
    with pytest.raises(TableError, match="there is no catalog yet: write CREATE CATALOG"):
        run("CREATE TABLE t (id INT)")
    text = LAKE.format(path=tmp_path) + "CREATE TABLE t (id INT)"
    with pytest.raises(TableError, match="no warehouse is given: write CREATE CATALOG"):
        run(text)


def test_options_of_a_connector_that_change_nothing_are_reported() -> None:
    given = {
        "connector": "mysql-cdc", "hostname": "db", "username": "u", "password": "hidden-word",
        "database-name": "d", "table-name": "t",
        "scan.incremental.close-idle-reader.enabled": "true",
    }  # fmt: skip
    options = ", ".join(f"'{key}' = '{value}'" for key, value in given.items())
    text = "CREATE TEMPORARY TABLE t (id INT PRIMARY KEY NOT ENFORCED) WITH ({})"
    messages: list[str] = []
    session = Session(None)
    session.notice = messages.append
    (statement,) = parse_script(text.format(options))
    assert isinstance(statement, CreateTable)
    session.tables.create(statement)
    assert messages == [
        "table default.t: option 'scan.incremental.close-idle-reader.enabled' has no effect here: "
        "readers end with their chunk"
    ]
    (wrong,) = parse_script(text.format(options.replace("close-idle", "closse-idle")))
    assert isinstance(wrong, CreateTable)
    with pytest.raises(
        OptionError, match="unknown option 'scan.incremental.closse-idle-reader.enabled'"
    ):
        Session(None).tables.create(wrong)


def test_a_script_is_drawn_with_its_partition(tmp_path: Path) -> None:
    text = (
        "CREATE TABLE days (id INT, dt STRING) PARTITIONED BY (dt); "
        f"CREATE TEMPORARY TABLE made {MADE}"
        "INSERT INTO days PARTITION (dt = '2026-05-01') SELECT id FROM made"
    )
    found = graph_of(parse_script(text))
    assert [edge.kind for edge in found.edges] == ["reads", "writes"]


def test_a_script_may_begin_with_a_mark(tmp_path: Path) -> None:
    script = tmp_path / "s.sql"
    script.write_bytes("\ufeffSELECT '会员' AS kind".encode())
    assert read_script(str(script)) == "SELECT '会员' AS kind"
