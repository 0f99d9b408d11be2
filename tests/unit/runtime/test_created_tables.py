"""Tables that a sync has created and not used yet are told from those of the user."""

from __future__ import annotations

import uuid
from pathlib import Path

import pyarrow as pa

from streamhouse.connectors.mysql_cdc.database.table_sets import Shape, TableSets
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.write.commit import TableCommitter
from streamhouse.paimon.write.table_writer import TableWriter
from streamhouse.runtime.sync.mapping.targets import Targets
from streamhouse.runtime.sync.options import sync_database_options
from streamhouse.sql.plan import Column


def test_only_an_unwritten_table_of_the_noted_columns_is_dropped(tmp_path: Path) -> None:
    warehouse = Warehouse(str(tmp_path / "warehouse"))
    warehouse.create_database("d")
    columns = [Column("id", "INT", nullable=False), Column("v", "INT")]
    names = {"d.same", "d.other", "d.written", "d.more"}
    for name in names:
        warehouse.create_table("d", name.partition(".")[2], columns, ["id"])
    _write(warehouse, "d.written")
    noted: Shape = (("id", "v"), ("id",))
    created = {"d.same": noted, "d.other": (("id",), ("id",)), "d.written": noted}
    TableSets(tmp_path).add([], "UTC", created=created)
    TableSets(tmp_path).add([], "UTC")
    conf = {"hostname": "h", "username": "u", "password": "p", "database-name": "s"}
    options = sync_database_options(warehouse.options, "d", conf)
    assert Targets(options, print)._dropped(names) == set()
    targets = Targets(options, print, TableSets(tmp_path))
    assert targets._dropped(names - {"d.same"}) == set()
    assert targets._dropped(names) == {"d.same"}
    assert set(warehouse.tables("d")) == {"other", "written", "more"}
    TableSets(tmp_path).add([], "UTC", created={})
    assert TableSets(tmp_path).latest().created == {}


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
