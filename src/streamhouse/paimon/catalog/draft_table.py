"""A table that only exists in memory, with the changes of ALTER TABLE: of a dry run, or declared.

A declaration of CREATE TABLE IF NOT EXISTS is compared with the table that exists.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

import pyarrow as pa

from streamhouse.errors import OptionError, StreamhouseError
from streamhouse.options import is_secret
from streamhouse.paimon.catalog.alter_table import checked_changes, schema_errors
from streamhouse.paimon.catalog.catalog_client import new_schema
from streamhouse.paimon.catalog.table_declaration import TableDeclaration, checked_declaration
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.schema import types
from streamhouse.paimon.storage.snapshots import Snapshot
from streamhouse.sql.plan import Column
from streamhouse.sql.schema_changes import SchemaChange

_OF_THE_CATALOG = ("path", "owner", "type", "connector")
"""Options that a catalog adds to a table."""
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
    def of_stored(cls, table: Table) -> Self:
        declaration = TableDeclaration(
            table.columns, table.primary_key, table.partition_keys, dict(table.options)
        )
        return cls(table.identifier, declaration, table)

    @property
    def schema(self) -> Mapping[str, Any]:
        """The options as in the table's schema file."""
        return {"options": self.options}

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

    def renamed(self, identifier: str) -> Self:
        return type(self)(identifier, self._declaration, self._stored)

    def altered(self, changes: Sequence[SchemaChange]) -> Self:
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
        return type(self)(self.identifier, declaration, self._stored)


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


def declared_differences(full: str, declaration: TableDeclaration, stored: DraftTable) -> list[str]:
    """How a declaration of CREATE TABLE IF NOT EXISTS differs from the table that exists.

    As the text of a notice; empty if the declaration is the table's.
    """
    try:
        declared = DraftTable(full, checked_declaration(full, declaration))
    except StreamhouseError as error:
        return [str(error)]
    keys = (
        ("PRIMARY KEY", declared.primary_key, stored.primary_key),
        ("PARTITIONED BY", declared.partition_keys, stored.partition_keys),
    )
    return [
        *_of_columns(declared.columns, stored.columns),
        *(
            f"{clause} is ({', '.join(has)}), not ({', '.join(wanted)})"
            for clause, wanted, has in keys
            if tuple(wanted) != tuple(has)
        ),
        *_of_options(declared.options, stored.options),
    ]


def _of_columns(declared: Sequence[Column], stored: Sequence[Column]) -> Iterator[str]:
    has, wanted = ({column.name: _type(column) for column in each} for each in (stored, declared))
    for name, kind in wanted.items():
        if name not in has:
            yield f"it has no column '{name}'"
        elif has[name] != kind:
            yield f"column '{name}' is {has[name]}, not {kind}"
    for name in has:
        if name not in wanted:
            yield f"it also has the column '{name}'"


def _of_options(declared: Mapping[str, str], stored: Mapping[str, str]) -> Iterator[str]:
    for key in sorted({*declared, *stored} - {*_OF_THE_CATALOG}):
        wanted, has = declared.get(key), stored.get(key)
        if wanted == has:
            continue
        if is_secret(key):
            yield f"option '{key}' differs"
        elif has is None:
            yield f"option '{key}' is not set, not '{wanted}'"
        else:
            other = "" if wanted is None else f", not '{wanted}'"
            yield f"option '{key}' is '{has}'{other}"


def _type(column: Column) -> str:
    return column.type if column.nullable else f"{column.type} NOT NULL"
