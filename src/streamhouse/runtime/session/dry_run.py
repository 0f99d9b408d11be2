"""A dry-run session: it records definitions in memory, and writes nothing to a warehouse."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from streamhouse.errors import StreamhouseError
from streamhouse.lookup.dimension import DimensionSpec
from streamhouse.lookup.strategies.selection import DISPLAY_NAMES, choose_all
from streamhouse.paimon.catalog.draft_table import DraftTable
from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.paimon.catalog.views import Views
from streamhouse.paimon.schema.types import arrow_type, parse
from streamhouse.runtime.query_spec import unshuffled
from streamhouse.runtime.session.catalogs import DEFAULT_CATALOG, Catalogs
from streamhouse.runtime.session.draft_warehouse import NO_WAREHOUSE, DraftWarehouse
from streamhouse.runtime.session.session import Session
from streamhouse.runtime.session.views import SessionViews
from streamhouse.sql.plan import AsOf, Name, StreamQuery, TableInfo, ViewInfo


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
        self.schema_id = 0
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
        self.temporary_folder = lambda: NO_WAREHOUSE

    def warehouse(self, catalog: str) -> DraftWarehouse:
        if catalog not in self._warehouses:
            self._warehouses[catalog] = DraftWarehouse(self.options(catalog))
        return self._warehouses[catalog]

    def add_empty_default(self) -> None:
        """Have an empty default catalog, though no warehouse was given."""
        self._options[DEFAULT_CATALOG] = {"warehouse": NO_WAREHOUSE}


class DraftViews(SessionViews):
    """Keeps the views that a script would store or drop in memory."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._drafts: dict[Name, ViewInfo | None] = {}
        """By full name; None for a view that the script drops."""

    def _stored(self, full: Name) -> ViewInfo | None:
        return self._drafts[full] if full in self._drafts else super()._stored(full)

    def _stored_names(self, catalog: str, database: str) -> list[str]:
        names = set(super()._stored_names(catalog, database))
        for full, view in self._drafts.items():
            if full[:2] == (catalog, database):
                (names.discard if view is None else names.add)(full[2])
        return sorted(names)

    def _store(self, view: ViewInfo) -> None:
        Views(self._warehouse(view.name[0])).check_database(view.name[1])
        self._drafts[view.name] = view

    def _remove(self, full: Name) -> None:
        self._drafts[full] = None


class DraftSession(Session):
    """A session whose catalogs are `DraftWarehouse`s.

    Without a `warehouse` the default catalog is empty. With `requires_warehouse`, using the default
    catalog without a warehouse is an error, as in a run.
    """

    catalogs: DraftCatalogs

    def __init__(
        self, warehouse: Mapping[str, str] | None, requires_warehouse: bool = False
    ) -> None:
        super().__init__(warehouse)
        if warehouse is None and not requires_warehouse:
            self.catalogs.add_empty_default()
        self.views = DraftViews(self)

    def table_as_of(self, name: Name, as_of: AsOf) -> TableInfo:
        """As in a run; the table as it is now if statements of the script may make that state."""
        try:
            return super().table_as_of(name, as_of)
        except StreamhouseError:
            return self.table(name)

    def strategies(self, query: StreamQuery, target: TableInfo | None) -> list[str]:
        """The lookup strategy that a run would choose for each lookup of a query, in words."""
        specs: list[DimensionSpec] = []
        for lookup in query.lookups:
            catalog, database, name = lookup.table.name
            warehouse, identifier = self.catalogs.warehouse(catalog), f"{database}.{name}"
            if warehouse.is_draft(identifier):
                table = warehouse.readable(identifier)
                specs.append(DraftSpec(lookup, TableAddress({}, identifier), table))
            else:
                specs.append(DimensionSpec(lookup, TableAddress(warehouse.options, identifier)))
        problem = None if target is None else unshuffled(query, target)
        return [DISPLAY_NAMES[choice.strategy] for choice in choose_all(specs, problem)]

    def _open_catalogs(self, warehouse: Mapping[str, str] | None) -> DraftCatalogs:
        return DraftCatalogs(warehouse, self._notify)
