"""A table with the primary key `k`, and commits of rows to it."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.write.commit import TableCommitter
from streamhouse.paimon.write.table_writer import TableWriter
from streamhouse.sql.plan import Column

Row = dict[str, Any]


class WrittenTable:
    """A table, and how it is written; `schema` is that of the rows, with their kinds."""

    def __init__(
        self,
        warehouse: Warehouse,
        name: str,
        columns: Sequence[Column],
        schema: pa.Schema,
        options: dict[str, str],
    ) -> None:
        self._warehouse, self._name, self._schema = warehouse, f"db.{name}", schema
        warehouse.create_table("db", name, columns, ["k"], [], {"bucket": "1", **options})
        self._user, self._commits = str(uuid.uuid4()), 0

    @property
    def table(self) -> Table:
        return self._warehouse.table(self._name)

    def put(self, *writes: Sequence[Row]) -> int:
        """One commit of batches; returns how many files of a bucket it made."""
        self._commits += 1
        options = self._warehouse.options
        writer = TableWriter(options, self._name, self._user)
        batches = [pa.RecordBatch.from_pylist(list(rows), schema=self._schema) for rows in writes]
        messages = writer.write_all(batches, self._commits)
        TableCommitter(options, self._name, self._user).commit(self._commits, messages)
        return len(messages)
