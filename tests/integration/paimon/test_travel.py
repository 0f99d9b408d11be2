"""Versions, branches and system tables: we read what Paimon's Java core reads."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.integration.paimon.conftest import Lake, sale
from tests.java_reads import java_rows

from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.java.sidecar import Sidecar
from streamhouse.paimon.read.system_tables import SYSTEM_TABLES, TRAVELLING
from streamhouse.sql.plan import AsOf

OPTIONS = {"bucket": "2", "changelog-producer": "input", "snapshot.num-retained.min": "1"}
DAYS = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("day", pa.string(), nullable=False),
        pa.field("v", pa.decimal128(9, 2)),
    ]
)


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sidecar]:
    with Sidecar({"warehouse": str(tmp_path_factory.mktemp("lake"))}) as sidecar:
        yield sidecar


@pytest.fixture(scope="module")
def lake(java: Sidecar) -> Lake:
    """`keyed` has tags `first` (expired) and `late`, a branch `b` with rows of its own, a consumer,
    level-0 and compacted files; `days` is partitioned; `empty` has nothing."""
    lake = Lake(Path(java.options["warehouse"]))
    keyed = lake.create("keyed", OPTIONS)
    for number in range(3):
        lake.commit(keyed, number, sale(("Chad", number, 0.5), (f"C{number}", 1, 1.0)))
    java.call(keyed, lambda _, table: table.createTag("first", 1))
    java.call(keyed, lambda _, table: table.createTag("late", 3))
    java.call(keyed, lambda _, table: table.createBranch("b", "late"))
    lake.commit(f"{keyed}$branch_b", 10, sale(("Mali", 7, 7.0)), user="v")
    java.compact(keyed, full=True)
    kinds = pa.array([3], pa.int8())
    gone = sale(("C0", 0, 0.0))
    lake.commit(keyed, 11, gone.append_column("_VALUE_KIND", kinds))
    (lake.folder / "shop.db" / "keyed" / "consumer").mkdir()
    (lake.folder / "shop.db" / "keyed" / "consumer" / "consumer-me").write_text(
        '{"nextSnapshot" : 3}'
    )
    snapshots = lake.folder / "shop.db" / "keyed" / "snapshot"
    (snapshots / "snapshot-1").unlink()
    (snapshots / "EARLIEST").write_text("2")
    days = lake.create("days", {"bucket": "-1"}, DAYS, (), ("day",))
    prices = pa.array([None, "1.50", "2.25"]).cast(DAYS.field("v").type)
    columns = [pa.array([1, 2, 3]), pa.array(["a", "b", "b"]), prices]
    lake.commit(days, 0, pa.record_batch(columns, schema=DAYS))
    lake.create("empty", OPTIONS)
    return lake


def ours(lake: Lake, name: str, as_of: AsOf | None = None) -> pa.Table:
    table = Warehouse(lake.options).readable(name, as_of)
    return pa.Table.from_batches(list(table.read()), table.read_schema())


def shape(table: pa.Table) -> list[tuple[str, str, bool]]:
    # The name of a list's items is the writer's own affair.
    kinds = [str(field.type).replace("element: ", "item: ") for field in table.schema]
    return [(f.name, kind, f.nullable) for f, kind in zip(table.schema, kinds, strict=True)]


def rows(table: pa.Table) -> list[str]:
    found: list[dict[str, Any]] = table.to_pylist()
    for row in found:
        # The Java core turns a JSON null into this word.
        if "comment" in row and row["comment"] == "null":
            row["comment"] = None
        # A map, written in no order.
        if str(row.get("options") or "").startswith("{"):
            row["options"] = sorted(json.loads(row["options"]).items())
    return sorted(str(row) for row in found)


@pytest.mark.parametrize("name", ["keyed", "keyed$branch_b", "days", "empty"])
def test_system_tables_are_those_of_the_java_core(lake: Lake, java: Sidecar, name: str) -> None:
    for kind in SYSTEM_TABLES:
        table = f"shop.{name}${kind}"
        theirs, mine = java_rows(java, table), ours(lake, table)
        assert (shape(mine), rows(mine)) == (shape(theirs), rows(theirs)), table


def test_the_sample_has_rows_of_each_kind(lake: Lake) -> None:
    filled = {kind for kind in SYSTEM_TABLES if ours(lake, f"shop.keyed${kind}").num_rows}
    assert filled == set(SYSTEM_TABLES)
    assert set(ours(lake, "shop.keyed$audit_log")["rowkind"].to_pylist()) == {"+I", "-D"}


@pytest.mark.parametrize("as_of", [AsOf(snapshot=2), AsOf(tag="first"), AsOf(tag="late")], ids=str)
def test_time_travel_is_that_of_the_java_core(lake: Lake, java: Sidecar, as_of: AsOf) -> None:
    options = (
        {"scan.tag-name": as_of.tag} if as_of.tag else {"scan.snapshot-id": str(as_of.snapshot)}
    )
    for kind in ("", *(f"${kind}" for kind in TRAVELLING)):
        table = f"shop.keyed{kind}"
        theirs, mine = java_rows(java, table, options=options), ours(lake, table, as_of)
        assert (shape(mine), rows(mine)) == (shape(theirs), rows(theirs)), table


def test_a_branch_that_we_write_the_java_core_reads_and_compacts(lake: Lake, java: Sidecar) -> None:
    before = ours(lake, "shop.keyed")
    lake.commit("shop.keyed$branch_b", 12, sale(("Mali", 8, 8.0)), user="v")
    assert java.compact("shop.keyed$branch_b", full=True)
    theirs, mine = java_rows(java, "shop.keyed$branch_b"), ours(lake, "shop.keyed$branch_b")
    assert rows(mine) == rows(theirs) and mine.num_rows == 5
    assert rows(ours(lake, "shop.keyed")) == rows(before) == rows(java_rows(java, "shop.keyed"))
    assert rows(ours(lake, "shop.keyed$branch_b$ro")) == rows(mine)
