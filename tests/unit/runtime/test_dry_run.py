"""A dry run shows what a script would create, and writes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamhouse import execute
from streamhouse.errors import OptionError, StreamhouseError, TableError
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.runtime.session.ddl import define
from streamhouse.runtime.session.dry_run import DraftSession, DraftWarehouse
from streamhouse.runtime.session.session import Session
from streamhouse.sql.plan import Column
from streamhouse.sql.schema_changes import (
    AddColumn,
    ColumnPosition,
    DropColumn,
    MoveColumn,
    RenameColumn,
    ResetTableOption,
    SchemaChange,
    SetColumnComment,
    SetDefault,
    SetNullable,
    SetTableOption,
    SetType,
)
from streamhouse.sql.statements.script import parse_script


@pytest.fixture
def draft(tmp_path: Path) -> DraftWarehouse:
    execute(
        str(tmp_path), "CREATE DATABASE d; USE d; CREATE TABLE t (i INT); CREATE TABLE u (i INT);"
    )
    return DraftWarehouse({"warehouse": str(tmp_path)})


def test_a_database_with_tables_is_dropped_with_cascade_only(draft: DraftWarehouse) -> None:
    with pytest.raises(TableError, match=r"database 'd' still has tables \(t, u\)"):
        draft.drop_database("d")
    draft.drop_database("d", cascade=True)
    assert draft.databases() == ["default"]
    with pytest.raises(TableError, match="there is no database 'd'"):
        draft.tables("d")
    with pytest.raises(TableError, match="there is no database 'd'"):
        draft.drop_database("d")
    draft.drop_database("d", if_exists=True)
    assert Warehouse({"warehouse": draft.path}).tables("d") == ["t", "u"]


def test_a_database_is_empty_after_it_is_created_again(draft: DraftWarehouse) -> None:
    draft.drop_table("d", "t")
    draft.drop_table("d", "u")
    draft.drop_database("d")
    draft.create_database("d")
    assert draft.tables("d") == []
    draft.create_table("d", "v", [Column("i", "INT")])
    assert draft.tables("d") == ["v"]
    assert not draft.exists("d", "t")


def test_a_renamed_column_stays_in_the_primary_key(draft: DraftWarehouse) -> None:
    draft.create_table("d", "k", [Column("id", "INT", False), Column("n", "INT")], ("id",))
    draft.alter_table("d.k", RenameColumn(("id",), "key"))
    assert draft.readable("d.k").primary_key == ("key",)


def test_an_altered_table_keeps_the_rows_that_decide_about_options(draft: DraftWarehouse) -> None:
    execute(
        draft.path,
        "CREATE TABLE d.s (k INT PRIMARY KEY NOT ENFORCED, v BIGINT) WITH ("
        "'merge-engine' = 'aggregation', 'fields.v.aggregate-function' = 'sum');"
        "INSERT INTO d.s VALUES (1, 2);",
    )
    draft.alter_table("d.s", RenameColumn(("v",), "total"))
    with pytest.raises(OptionError, match="once rows have values of 'total'"):
        draft.alter_table("d.s", SetTableOption("fields.total.aggregate-function", "max"))


COLUMNS = [
    Column("id", "INT", nullable=False),
    Column("day_", "STRING", nullable=False),
    Column("n", "INT", comment="a number"),
    Column("r", "ROW<a INT, b ARRAY<STRING>>"),
    Column("t", "TIMESTAMP(3)"),
]
NOT_NULL_DISABLED = "alter-column-null-to-not-null.disabled"
ALTERATIONS: list[list[SchemaChange]] = [
    [SetNullable(("n",), True)],
    [SetNullable(("n",), False)],
    [SetTableOption(NOT_NULL_DISABLED, "false"), SetNullable(("n",), False)],
    [SetNullable(("id",), True)],
    [SetNullable(("id",), True, implied=True)],
    [MoveColumn("t", ColumnPosition())],
    [MoveColumn("id", ColumnPosition("r"))],
    [MoveColumn("n", ColumnPosition("n"))],
    [MoveColumn("n", ColumnPosition("none"))],
    [RenameColumn(("day_",), "x")],
    [RenameColumn(("id",), "x")],
    [RenameColumn(("n",), "id")],
    [RenameColumn(("none",), "x")],
    [RenameColumn(("none",), "x", if_exists=True)],
    [RenameColumn(("r", "a"), "c")],
    [RenameColumn(("n",), "m"), SetType(("m",), "BIGINT"), MoveColumn("m", ColumnPosition())],
    [DropColumn(("id",))],
    [DropColumn(("day_",))],
    [DropColumn(("n",))],
    [DropColumn(("r", "b"))],
    [DropColumn(("r", "none"))],
    [DropColumn(("none",), if_exists=True)],
    [SetType(("n",), "BIGINT")],
    [SetType(("n",), "SMALLINT")],
    [SetType(("id",), "BIGINT")],
    [SetType(("r", "a"), "BIGINT")],
    [SetType(("r", "a"), "TINYINT")],
    [SetType(("r", "b", "element"), "BIGINT")],
    [AddColumn(Column("x", "DECIMAL(5, 2)", comment="new"), ColumnPosition("id"))],
    [AddColumn(Column("x", "INT", nullable=False))],
    [AddColumn(Column("n", "INT"))],
    [AddColumn(Column("n", "INT"), if_not_exists=True)],
    [AddColumn(Column("c", "TIMESTAMP_LTZ(3)"), parent=("r",))],
    [SetColumnComment(("n",), "other")],
    [SetDefault(("none",), "1")],
    [SetTableOption("bucket", "3")],
    [SetTableOption("merge-engine", "partial-update")],
    [SetTableOption("buckett", "3")],
    [SetTableOption("primary-key", "n")],
    [SetTableOption("sequence.field", "n"), RenameColumn(("n",), "m")],
    [SetTableOption("sequence.field", "n"), DropColumn(("n",))],
    [SetTableOption("snapshot.num-retained.max", "9"), ResetTableOption("bucket")],
]


def outcome(warehouse: Warehouse, identifier: str, changes: list[SchemaChange]) -> object:
    """The table after changes, or the error that they raise."""
    try:
        warehouse.alter_table(identifier, *changes)
    except StreamhouseError as error:
        return type(error).__name__, str(error)
    table = warehouse.readable(identifier)
    return list(table.columns), table.primary_key, table.partition_keys, dict(table.options)


@pytest.mark.parametrize("changes", ALTERATIONS, ids=lambda changes: str(changes[-1])[:60])
def test_a_draft_is_altered_as_a_table_is(tmp_path: Path, changes: list[SchemaChange]) -> None:
    (tmp_path / "real").mkdir()
    real = Warehouse({"warehouse": str(tmp_path / "real")})
    created = DraftWarehouse({"warehouse": str(tmp_path / "draft")})
    for warehouse in (real, created):
        warehouse.create_database("d")
        warehouse.create_table("d", "t", COLUMNS, ("id", "day_"), ("day_",), {"bucket": "2"})
    stored = DraftWarehouse({"warehouse": str(tmp_path / "real")})
    drafted = [outcome(one, "d.t", changes) for one in (created, stored)]
    expected = outcome(real, "d.t", changes)
    assert drafted == [expected, expected]


def test_a_draft_is_not_renamed_to_an_existing_table(draft: DraftWarehouse) -> None:
    with pytest.raises(TableError, match=r"table 'd.u' already exists"):
        draft.rename_table("d.t", "d.u")
    with pytest.raises(TableError, match="there is no database 'e'"):
        draft.rename_table("d.t", "e.t")
    draft.rename_table("d.t", "d.w")
    assert draft.tables("d") == ["u", "w"]
    assert draft.readable("d.w").identifier == "d.w"


def test_a_script_renames_a_table_to_one_that_it_has_dropped_or_renamed(tmp_path: Path) -> None:
    execute(
        str(tmp_path),
        "CREATE DATABASE d; USE d; CREATE TABLE t (i INT); CREATE TABLE u (j INT)",
    )
    execute(
        str(tmp_path),
        "USE d; ALTER TABLE t RENAME TO x; ALTER TABLE u RENAME TO t; ALTER TABLE x RENAME TO u",
    )
    warehouse = Warehouse(str(tmp_path))
    assert [warehouse.table(f"d.{name}").columns[0].name for name in "tu"] == ["j", "i"]
    execute(str(tmp_path), "USE d; DROP TABLE u; ALTER TABLE t RENAME TO u")
    assert warehouse.tables("d") == ["u"]


@pytest.mark.parametrize(
    "script",
    [
        "CREATE VIEW v AS SELECT i FROM t; CREATE VIEW w AS SELECT i FROM v",
        "CREATE TEMPORARY VIEW v AS SELECT i FROM t; CREATE VIEW w AS SELECT i FROM v",
        "CREATE VIEW v AS SELECT i FROM t; DROP VIEW v; CREATE TEMPORARY VIEW v AS "
        "SELECT i FROM t; CREATE VIEW w AS SELECT i FROM v",
        "CREATE VIEW v AS SELECT i FROM t; CREATE TEMPORARY VIEW v AS SELECT i + 1 AS j FROM t; "
        "CREATE TEMPORARY VIEW w AS SELECT j FROM v",
        "CREATE VIEW v AS SELECT i FROM t; CREATE TEMPORARY VIEW v AS SELECT i + 1 AS j FROM t; "
        "DROP VIEW v; CREATE VIEW w AS SELECT i FROM v",
        "CREATE TEMPORARY VIEW v AS SELECT i FROM t; CREATE VIEW v AS SELECT i FROM t",
        "CREATE VIEW v AS SELECT i FROM t; CREATE VIEW v AS SELECT i FROM t",
        "CREATE VIEW v AS SELECT i FROM t; DROP TEMPORARY VIEW v",
        "CREATE VIEW v AS SELECT i FROM t; DROP VIEW v; DROP VIEW v",
        "CREATE VIEW v AS SELECT i FROM t; DROP VIEW v; CREATE VIEW v AS SELECT i AS j FROM t",
        "CREATE VIEW e.v AS SELECT i FROM t",
        "CREATE VIEW t AS SELECT i FROM u",
        "DROP VIEW stored; CREATE VIEW w AS SELECT i FROM stored",
        "DROP VIEW stored; CREATE VIEW stored AS SELECT i AS j FROM t",
        "CREATE TEMPORARY VIEW stored AS SELECT i AS j FROM t; DROP VIEW stored; "
        "CREATE VIEW w AS SELECT i FROM stored",
        "DROP VIEW stored; DROP TABLE t; DROP TABLE u; DROP DATABASE d",
        "DROP TABLE t; DROP TABLE u; DROP DATABASE d",
        "CREATE DATABASE e; CREATE VIEW e.v AS SELECT i FROM t; DROP DATABASE e",
        "CREATE DATABASE e; CREATE VIEW e.v AS SELECT i FROM t; DROP VIEW e.v; DROP DATABASE e",
    ],
)
def test_a_draft_treats_views_as_a_run_does(tmp_path: Path, script: str) -> None:
    execute(
        str(tmp_path), "CREATE DATABASE d; USE d; CREATE TABLE t (i INT); CREATE TABLE u (i INT);"
        "CREATE VIEW stored AS SELECT i FROM t;",
    )  # fmt: skip
    options = {"warehouse": str(tmp_path)}
    drafted = definitions(DraftSession(options), script)
    assert drafted == definitions(Session(options), script)


def definitions(session: Session, script: str) -> object:
    """The views after a script; or the error of the statement that failed."""
    try:
        for statement in parse_script(f"USE d; {script}"):
            define(session, statement)
    except StreamhouseError as error:
        return str(error)
    catalog = session.full(("v",))[0]
    views = []
    for database in session.catalogs.warehouse(catalog).databases():
        for name in session.views.listed(catalog, database):
            view = session.view((database, name))
            assert view is not None
            columns = [(column.name, column.type) for column in view.columns]
            views.append((view.name, columns, view.query))
    return views
