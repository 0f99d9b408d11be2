"""The catalog of served views: those of a views file, or all tables and views of the warehouse."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from streamhouse.close_matches import closest, nearest
from streamhouse.errors import TableError
from streamhouse.paimon.catalog.views import Views
from streamhouse.paimon.schema.table_name import MAIN, TableName
from streamhouse.serve.auth.scope import EVERYTHING, Scope
from streamhouse.serve.views.served_view import ServedView, is_name

if TYPE_CHECKING:
    from streamhouse.paimon.catalog.warehouse import Warehouse

_NAMED = 10


class ViewCatalog:
    """Finds served views by name.

    `views` are the views of a file; None serves every table and view of the warehouse. A view that
    the scope may not see is treated as missing. All methods read the warehouse, so they block.
    """

    def __init__(self, views: Sequence[ServedView] | None = None) -> None:
        self._fixed = None if views is None else {view.name: view for view in views}

    def list_views(self, warehouse: Warehouse, scope: Scope = EVERYTHING) -> list[ServedView]:
        """The served views, sorted by name; those of a file in the file's order."""
        if self._fixed is not None:
            return [view for name, view in self._fixed.items() if scope.sees(name)]
        names = [
            f"{database}.{name}"
            for database in warehouse.databases()
            for name in {*warehouse.tables(database), *Views(warehouse).names(database)}
        ]
        return [ServedView(name, name) for name in sorted(names) if scope.sees(name)]

    def find(self, warehouse: Warehouse, name: str, scope: Scope = EVERYTHING) -> ServedView:
        """The served view `database.table`, or a branch of a table (`database.table$branch_b`).

        Raises `TableError`, which names the nearest match, if the view does not exist or the scope
        may not see it.
        """
        if is_name(name) and scope.sees(name):
            if self._fixed is not None and name in self._fixed:
                return self._existing(warehouse, self._fixed[name])
            if self._fixed is None and self._exists(warehouse, name):
                return ServedView(name, name)
        raise self._missing(warehouse, name, scope)

    def full_name(self, warehouse: Warehouse, name: str, scope: Scope) -> str:
        """The full name `database.table` of a bare name.

        Raises `TableError` unless exactly one served view has that name.
        """
        matches = [
            v.name for v in self.list_views(warehouse, scope) if v.name.split(".", 1)[1] == name
        ]
        if len(matches) == 1:
            return matches[0]
        if matches:
            raise TableError(f"'{name}' is in several databases; write {' or '.join(matches)}")
        raise self._missing(warehouse, name, scope)

    def _existing(self, warehouse: Warehouse, view: ServedView) -> ServedView:
        """The view, if its source exists; the `TableError` does not reveal the source's name."""
        try:
            if self._exists(warehouse, view.source):
                return view
        except TableError:
            pass
        raise TableError(
            f"view '{view.name}' cannot be read: its table, as defined in the server's views file, "
            "does not exist"
        )

    def _exists(self, warehouse: Warehouse, name: str) -> bool:
        database, table = name.split(".", 1)
        parsed = TableName.parse(table)
        if parsed.system is not None:
            raise TableError(
                f"'{name}' is a system table, which is not served; see "
                f"/views/{database}.{parsed.data}/snapshots, /files, /tags, /options or /schema"
            )
        if parsed.branch != MAIN:
            # Raises an error that names the existing branches.
            warehouse.table(name)
            return True
        if warehouse.exists(database, table):
            return True
        return database in warehouse.databases() and table in Views(warehouse).names(database)

    def _missing(self, warehouse: Warehouse, name: str, scope: Scope) -> TableError:
        names = [view.name for view in self.list_views(warehouse, scope)]
        short_name = name[:80]
        if not names:
            return TableError(f"there is no view '{short_name}'; the server has no views yet")
        if closest(name, names) or len(names) <= _NAMED:
            return TableError(f"there is no view '{short_name}'; {nearest(name, names)}")
        return TableError(
            f"there is no view '{short_name}'; GET /views lists all {len(names)} views"
        )
