"""Tables that a sync has created and not used yet are told from those of the user."""

from __future__ import annotations

import uuid
from pathlib import Path

import pyarrow as pa

from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.write.commit import TableCommitter
from streamhouse.paimon.write.table_writer import TableWriter
from streamhouse.runtime.sync.mapping.targets import CreatedTables
from streamhouse.sql.plan import Column


def test_only_an_unwritten_table_of_the_noted_columns(tmp_path: Path) -> None:
    warehouse = Warehouse(str(tmp_path / "warehouse"))
    warehouse.create_database("d")
    columns = [Column("id", "INT", nullable=False), Column("v", "INT")]
    for name in ("same", "other"):
        warehouse.create_table("d", name, columns, ["id"])
    created = CreatedTables(tmp_path / "checkpoint")
    assert not created.has(warehouse.table("d.same"))
    created.note({"d.same": (["id", "v"], ["id"]), "d.other": (["id"], ["id"])})
    created.note({"d.more": (["id"], ["id"])})
    again = CreatedTables(tmp_path / "checkpoint")
    assert again.has(warehouse.table("d.same")) and not again.has(warehouse.table("d.other"))
    _write(warehouse, "d.same")
    assert not again.has(warehouse.table("d.same"))
    again.clear()
    again.clear()
    assert not created.has(warehouse.table("d.other"))


def _write(warehouse: Warehouse, name: str) -> None:
    user = str(uuid.uuid4())
    writer = TableWriter(warehouse.options, name, user)
    try:
        schema = warehouse.table(name).arrow_schema
        writer.write(pa.RecordBatch.from_pylist([{"id": 1, "v": 1}], schema=schema))
        messages = writer.prepare(1)
    finally:
        writer.close()
    TableCommitter(warehouse.options, name, user).commit(1, messages)
