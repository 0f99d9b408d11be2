"""A small warehouse on disk, written by the official Rust core."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.sql.plan import Column

KINDS = ("+I", "-U", "+U", "-D")
SALES = (Column("country", "STRING"), Column("orders", "BIGINT"), Column("revenue", "DOUBLE"))
ORDERS = (Column("id", "BIGINT"), Column("item", "STRING"), Column("price", "DECIMAL(10, 2)"))


class Shop:
    """Tables made and written in one line each; every write is one snapshot."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.warehouse = Warehouse(str(path))
        self.warehouse.create_database("shop")
        self._identifiers = itertools.count()

    def create(
        self,
        name: str,
        columns: Sequence[Column],
        key: Sequence[str] = (),
        options: Mapping[str, str] | None = None,
        database: str = "shop",
        unchecked: bool = False,
    ) -> str:
        """Create a table; `unchecked`: with what other engines may store, and we refuse."""
        bucket = {"bucket": "1" if key else "-1"} | dict(options or {})
        self.warehouse.create_table(database, name, columns, key, (), bucket, copied=unchecked)
        return f"{database}.{name}"

    def sales(self, name: str = "sales") -> str:
        return self.create(name, SALES, ["country"])

    def orders(self, name: str = "orders") -> str:
        return self.create(name, ORDERS)

    def write(self, table: str, *rows: Sequence[Any], kinds: Sequence[str] | None = None) -> int:
        """Commit rows, given by position; returns the snapshot's id."""
        opened = self.warehouse.table(table)
        builder = opened.rust.new_stream_write_builder().with_commit_user("shop")
        identifier = next(self._identifiers)
        writer = builder.new_write()
        writer.write_arrow(self._batch(opened.arrow_schema, rows, kinds))
        builder.new_commit().commit(identifier, writer.prepare_commit(True, identifier))
        writer.close()
        latest = self.warehouse.table(table).latest_snapshot_id()
        assert latest is not None
        return latest

    def overwrite(self, table: str, *rows: Sequence[Any]) -> None:
        """Replace the table's rows in one OVERWRITE commit."""
        opened = self.warehouse.table(table)
        builder = opened.rust.new_batch_write_builder().with_overwrite()
        writer = builder.new_write()
        writer.write_arrow(self._batch(opened.arrow_schema, rows, None))
        builder.new_commit().commit(writer.prepare_commit())
        writer.close()

    def tag(self, table: str, name: str, snapshot: int) -> None:
        self._official(table).create_tag(name, snapshot)

    def branch(self, table: str, name: str, tag: str) -> None:
        """A branch that begins as the tag is."""
        self._official(table).branch_manager().create_branch(name, tag)

    def _official(self, table: str) -> Any:
        from pypaimon import CatalogFactory

        return CatalogFactory.create({"warehouse": str(self.path)}).get_table(table)

    @staticmethod
    def _batch(
        schema: pa.Schema, rows: Sequence[Sequence[Any]], kinds: Sequence[str] | None
    ) -> pa.RecordBatch:
        columns = list(zip(*rows, strict=True))
        arrays = [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)]
        if kinds is not None:
            numbers = pa.array([KINDS.index(kind) for kind in kinds], pa.int8())
            schema = schema.append(pa.field("_VALUE_KIND", pa.int8(), nullable=False))
            arrays.append(numbers)
        return pa.RecordBatch.from_arrays(arrays, schema=schema)


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    """An empty warehouse with the database `shop`."""
    return Shop(tmp_path / "warehouse")
