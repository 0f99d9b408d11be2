"""Deletes the lineage of expired snapshots, and keeps what an audit needs."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from tests.unit.runtime.test_batch_planner import Tables

from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.write.commit import TableCommitter
from streamhouse.paimon.write.table_writer import TableWriter
from streamhouse.runtime.state import lineage as lineage_module
from streamhouse.runtime.state.lineage import COLUMNS, BatchRecord, Lineage, read_lineage
from streamhouse.sql.plan import Column

USER, OTHER = "0f0e0d0c-0000-4000-8000-000000000001", "0f0e0d0c-0000-4000-8000-000000000002"
VIEW, LINEAGE = "db.sales", "db.sales__lineage"
KEY = ("query_id", "batch_id")


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    made = Warehouse(str(tmp_path))
    made.create_database("db")
    made.create_table("db", "sales", [Column("id", "INT")], ["id"], options={"bucket": "1"})
    made.create_table("db", "sales__lineage", COLUMNS, KEY, options={"bucket": "1"})
    return made


def commit(
    warehouse: Warehouse, table: str, rows: pa.Table, identifier: int, user: str = USER
) -> None:
    writer = TableWriter(warehouse.options, table, user)
    for batch in rows.to_batches():
        writer.write(batch)
    messages = writer.prepare(identifier)
    writer.close()
    assert TableCommitter(warehouse.options, table, user).commit(identifier, messages)


def test_what_has_expired_is_dead(warehouse: Warehouse) -> None:
    table = warehouse.table(VIEW)
    assert lineage_module.dead_before(table, USER) is None
    row = pa.table({"id": pa.array([1], pa.int32())})
    for number, user in enumerate([USER, USER, OTHER, USER, USER]):
        commit(warehouse, VIEW, row, 10 * number, user)
    assert lineage_module.dead_before(table, USER) is None
    snapshots = Path(table.location) / "snapshot"
    for gone in (1, 2):
        (snapshots / f"snapshot-{gone}").unlink()
    (snapshots / "EARLIEST").write_text("3")
    assert lineage_module.dead_before(table, USER) == 30
    assert lineage_module.dead_before(table, "nobody") is None


def test_dead_rows_go_and_definitions_in_use_move_on(warehouse: Warehouse) -> None:
    def row(user: str, batch: int, fingerprint: str, reported: bool) -> dict[str, object]:
        definition = f"definition {fingerprint}" if reported else None
        values = {"query_id": user, "batch_id": batch, "fingerprint": fingerprint}
        return {**{c.name: None for c in COLUMNS}, **values, "definition": definition}

    rows = [row(USER, n, "old" if n < 50 else "new", n in (0, 50)) for n in range(300)]
    rows += [row(OTHER, n, "its", n == 0) for n in range(300)]
    schema = warehouse.table(LINEAGE).arrow_schema
    commit(warehouse, LINEAGE, pa.Table.from_pylist(rows, schema=schema), 299)
    table = warehouse.table(LINEAGE)
    assert lineage_module.removals(table, USER, lineage_module.LEAST - 1) is None
    removed = lineage_module.removals(table, USER, 200)
    assert removed is not None
    commit(warehouse, LINEAGE, removed, 300)
    address = TableAddress(warehouse.options, LINEAGE)
    left = read_lineage(address)
    own = [one for one in left if one["query_id"] == USER]
    assert [one["batch_id"] for one in own] == list(range(200, 300))
    assert [one["definition"] for one in own] == ["definition new", *([None] * 99)]
    assert {one["fingerprint"] for one in own} == {"new"}
    assert len(left) == len(own) + 300
    assert lineage_module.removals(table, USER, 200) is None


def test_a_running_query_removes_what_is_dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = Tables(tmp_path).spec
    lineage = Lineage(spec)

    def note(*batches: int) -> None:
        for batch in batches:
            end = {"batch": batch, "now": batch, "source": {}, "dims": {}, "pending": 0}
            lineage.add(BatchRecord(batch, {}, end, 1, 0))
        lineage.flush()

    note(*range(150))
    monkeypatch.setattr(lineage_module, "EVERY_S", 0.0)
    monkeypatch.setattr(lineage_module, "dead_before", lambda target, user: 120)
    note(150)
    # What it writes after is as before.
    note(151)
    left = read_lineage(lineage.address)
    assert [one["batch_id"] for one in left] == list(range(120, 152))
    assert [one["definition"] is None for one in left] == [False, *([True] * 31)]
