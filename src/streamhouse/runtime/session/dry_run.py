"""A dry-run session: it records definitions in memory, and writes nothing to a warehouse."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import pyarrow as pa

from streamhouse.errors import TableError
from streamhouse.lookup.dimension import DimensionSpec
from streamhouse.lookup.strategies.selection import WORDS, choose_all
from streamhouse.options import nearest
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.schema.table_name import split_identifier
from streamhouse.paimon.schema.types import arrow_type, parse
from streamhouse.runtime.query_spec import unshuffled
from streamhouse.runtime.session.session import DEFAULT_CATALOG, Session
from streamhouse.runtime.session.views import Names, SessionViews
from streamhouse.sql import changes
from streamhouse.sql.plan import AsOf, Column, Drop, Name, StreamQuery, TableInfo, ViewInfo
from streamhouse.sql.statements.create_view import CreateView, check_permanent, with_full_names

_NOWHERE = "/nonexistent-warehouse-of-a-draft"


@dataclass(frozen=True)
class DraftTable:
    """A table that a script would create, or a stored table as the script would change it."""

    columns: tuple[Column, ...]
    primary_key: tuple[str, ...]
    partition_keys: tuple[str, ...]
    options: Mapping[str, str]


@dataclass(frozen=True)
class DraftSpec(DimensionSpec):
    """A lookup of a table that a script would create; the table is empty when the query starts."""

    table: DraftTable | None = None

    def open(self) -> Any:
        """The table, with the attributes that the choice of a lookup strategy reads."""
        assert self.table is not None
        return EmptyTable(self.identifier, self.table)


class EmptyTable:
    """An empty table with the attributes that the choice of a lookup strategy reads."""

    def __init__(self, identifier: str, drafted: DraftTable) -> None:
        self.identifier = identifier
        self.options = drafted.options
        self.primary_key = drafted.primary_key
        self.partition_keys = drafted.partition_keys
        self.bucket = int(drafted.options.get("bucket", "-1"))
        fields = [(column.name, arrow_type(parse(column.type))) for column in drafted.columns]
        self.arrow_schema = pa.schema(fields)

    def latest_snapshot_id(self) -> int | None:
        return None


class DraftWarehouse(Warehouse):
    """A warehouse that only records what a script creates, changes or drops."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        self._made: dict[str, DraftTable] = {}
        self._dropped: set[str] = set()
        self._databases: set[str] = {"default"}
        self._dropped_databases: set[str] = set()

    def is_made(self, identifier: str) -> bool:
        """Whether the script created or changed the table."""
        return identifier in self._made

    def databases(self) -> list[str]:
        return sorted({*self._stored_databases(), *self._databases})

    def tables(self, database: str) -> list[str]:
        if database not in self.databases():
            raise self._no_database(database)
        stored = super().tables(database) if database in self._stored_databases() else []
        created = [name for at, name in map(split_identifier, self._made) if at == database]
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
            raise self._no_database(name)
        tables = self.tables(name)
        self._check_empty(name, tables, cascade)
        for table in tables:
            self._drop(f"{name}.{table}")
        self._databases.discard(name)
        self._dropped_databases.add(name)

    def drop_table(self, database: str, name: str, if_exists: bool = False) -> None:
        if not self.exists(database, name):
            if if_exists:
                return
            raise self._missing(database, name)
        self._drop(f"{database}.{name}")

    def rename_table(self, identifier: str, new_name: str, if_exists: bool = False) -> None:
        database, name = split_identifier(identifier)
        if not self.exists(database, name):
            if if_exists:
                return
            raise self._missing(database, name)
        self._made[new_name] = self.readable(identifier)
        self.drop_table(database, name)

    def alter_table(
        self, identifier: str, *changes: changes.Change, if_exists: bool = False
    ) -> None:
        database, name = split_identifier(identifier)
        if not self.exists(database, name):
            if if_exists:
                return
            raise self._missing(database, name)
        table = self.readable(identifier)
        for change in changes:
            table = _changed(identifier, table, change)
        self._made[identifier] = table

    def readable(
        self,
        identifier: str,
        moment: AsOf | None = None,
        options: Mapping[str, str] | None = None,
        pin: bool = False,
    ) -> Any:
        """The table as the script has changed it so far, else the stored table as of `moment`."""
        if identifier in self._made:
            return self._made[identifier]
        table = super().readable(identifier, moment, options, pin)
        return DraftTable(
            tuple(table.columns),
            tuple(table.primary_key),
            tuple(table.partition_keys),
            dict(table.options),
        )

    def _create(
        self,
        full: str,
        columns: Sequence[Column],
        primary_key: Sequence[str],
        partitioned_by: Sequence[str],
        options: dict[str, str],
        comment: str | None,
    ) -> bool:
        self._made[full] = DraftTable(
            tuple(replace(c, nullable=c.nullable and c.name not in primary_key) for c in columns),
            tuple(primary_key),
            tuple(partitioned_by),
            options,
        )
        return True

    def _stored_databases(self) -> set[str]:
        """The databases of the warehouse that the script has not dropped."""
        stored = [] if self.path == _NOWHERE else super().databases()
        return set(stored) - self._dropped_databases

    def _drop(self, full: str) -> None:
        self._made.pop(full, None)
        self._dropped.add(full)

    def _forget(self, prefix: str) -> None:
        """Do nothing: a draft changes nothing that other processes cache."""

    def _missing(self, database: str, name: str) -> TableError:
        if database not in self.databases():
            return self._no_database(database)
        hint = nearest(name, self.tables(database))
        return TableError(f"there is no table '{name}' in database '{database}'; {hint}")

    def _no_database(self, name: str) -> TableError:
        return TableError(f"there is no database '{name}'; {nearest(name, self.databases())}")

    def _python(self) -> NoReturn:
        raise AssertionError("a draft changes nothing in a warehouse")


class DraftViews(SessionViews):
    """Keeps all views in memory for the script only, with the checks of persistent views."""

    def __init__(self, names: Names, warehouse: Callable[[str], Warehouse]) -> None:
        super().__init__(names, warehouse)
        self._dropped: set[Name] = set()
        self._persistent: set[Name] = set()

    def find(self, full: Name) -> ViewInfo | None:
        view = super().find(full)
        return None if full in self._dropped and full not in self._temporary else view

    def create(self, statement: CreateView) -> None:
        full = self._names.full(statement.name)
        if not statement.temporary:
            check_permanent(statement)
            with_full_names(statement.query, lambda name: self._stored_name(statement, full, name))
            name = ".".join(full[1:])
            if self.find(full) is not None:
                if statement.if_not_exists:
                    return
                raise TableError(f"view {name} already exists; DROP it or write IF NOT EXISTS")
            if self._names.has_table(full):
                raise TableError(f"'{name}' is a table; give the view another name")
            self._persistent.add(full)
        super().create(replace(statement, temporary=True))

    def drop(self, statement: Drop) -> None:
        full = self._names.full(statement.name)
        if full in self._temporary or statement.temporary or self.find(full) is None:
            super().drop(statement)
        self._dropped.add(full)

    def _stored_name(self, statement: CreateView, view: Name, name: Name) -> Name:
        full = self._names.full(name)
        if full in self._persistent and full in self._temporary:
            return full[1:] if full[0] == view[0] else full
        return super()._stored_name(statement, view, name)


class Draft(Session):
    """A session whose catalogs are `DraftWarehouse`s.

    Without a `warehouse` the default catalog is empty, unless `placed`: then using it is an error,
    as in a run.
    """

    def __init__(self, warehouse: Mapping[str, str] | None, placed: bool = False) -> None:
        self._warehouses: dict[str, DraftWarehouse] = {}
        super().__init__(warehouse)
        if warehouse is None and not placed:
            self._catalogs[DEFAULT_CATALOG] = {"warehouse": _NOWHERE}
        self.views = DraftViews(self, self._warehouse)

    def all_catalogs(self) -> list[dict[str, str]]:
        """The options of each catalog."""
        return [dict(options) for options in self._catalogs.values()]

    def strategies(self, query: StreamQuery, target: TableInfo | None) -> list[str]:
        """The lookup strategy that a run would choose for each lookup of a query, in words."""
        specs: list[DimensionSpec] = []
        for lookup in query.lookups:
            catalog, database, name = lookup.table.name
            warehouse, identifier = self._warehouse(catalog), f"{database}.{name}"
            if warehouse.is_made(identifier):
                table = warehouse.readable(identifier)
                specs.append(DraftSpec(lookup, {}, identifier, table=table))
            else:
                specs.append(DimensionSpec(lookup, warehouse.options, identifier))
        problem = None if target is None else unshuffled(query, target)
        return [WORDS[choice.strategy] for choice in choose_all(specs, problem)]

    def _warehouse(self, catalog: str) -> DraftWarehouse:
        if catalog not in self._warehouses:
            self._warehouses[catalog] = DraftWarehouse(self._options(catalog))
        return self._warehouses[catalog]

    def _make_default(self, catalog: str, database: str) -> None:
        self._warehouse(catalog).create_database(database, if_not_exists=True)


def _changed(identifier: str, table: DraftTable, change: changes.Change) -> DraftTable:
    columns = list(table.columns)
    names = [column.name for column in columns]
    match change:
        case changes.AddColumn(column=column, parent=()):
            if column.name in names:
                if change.if_not_exists:
                    return table
                raise TableError(f"table {identifier}: column '{column.name}' already exists")
            index = len(columns)
            if change.place is not None:
                after = change.place.after
                index = 0 if after is None else 1 + _index(identifier, names, after)
            columns.insert(index, column)
        case changes.DropColumn(path=(name,)):
            if name not in names and change.if_exists:
                return table
            del columns[_index(identifier, names, name)]
        case changes.RenameColumn(path=(name,)):
            if name not in names and change.if_exists:
                return table
            index = _index(identifier, names, name)
            columns[index] = replace(columns[index], name=change.new_name)
        case changes.SetType(path=(name,)):
            index = _index(identifier, names, name)
            columns[index] = replace(columns[index], type=change.type)
        case changes.SetTableOption():
            return replace(table, options={**table.options, change.key: change.value})
        case changes.ResetTableOption():
            options = {key: value for key, value in table.options.items() if key != change.key}
            return replace(table, options=options)
    return replace(table, columns=tuple(columns))


def _index(identifier: str, names: list[str], name: str) -> int:
    if name not in names:
        raise TableError(f"table {identifier}: there is no column '{name}'; {nearest(name, names)}")
    return names.index(name)
