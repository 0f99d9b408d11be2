"""Served views: tables, branches and SQL views, under names of their own; finds them by name."""

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from streamhouse.close_matches import closest, nearest
from streamhouse.errors import OptionError, StreamhouseError, TableError
from streamhouse.paimon.catalog.views import Views
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.schema.options.computed_columns import stored_table
from streamhouse.paimon.schema.table_name import MAIN, TableName
from streamhouse.serve.access_log import LOGGER
from streamhouse.serve.tokens import EVERYTHING, Scope
from streamhouse.sql.batch.bounded_query import analyze_bounded
from streamhouse.sql.plan import CURRENT, AsOf, BoundedQuery, Name, Resolver, TableInfo, ViewInfo
from streamhouse.sql.syntax import Query, TextPosition
from streamhouse.sql.text import ticked

MAX_CHARACTERS = 300
_NAME = re.compile(r"[^\x00-\x1f\x7f/\\.]+\.[^\x00-\x1f\x7f/\\]+")
_NAMED = 10


class WarehouseTables(Resolver):
    """Resolves the table and view names of a query in one warehouse."""

    def __init__(self, warehouse: Warehouse) -> None:
        self._warehouse = warehouse

    def table(self, name: Name, as_of: AsOf = CURRENT) -> TableInfo:
        """The table `database.table`; a bare name must exist in exactly one database."""
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

    def stored_view(self, name: str) -> ViewInfo:
        """The view `database.view`, which existed before; `TableError` if it has been dropped."""
        view = self.view(tuple(name.split(".", 1)))
        if view is None:
            raise TableError(f"view '{name}' no longer exists")
        return view

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


def table_of(warehouse: Warehouse, name: str) -> Table | None:
    """The table or branch `database.table`; None if it is a SQL view. Raises `TableError`."""
    try:
        return warehouse.table(name)
    except TableError:
        if WarehouseTables(warehouse).view(tuple(name.split(".", 1))) is None:
            raise
        return None


def table_info(table: Any) -> TableInfo:
    """The record of a table, a branch or a system table for the analysis of queries."""
    return stored_table((table.database, table.name), table)


def is_name(text: str) -> bool:
    """Whether a text can be `database.table`: printable, and without path separators."""
    fits = len(text) <= MAX_CHARACTERS and _NAME.fullmatch(text) is not None
    return fits and text.isprintable()


def check_name(text: str, where: str) -> None:
    """Raise `OptionError` for a text that is not `database.table`."""
    if not is_name(text):
        raise OptionError(f"{where}: '{text[:80]}' is not a name; write database.table")


def is_plain_text(text: str) -> bool:
    """Whether a text has no control characters except line ends and tabs, and no surrogates."""
    if any(c < " " and c not in "\t\n\r" for c in text):
        return False
    return not any("\ud800" <= c <= "\udfff" for c in text)


@dataclass(frozen=True)
class ServedView:
    """One served view.

    `name` is `database.table` as clients write it. `source` is the table, branch or view that it
    reads. `columns` are the exposed columns, None for all. `filter` is a condition in the Flink
    dialect over the source's columns. The others are for people, and `chart` for the web page; they
    do not count when views are compared: equal views share one stream.
    """

    name: str
    source: str
    columns: tuple[str, ...] | None = None
    filter: str | None = None
    title: str | None = field(default=None, compare=False)
    description: str | None = field(default=None, compare=False)
    chart: Mapping[str, Any] | None = field(default=None, compare=False)

    def visible(self, names: Sequence[str]) -> tuple[str, ...]:
        """Those of the source's columns `names` that clients may see, in the view's order.

        Raises `TableError` if the source lacks a column of the view. Clients read the message, so
        it names neither the source nor its other columns.
        """
        if self.columns is None:
            return tuple(names)
        missing = next((name for name in self.columns if name not in names), None)
        if missing is not None:
            raise TableError(
                f"view '{self.name}' is defined with column '{missing}', which its table does not "
                "have; correct 'columns' in the server's file of views"
            )
        return self.columns


def planned(view: ServedView, resolver: Resolver) -> BoundedQuery:
    """The plan of all columns and rows that a served view shows."""
    return analyze_bounded(Query(definition(view), TextPosition(1, 1)), resolver)


def definition(view: ServedView) -> str:
    """The SELECT of a served view: its columns and its filter over the source."""
    columns = "*" if view.columns is None else ", ".join(map(ticked, view.columns))
    database, table = view.source.split(".", 1)
    text = f"SELECT {columns} FROM {ticked(database)}.{ticked(table)}"
    # On a line of its own, so that a comment at its end does not hide the bracket.
    return text if view.filter is None else f"{text} WHERE (\n{view.filter}\n)"


@contextlib.contextmanager
def hide_definition_errors(warehouse: Warehouse, view: ServedView) -> Iterator[None]:
    """Replace an error that the view's own definition causes; its message may name hidden columns.

    Raises `TableError` without details then; they are in the server's log.
    """
    try:
        yield
    except StreamhouseError:
        if view.columns is not None or view.filter is not None:
            try:
                planned(view, WarehouseTables(warehouse))
            except StreamhouseError as error:
                LOGGER.warning("view '%s' cannot be read as it is defined: %s", view.name, error)
                raise TableError(
                    f"view '{view.name}' cannot be read as it is defined in the server's file of "
                    "views; the server's log has the details"
                ) from None
        raise


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
        with contextlib.suppress(TableError):
            if self._exists(warehouse, view.source):
                return view
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
