"""A dry run shows what a script would create, and writes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamhouse import execute
from streamhouse.errors import TableError
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.runtime.session.draft_warehouse import DraftWarehouse
from streamhouse.sql.plan import Column
from streamhouse.sql.schema_changes import RenameColumn


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
