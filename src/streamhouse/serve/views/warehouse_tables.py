"""Name resolution for bounded queries in one warehouse."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streamhouse.close_matches import nearest
from streamhouse.errors import TableError
from streamhouse.paimon.catalog.views import Views
from streamhouse.paimon.schema.options.computed_columns import stored_table
from streamhouse.sql.plan import AsOf, Name, TableInfo, ViewInfo

if TYPE_CHECKING:
    from streamhouse.paimon.catalog.warehouse import Warehouse


class WarehouseTables:
    """Resolves the table and view names of a query in one warehouse."""

    def __init__(self, warehouse: Warehouse) -> None:
        self._warehouse = warehouse

    def table(self, name: Name) -> TableInfo:
        """The table `database.table`; a bare name must exist in exactly one database."""
        return self.table_as_of(name, AsOf())

    def table_as_of(self, name: Name, as_of: AsOf) -> TableInfo:
        """As `table`, with the columns that the table had at `as_of`."""
        return table_info(self._warehouse.readable(".".join(self._full(name)), as_of))

    def view(self, name: Name) -> ViewInfo | None:
        """The view `database.view`, or None; a bare name must exist in exactly one database."""
        if "$" in name[-1]:
            return None
        try:
            database, view = self._full(name)
        except TableError:
            return None  # `table` raises the error, with the position
        return Views(self._warehouse).find(database, view)

    def viewed(self, name: Name) -> TableInfo:
        """As `table`, for a table that a view reads.

        The error about a missing table names that table only, and suggests no other: a client that
        may see the view need not be allowed to see other tables.
        """
        try:
            return self.table(name)
        except TableError:
            missing = ".".join(name[-2:])
            raise TableError(f"the view reads '{missing}', which does not exist") from None

    def qualified(self, name: str) -> str:
        """The full name `database.table` of a name as written in a query."""
        return ".".join(self._full(tuple(name.split("."))))

    def _full(self, name: Name) -> Name:
        if len(name) != 1:
            return name[-2:]
        base = name[0].partition("$")[0]
        databases = [db for db in self._warehouse.databases() if self._has(db, base)]
        if len(databases) == 1:
            return databases[0], name[0]
        if databases:
            choices = " or ".join(f"{database}.{name[0]}" for database in sorted(databases))
            raise TableError(f"table '{name[0]}' is in several databases; write {choices}")
        raise TableError(f"there is no table '{base}'; {self._nearest(base)}")

    def _has(self, database: str, table: str) -> bool:
        if table in self._warehouse.tables(database):
            return True
        return table in Views(self._warehouse).names(database)

    def _nearest(self, word: str) -> str:
        tables = {t: db for db in self._warehouse.databases() for t in self._warehouse.tables(db)}
        text = nearest(word, tables)
        for table, database in tables.items():
            text = text.replace(f"'{table}'", f"'{database}.{table}'")
        return text


def table_info(table: Any) -> TableInfo:
    """The record of a table, a branch or a system table for the analysis of queries."""
    return stored_table((table.database, table.name), table)
