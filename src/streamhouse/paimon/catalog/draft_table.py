"""A table of a dry run, which only exists in memory, with the changes of ALTER TABLE."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from streamhouse.errors import OptionError
from streamhouse.paimon.catalog.alter_table import checked_changes, schema_errors
from streamhouse.paimon.catalog.catalog_client import new_schema
from streamhouse.paimon.catalog.table_declaration import TableDeclaration
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.schema import types
from streamhouse.paimon.storage.snapshots import Snapshot
from streamhouse.sql.plan import Column
from streamhouse.sql.schema_changes import SchemaChange

_NOWHERE = "/nonexistent-table-of-a-draft"


class DraftTable:
    """A table that a script would create, or a stored table as the script would change it.

    `stored` is the table whose files it has; None if the script creates it.
    """

    schema_id = 0

    def __init__(
        self, identifier: str, declaration: TableDeclaration, stored: Table | None = None
    ) -> None:
        self.identifier = identifier
        self._declaration = declaration
        self._stored = stored
        try:
            self._schema = new_schema(declaration)
        except ValueError as error:
            raise OptionError(f"table {identifier}: {error}") from error
        self.columns = _columns(self._schema)
        self.primary_key = tuple(declaration.primary_key)
        self.partition_keys = tuple(declaration.partitioned_by)
        self.options: Mapping[str, str] = dict(declaration.options)
        self.bucket = int(self.options.get("bucket", "-1"))

    @classmethod
    def of_stored(cls, table: Table) -> DraftTable:
        declaration = TableDeclaration(
            table.columns, table.primary_key, table.partition_keys, dict(table.options)
        )
        return cls(table.identifier, declaration, table)

    @property
    def schema(self) -> Mapping[str, Any]:
        """As the table's schema file."""
        fields = [
            {"name": field.name, "type": field.type.to_dict()} for field in self._schema.fields
        ]
        return {"fields": fields, "options": self.options}

    @property
    def arrow_schema(self) -> pa.Schema:
        return types.arrow_schema(self.columns)

    def latest_snapshot_id(self) -> int | None:
        return None if self._stored is None else self._stored.latest_snapshot_id()

    def snapshot(self, snapshot_id: int) -> Snapshot:
        assert self._stored is not None
        return self._stored.snapshot(snapshot_id)

    def splits(self) -> list[bytes]:
        return [] if self._stored is None else self._stored.splits()

    def has_values(self, columns: Sequence[str]) -> bool:
        return self._stored is not None and self._stored.has_values(columns)

    def renamed(self, identifier: str) -> DraftTable:
        return DraftTable(identifier, self._declaration, self._stored)

    def altered(self, changes: Sequence[SchemaChange]) -> DraftTable:
        """The table after changes; raises the errors of `alter_table`. Defaults have no effect."""
        from pypaimon.filesystem.local_file_io import LocalFileIO
        from pypaimon.schema.schema_manager import SchemaManager
        from pypaimon.schema.table_schema import TableSchema

        current = TableSchema.from_schema(0, self._schema)

        class InMemory(SchemaManager):  # type: ignore[misc]
            """Applies changes as pypaimon does, and writes nothing."""

            def latest(self) -> TableSchema:
                return current

            def commit(self, new_schema: TableSchema) -> bool:
                return True

        new_changes, _ = checked_changes(self, changes)
        with schema_errors(self.identifier):
            new = InMemory(LocalFileIO(_NOWHERE), _NOWHERE).commit_changes(new_changes)
        declaration = TableDeclaration(
            _columns(new), tuple(new.primary_keys), tuple(new.partition_keys), new.options
        )
        return DraftTable(self.identifier, declaration, self._stored)


def _columns(schema: Any) -> tuple[Column, ...]:
    return tuple(
        Column(
            field.name,
            types.flink_text(field.type.to_dict()),
            bool(field.type.nullable),
            field.description,
        )
        for field in schema.fields
    )
