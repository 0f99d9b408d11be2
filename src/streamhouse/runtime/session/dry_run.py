"""A dry-run session: it records definitions in memory, and writes nothing to a warehouse."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from streamhouse.errors import TableError
from streamhouse.lookup.dimension import DimensionSpec
from streamhouse.lookup.strategies.selection import DISPLAY_NAMES, choose_all
from streamhouse.paimon.catalog.draft_table import DraftTable
from streamhouse.paimon.schema.types import arrow_type, parse
from streamhouse.runtime.query_spec import unshuffled
from streamhouse.runtime.session.catalogs import DEFAULT_CATALOG, Catalogs
from streamhouse.runtime.session.draft_warehouse import NO_WAREHOUSE, DraftWarehouse
from streamhouse.runtime.session.session import Session
from streamhouse.runtime.session.views import Names, SessionViews
from streamhouse.sql.plan import Name, StreamQuery, TableInfo, ViewInfo
from streamhouse.sql.statements.create_view import CreateView, check_permanent, with_full_names
from streamhouse.sql.syntax import Drop


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


class DraftCatalogs(Catalogs):
    """Catalogs of `DraftWarehouse`s; without a `warehouse`, the default catalog is empty."""

    def __init__(self, warehouse: Mapping[str, str] | None, notice: Callable[[str], None]) -> None:
        self._warehouses: dict[str, DraftWarehouse] = {}
        super().__init__(warehouse, notice)

    def warehouse(self, catalog: str) -> DraftWarehouse:
        if catalog not in self._warehouses:
            self._warehouses[catalog] = DraftWarehouse(self.options(catalog))
        return self._warehouses[catalog]

    def add_empty_default(self) -> None:
        """Have an empty default catalog, though no warehouse was given."""
        self._options[DEFAULT_CATALOG] = {"warehouse": NO_WAREHOUSE}


class DraftViews(SessionViews):
    """Keeps all views in memory for the script only, with the checks of persistent views."""

    def __init__(self, names: Names, catalogs: Catalogs) -> None:
        super().__init__(names, catalogs)
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

    Without a `warehouse` the default catalog is empty. With `requires_warehouse`, using it is then
    an error, as in a run.
    """

    catalogs: DraftCatalogs

    def __init__(
        self, warehouse: Mapping[str, str] | None, requires_warehouse: bool = False
    ) -> None:
        super().__init__(warehouse)
        if warehouse is None and not requires_warehouse:
            self.catalogs.add_empty_default()
        self.views = DraftViews(self, self.catalogs)

    def strategies(self, query: StreamQuery, target: TableInfo | None) -> list[str]:
        """The lookup strategy that a run would choose for each lookup of a query, in words."""
        specs: list[DimensionSpec] = []
        for lookup in query.lookups:
            catalog, database, name = lookup.table.name
            warehouse, identifier = self.catalogs.warehouse(catalog), f"{database}.{name}"
            if warehouse.is_draft(identifier):
                table = warehouse.readable(identifier)
                specs.append(DraftSpec(lookup, {}, identifier, table=table))
            else:
                specs.append(DimensionSpec(lookup, warehouse.options, identifier))
        problem = None if target is None else unshuffled(query, target)
        return [DISPLAY_NAMES[choice.strategy] for choice in choose_all(specs, problem)]

    def _open_catalogs(self, warehouse: Mapping[str, str] | None) -> DraftCatalogs:
        return DraftCatalogs(warehouse, self._notify)
