"""A warehouse of a dry run: records what a script creates, changes or drops; writes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from streamhouse.close_matches import nearest
from streamhouse.errors import TableError
from streamhouse.paimon.catalog.table_declaration import TableDeclaration
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.schema.table_name import split_identifier
from streamhouse.sql import schema_changes
from streamhouse.sql.plan import AsOf, Column

NO_WAREHOUSE = "/nonexistent-warehouse-of-a-draft"
"""The path of the warehouse of a script that names none."""


@dataclass(frozen=True)
class DraftTable:
    """A table that a script would create, or a stored table as the script would change it."""

    columns: tuple[Column, ...]
    primary_key: tuple[str, ...]
    partition_keys: tuple[str, ...]
    options: Mapping[str, str]


class DraftWarehouse(Warehouse):
    """A warehouse that only records what a script creates, changes or drops."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        self._drafts: dict[str, DraftTable] = {}
        self._dropped: set[str] = set()
        self._databases: set[str] = {"default"}
        self._dropped_databases: set[str] = set()

    def is_draft(self, identifier: str) -> bool:
        """Whether the script created or changed the table."""
        return identifier in self._drafts

    def databases(self) -> list[str]:
        return sorted({*self._stored_databases(), *self._databases})

    def tables(self, database: str) -> list[str]:
        if database not in self.databases():
            raise self._missing_database(database)
        stored = super().tables(database) if database in self._stored_databases() else []
        created = [name for at, name in map(split_identifier, self._drafts) if at == database]
        remaining = [name for name in stored if f"{database}.{name}" not in self._dropped]
        return sorted({*remaining, *created})

    def exists(self, database: str, name: str) -> bool:
        return database in self.databases() and name in self.tables(database)

    @contextmanager
    def creating(self) -> Iterator[None]:
        """Take no lock: a draft creates nothing that other processes see."""
        yield

    def create_database(self, name: str, if_not_exists: bool = False) -> None:
        if name in self.databases() and not if_not_exists:
            raise TableError(f"database '{name}' already exists; write IF NOT EXISTS to keep it")
        self._databases.add(name)

    def drop_database(self, name: str, if_exists: bool = False, cascade: bool = False) -> None:
        if name not in self.databases():
            if if_exists:
                return
            raise self._missing_database(name)
        tables = self.tables(name)
        self._check_empty(name, tables, cascade)
        for table in tables:
            self._drop(f"{name}.{table}")
        self._databases.discard(name)
        self._dropped_databases.add(name)

    def drop_table(self, database: str, name: str, if_exists: bool = False) -> None:
        if not self._found(database, name, if_exists):
            return
        self._drop(f"{database}.{name}")

    def rename_table(self, identifier: str, new_name: str, if_exists: bool = False) -> None:
        database, name = split_identifier(identifier)
        if not self._found(database, name, if_exists):
            return
        self._drafts[new_name] = self.readable(identifier)
        self.drop_table(database, name)

    def alter_table(
        self, identifier: str, *changes: schema_changes.SchemaChange, if_exists: bool = False
    ) -> None:
        database, name = split_identifier(identifier)
        if not self._found(database, name, if_exists):
            return
        table = self.readable(identifier)
        for change in changes:
            table = _changed(identifier, table, change)
        self._drafts[identifier] = table

    def readable(
        self,
        identifier: str,
        as_of: AsOf | None = None,
        options: Mapping[str, str] | None = None,
        pin: bool = False,
    ) -> Any:
        """The table as the script has changed it so far, else the stored table as of `as_of`."""
        if identifier in self._drafts:
            return self._drafts[identifier]
        table = super().readable(identifier, as_of, options, pin)
        return DraftTable(
            tuple(table.columns),
            tuple(table.primary_key),
            tuple(table.partition_keys),
            dict(table.options),
        )

    def _create(self, full: str, declaration: TableDeclaration) -> bool:
        keys = declaration.primary_key
        self._drafts[full] = DraftTable(
            tuple(
                replace(c, nullable=c.nullable and c.name not in keys) for c in declaration.columns
            ),
            tuple(keys),
            tuple(declaration.partitioned_by),
            declaration.options,
        )
        return True

    def _stored_databases(self) -> set[str]:
        """The databases of the warehouse that the script has not dropped."""
        stored = [] if self.path == NO_WAREHOUSE else super().databases()
        return set(stored) - self._dropped_databases

    def _drop(self, full: str) -> None:
        self._drafts.pop(full, None)
        self._dropped.add(full)

    def _missing_database(self, name: str) -> TableError:
        return TableError(f"there is no database '{name}'; {nearest(name, self.databases())}")


def _changed(identifier: str, table: DraftTable, change: schema_changes.SchemaChange) -> DraftTable:
    columns = list(table.columns)
    names = [column.name for column in columns]
    match change:
        case schema_changes.AddColumn(column=column, parent=()):
            if column.name in names:
                if change.if_not_exists:
                    return table
                raise TableError(f"table {identifier}: column '{column.name}' already exists")
            index = len(columns)
            if change.position is not None:
                after = change.position.after
                index = 0 if after is None else 1 + _index(identifier, names, after)
            columns.insert(index, column)
        case schema_changes.DropColumn(path=(name,)):
            if name not in names and change.if_exists:
                return table
            del columns[_index(identifier, names, name)]
        case schema_changes.RenameColumn(path=(name,)):
            if name not in names and change.if_exists:
                return table
            index = _index(identifier, names, name)
            columns[index] = replace(columns[index], name=change.new_name)
            key = [change.new_name if one == name else one for one in table.primary_key]
            return replace(table, columns=tuple(columns), primary_key=tuple(key))
        case schema_changes.SetType(path=(name,)):
            index = _index(identifier, names, name)
            columns[index] = replace(columns[index], type=change.type)
        case schema_changes.SetTableOption():
            return replace(table, options={**table.options, change.key: change.value})
        case schema_changes.ResetTableOption():
            options = {key: value for key, value in table.options.items() if key != change.key}
            return replace(table, options=options)
    return replace(table, columns=tuple(columns))


def _index(identifier: str, names: list[str], name: str) -> int:
    if name not in names:
        raise TableError(f"table {identifier}: there is no column '{name}'; {nearest(name, names)}")
    return names.index(name)
