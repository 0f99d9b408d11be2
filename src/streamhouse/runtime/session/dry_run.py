"""A dry-run session: it records definitions in memory, and writes nothing to a warehouse."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from streamhouse.close_matches import nearest
from streamhouse.errors import StreamhouseError, TableError, UnknownUntilRunError
from streamhouse.lookup.dimension import DimensionSpec
from streamhouse.paimon.catalog.draft_table import altered, declared_table, renamed
from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.paimon.catalog.table_declaration import TableDeclaration
from streamhouse.paimon.catalog.views import Views
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.schema.table_name import TableName, split_identifier
from streamhouse.runtime.session.catalogs import DEFAULT_CATALOG, Catalogs
from streamhouse.runtime.session.session import Session
from streamhouse.sql.plan import CURRENT, AsOf, LookupJoin, Name, TableInfo, ViewInfo
from streamhouse.sql.schema_changes import SchemaChange

NO_WAREHOUSE = "/nonexistent-warehouse-of-a-draft"
"""The path of the warehouse of a script that names none."""


@dataclass(frozen=True)
class DraftAddress(TableAddress):
    """The address of a table that a script would create or change."""

    table: Table | None = None

    def follow(self) -> Any:
        """The table, which has what the choice of a lookup strategy reads."""
        return self.table


class DraftViews(Views):
    """Keeps the views that a script would store or drop in memory."""

    def __init__(self, warehouse: Warehouse) -> None:
        super().__init__(warehouse)
        self._drafts: dict[Name, ViewInfo | None] = {}
        """By database and name; None for a view that the script drops."""

    def names(self, database: str) -> list[str]:
        names = set(super().names(database))
        for (of, name), view in self._drafts.items():
            if of == database:
                (names.discard if view is None else names.add)(name)
        return sorted(names)

    def find(self, database: str, name: str) -> ViewInfo | None:
        full = (database, name)
        return self._drafts[full] if full in self._drafts else super().find(database, name)

    def create(self, view: ViewInfo) -> None:
        self.check_database(view.name[-2])
        self._drafts[view.name[-2:]] = view

    def drop(self, database: str, name: str) -> None:
        self._drafts[database, name] = None


class DraftWarehouse(Warehouse):
    """A warehouse that only records what a script creates, changes or drops."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        self._drafts: dict[str, Table] = {}
        self._dropped: set[str] = set()
        """Stored tables, also those of a database that the script has dropped."""
        self.views = DraftViews(self)

    def is_draft(self, identifier: str) -> bool:
        """Whether the script created or changed the table."""
        return identifier in self._drafts

    def databases(self) -> list[str]:
        return sorted(self._databases)

    def tables(self, database: str) -> list[str]:
        if database not in self.databases():
            raise self._missing_database(database)
        stored = super().tables(database) if database in self._stored_databases else []
        created = [name for at, name in map(split_identifier, self._drafts) if at == database]
        remaining = [name for name in stored if f"{database}.{name}" not in self._dropped]
        return sorted({*remaining, *created})

    def exists(self, database: str, name: str) -> bool:
        full = f"{database}.{name}"
        if full in self._drafts or full in self._dropped:
            return full in self._drafts
        return database in self._stored_databases and super().exists(database, name)

    @contextmanager
    def creating(self) -> Iterator[None]:
        """Take no lock: a draft creates nothing that other processes see."""
        yield

    def create_database(self, name: str, if_not_exists: bool = False) -> bool:
        if name in self.databases() and not if_not_exists:
            raise TableError(f"database '{name}' already exists; write IF NOT EXISTS to keep it")
        self._databases.add(name)
        return True

    def _drop_database(self, name: str, cascade: bool) -> None:
        for table in self.tables(name):
            self._drop(f"{name}.{table}")
        self._databases.discard(name)

    def _rename(self, identifier: str, new_name: str) -> None:
        self._drafts[new_name] = renamed(self._draft(identifier), new_name)
        self._drop(identifier)

    def _check_no_folder(self, database: str, name: str) -> None:
        if f"{database}.{name}" not in self._dropped:
            super()._check_no_folder(database, name)

    def alter_table(self, identifier: str, *changes: SchemaChange) -> None:
        self._found(*split_identifier(identifier))
        self._drafts[identifier] = altered(self._draft(identifier), changes)

    def _draft(self, identifier: str) -> Table:
        """The table as the script has changed it so far."""
        return self._drafts.get(identifier) or self.table(identifier)

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
        database, name = split_identifier(identifier)
        if f"{database}.{TableName.parse(name).table}" in self._drafts:
            raise UnknownUntilRunError(f"{identifier} is known only when the script runs")
        return super().readable(identifier, as_of, options, pin)

    def _create(self, full: str, declaration: TableDeclaration) -> bool:
        self._drafts[full] = declared_table(full, declaration)
        return True

    @cached_property
    def _stored_databases(self) -> set[str]:
        """The databases of the warehouse when the script was first planned."""
        return set() if self.path == NO_WAREHOUSE else set(super().databases())

    @cached_property
    def _databases(self) -> set[str]:
        """The databases as the script has changed them so far."""
        return {"default", *self._stored_databases}

    def _drop(self, full: str) -> None:
        self._drafts.pop(full, None)
        self._dropped.add(full)

    def _missing_database(self, name: str) -> TableError:
        return TableError(f"there is no database '{name}'; {nearest(name, self.databases())}")


class DraftCatalogs(Catalogs):
    """Catalogs of `DraftWarehouse`s; without a `warehouse`, the default catalog is empty."""

    def __init__(self, warehouse: Mapping[str, str] | None, notice: Callable[[str], None]) -> None:
        self._warehouses: dict[str, DraftWarehouse] = {}
        super().__init__(warehouse, notice)
        self.temporary_folder = lambda: NO_WAREHOUSE

    def warehouse(self, catalog: str) -> DraftWarehouse:
        if catalog not in self._warehouses:
            self._warehouses[catalog] = DraftWarehouse(self.options(catalog))
        return self._warehouses[catalog]

    def views(self, catalog: str) -> DraftViews:
        return self.warehouse(catalog).views

    def add_empty_default(self) -> None:
        """Have an empty default catalog, though no warehouse was given."""
        self._options[DEFAULT_CATALOG] = {"warehouse": NO_WAREHOUSE}


class DraftSession(Session):
    """A session whose catalogs are `DraftWarehouse`s.

    Without a `warehouse` the default catalog is empty. With `requires_warehouse`, using the default
    catalog without a warehouse is an error, as in a run.
    """

    catalogs: DraftCatalogs

    def __init__(
        self, warehouse: Mapping[str, str] | None, requires_warehouse: bool = False
    ) -> None:
        super().__init__(warehouse, DraftCatalogs)
        if warehouse is None and not requires_warehouse:
            self.catalogs.add_empty_default()

    def table(self, name: Name, as_of: AsOf = CURRENT) -> TableInfo:
        """As in a run; the table as it is now if statements of the script may make that state."""
        try:
            return super().table(name, as_of)
        except StreamhouseError:
            if not as_of:
                raise
            return super().table(name)

    def dimension(self, lookup: LookupJoin) -> DimensionSpec:
        catalog, identifier = lookup.table.name[0], ".".join(lookup.table.name[1:])
        if lookup.on_server or not self.catalogs.warehouse(catalog).is_draft(identifier):
            return super().dimension(lookup)
        table = self.catalogs.warehouse(catalog).readable(identifier)
        return DimensionSpec(lookup, DraftAddress({}, identifier, table=table))
