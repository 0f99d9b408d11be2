"""Reads only the new rows of a growing lineage table."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.write.commit import TableCommitter
from streamhouse.paimon.write.table_writer import TableWriter
from streamhouse.runtime.state.lineage import COLUMNS, LineageFeed

USER = "0f0e0d0c-0000-4000-8000-000000000001"
ADDRESS = "db.sales__lineage"


def write(options: dict[str, str], identifier: int, batches: list[int]) -> None:
    schema = Warehouse(options).table(ADDRESS).arrow_schema
    rows = [{"query_id": USER, "batch_id": batch} for batch in batches]
    missing = {name: None for name in schema.names}
    writer = TableWriter(options, ADDRESS, USER)
    writer.write(pa.RecordBatch.from_pylist([missing | row for row in rows], schema=schema))
    messages = writer.prepare(identifier)
    writer.close()
    TableCommitter(options, ADDRESS, USER).commit(identifier, messages)


def test_each_row_is_read_once(tmp_path: Path) -> None:
    options = {"warehouse": str(tmp_path)}
    warehouse = Warehouse(options)
    warehouse.create_database("db")
    key = ("query_id", "batch_id")
    warehouse.create_table("db", "sales__lineage", COLUMNS, key, options={"bucket": "1"})
    feed = LineageFeed(TableAddress(options, ADDRESS))

    def fresh() -> list[int]:
        return [row["batch_id"] for row in feed.fresh()]

    assert fresh() == []
    write(options, 1, [1, 0])
    write(options, 2, [2])
    assert fresh() == [0, 1, 2]
    assert fresh() == []
    write(options, 4, [4, 3])
    write(options, 5, [5])
    assert fresh() == [3, 4, 5]
