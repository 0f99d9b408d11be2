"""Which changes a Paimon table gets when its tables in MySQL are altered."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from streamhouse.connectors.mysql_cdc.binlog.statements import ANY
from streamhouse.errors import OptionError, SchemaChangeError
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.runtime.sync.mapping.reconciliation import Reconciliation, Wanted
from streamhouse.runtime.sync.options import EVENTS, SchemaChanges
from streamhouse.sql.plan import Column

BEFORE = {"id": "INT", "v": "INT", "name": "VARCHAR(20)"}
Plan = Callable[..., list[str]]


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    """Plans, applies and returns the columns; planning again must find nothing to do."""
    warehouse = Warehouse(str(tmp_path))
    warehouse.create_database("d")
    columns = [Column("id", "INT", nullable=False), Column("v", "INT", nullable=False),
               Column("name", "VARCHAR(20)"), Column("own", "DATE")]  # fmt: skip
    warehouse.create_table("d", "t", columns, ["id"])

    def planned(text: str, mode: str = "try_evolve", **how: Any) -> list[str]:
        parts = [part.strip().split(" ", 1) for part in text.split("|")]
        wanted = Wanted(
            [Column(name, kind, name != "id") for name, kind in parts],
            before=BEFORE,
            statement="ALTER",
            **how,
        )
        rules = SchemaChanges.of(mode)
        first = Reconciliation(warehouse.table("d.t"), wanted, rules)
        if first.changes:
            warehouse.alter_table("d.t", *first.changes)
        table = warehouse.table("d.t")
        again = Reconciliation(table, wanted, rules)
        assert again.changes == []
        replaced = [f"replaced {name}" for name in first.replaced]
        return [f"{column.name} {column.type}" for column in table.columns] + replaced

    return planned


def test_the_same_columns_in_the_same_order(plan: Plan) -> None:
    assert plan("id INT|x DATE|name VARCHAR(20)|v BIGINT") == [
        "id INT", "x DATE", "name VARCHAR(20)", "v BIGINT", "own DATE"
    ]  # fmt: skip
    assert plan("v BIGINT|id INT|x DATE") == ["v BIGINT", "id INT", "x DATE", "own DATE"]


def test_renamed_columns_keep_their_values(plan: Plan) -> None:
    renamed = {"v": "w", "name": "label"}
    text = "id INT|w INT|label VARCHAR(20)|v DOUBLE"
    assert plan(text, renamed=renamed) == [
        "id INT", "w INT", "label VARCHAR(20)", "v DOUBLE", "own DATE"
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["rowkind", "_KEY_x", "_LEVEL", "OWN"])
def test_a_column_that_paimon_cannot_have_is_left_out(plan: Plan, name: str) -> None:
    same = ["id INT", "v INT", "name VARCHAR(20)", "own DATE"]
    assert plan(f"id INT|v INT|name VARCHAR(20)|{name} INT") == same
    assert plan(f"id INT|v INT|name VARCHAR(20)|{name} INT", "lenient") == same
    with pytest.raises(SchemaChangeError, match=f"Paimon cannot have column '{name}'"):
        plan(f"id INT|v INT|name VARCHAR(20)|{name} INT", "evolve")


@pytest.mark.parametrize("mode", ["try_evolve", "lenient", "evolve"])
def test_another_case_is_a_rename(plan: Plan, mode: str) -> None:
    found = plan("id INT|V INT|name VARCHAR(20)", mode, renamed={"v": "V"})
    assert found == ["id INT", "V INT", "name VARCHAR(20)", "own DATE"]


def test_renamed_in_one_shard_only(plan: Plan) -> None:
    found = plan("id INT|v INT|w INT", renamed={"v": "w"}, shared={"v", "id"}, ordered=False)
    assert found == ["id INT", "v INT", "w INT", "own DATE", "replaced w"]


def test_lenient_keeps_dropped_columns(plan: Plan) -> None:
    found = plan("id INT|w INT|name DATE", "lenient", renamed={"v": "w"})
    assert found == [
        "id INT", "v INT", "name_old VARCHAR(20)", "own DATE", "w INT", "name DATE",
        "replaced w", "replaced name",
    ] or found == [
        "id INT", "v INT", "name STRING", "own DATE", "w INT", "replaced w"
    ]  # fmt: skip


def test_ignore_alters_nothing(plan: Plan) -> None:
    found = plan("id INT|w INT|name INT|x DATE", "ignore", renamed={"v": "w"})
    assert found == ["id INT", "v INT", "name VARCHAR(20)", "own DATE"]


def test_types_of_another_kind(plan: Plan) -> None:
    assert plan("id INT|v VARCHAR(9)|name VARCHAR(5)") == [
        "id INT", "v STRING", "name VARCHAR(20)", "own DATE"
    ]  # fmt: skip
    assert plan("id INT|v STRING|name INT") == [
        "id INT", "v STRING", "name INT", "own DATE", "replaced name"
    ]  # fmt: skip
    for kind in ("SMALLINT", "VARCHAR(9)"):
        with pytest.raises(SchemaChangeError, match="'ALTER': it makes column 'v'"):
            plan(f"id INT|v {kind}|name VARCHAR(20)", "evolve")


def test_a_column_that_is_exchanged(plan: Plan) -> None:
    found = plan("id INT|v BINARY(3)|name VARCHAR(20)", "evolve", dropped={ANY})
    assert found[:2] == ["id INT", "v BINARY(3)"] and "replaced v" in found


def test_columns_of_an_attempt_that_was_not_committed(plan: Plan) -> None:
    found = plan("id INT|name VARCHAR(20)|v INT|x INT", leftover={"x", "gone"})
    assert found == ["id INT", "name VARCHAR(20)", "v INT", "x INT", "own DATE"]
    found = plan("id INT|name VARCHAR(20)|v INT|x DATE", "evolve", leftover={"x"})
    assert found == [
        "id INT", "name VARCHAR(20)", "v INT", "x DATE", "own DATE", "replaced x"
    ]  # fmt: skip
    found = plan("id INT|name VARCHAR(20)|v INT", leftover={"x"})
    assert found == ["id INT", "name VARCHAR(20)", "v INT", "own DATE"]


def test_a_key_cannot_change(plan: Plan) -> None:
    assert plan("id BIGINT|v INT|name VARCHAR(20)")[0] == "id INT"
    for text, mode in (("id BIGINT|v INT", "evolve"), ("v INT|name VARCHAR(20)", "try_evolve")):
        with pytest.raises(SchemaChangeError, match="key"):
            plan(text, mode)


def test_options_have_the_names_of_flink_cdc() -> None:
    assert SchemaChanges.of(None).behavior == "try_evolve"
    assert SchemaChanges.of("TRY-EVOLVE") == SchemaChanges.of("try_evolve")
    lenient = SchemaChanges.of("lenient")
    assert lenient.events == set(EVENTS) - {"drop.table", "truncate.table"}
    assert SchemaChanges.of("lenient", ["drop"]).events == {
        "drop.column", "drop.table", "create.table"
    }  # fmt: skip
    chosen = SchemaChanges.of("evolve", ["create.table", "column"], ["drop.column"])
    assert chosen.events == {"create.table", "add.column", "alter.column.type", "rename.column"}
    with pytest.raises(OptionError, match="--schema-change-behavior.*not one of evolve"):
        SchemaChanges.of("evolved")
    with pytest.raises(OptionError, match="--exclude-schema-changes.*drop.colum"):
        SchemaChanges.of("evolve", (), ["drop.colum2"])
