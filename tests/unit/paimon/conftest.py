"""A warehouse in a temporary folder, and the few steps that every test of it takes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pytest
from pypaimon import CatalogFactory

from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.write.commit import TableCommitter
from streamhouse.paimon.write.table_writer import TableWriter, file_prefix
from streamhouse.sql.plan import Column

USER = "0f8fad5b-d9cb-469f-a165-70867728950e"
Row: TypeAlias = tuple[Any, ...]


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    made = Warehouse(str(tmp_path / "warehouse"))
    made.create_database("db")
    return made


class Lab:
    """Tables of (id BIGINT, v INT), written batch by batch as one query would."""

    def __init__(self, warehouse: Warehouse) -> None:
        self.warehouse = warehouse

    def make(
        self, name: str, options: Mapping[str, str] | None = None, keyed: bool = True
    ) -> Table:
        given = {**({"bucket": "1"} if keyed else {}), **(options or {})}
        columns = [Column("id", "BIGINT"), Column("v", "INT")]
        self.warehouse.create_table("db", name, columns, ["id"] if keyed else [], options=given)
        return self.warehouse.table(f"db.{name}")

    def prepare(
        self, table: Table, batch: int, *parts: Sequence[Row], user: str = USER
    ) -> list[bytes]:
        prefix = file_prefix(user, batch)
        writer = TableWriter(self.warehouse.options, table.identifier, user, prefix)
        return writer.write_all((self.batch(part) for part in parts), batch)

    def write(self, table: Table, batch: int, *parts: Sequence[Row], user: str = USER) -> bool:
        messages = self.prepare(table, batch, *parts, user=user)
        return self.committer(table, user).commit(batch, messages)

    def committer(self, table: Table, user: str = USER) -> TableCommitter:
        return TableCommitter(self.warehouse.options, table.identifier, user)

    def overwrite(self, table: Table, rows: Sequence[Row]) -> None:
        builder = table.rust.new_batch_write_builder().with_overwrite()
        writer = builder.new_write()
        writer.write_arrow(self.batch(rows).cast(table.arrow_schema))
        builder.new_commit().commit(writer.prepare_commit())

    def tag(self, identifier: str, name: str, snapshot: int) -> None:
        self._official(identifier).create_tag(name, snapshot)

    def branch(self, identifier: str, name: str, tag: str) -> None:
        self._official(identifier).branch_manager().create_branch(name, tag)

    def roll_back(self, identifier: str, snapshot: int) -> None:
        self._official(identifier).rollback_to(snapshot)

    def _official(self, identifier: str) -> Any:
        return CatalogFactory.create(dict(self.warehouse.options)).get_table(identifier)

    @staticmethod
    def batch(rows: Sequence[Row]) -> pa.RecordBatch:
        names = ("id", "v", "rowkind")
        return pa.RecordBatch.from_pylist([dict(zip(names, row, strict=False)) for row in rows])

    @staticmethod
    def rows(batches: Iterable[pa.RecordBatch]) -> list[Row]:
        return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]

    def content(self, table: Table) -> list[Row]:
        return sorted(self.rows(table.read()))

    @staticmethod
    def data_files(table: Table) -> list[str]:
        return sorted(
            name
            for folder, _, names in os.walk(table.location)
            if "/bucket-" in folder
            for name in names
        )


@pytest.fixture
def lab(warehouse: Warehouse) -> Lab:
    return Lab(warehouse)
