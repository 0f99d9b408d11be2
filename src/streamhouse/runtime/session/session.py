"""A script's session: its catalogs, tables, views, functions and settings; resolves names."""

import re
import sys
from collections import UserDict
from collections.abc import Callable, Mapping
from typing import Any

from streamhouse.close_matches import nearest
from streamhouse.errors import OptionError, TableError
from streamhouse.lookup.dimension import DimensionSpec
from streamhouse.options import OptionValues
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.schema.evolution import renamed_to
from streamhouse.paimon.schema.options.computed_columns import stored_table
from streamhouse.paimon.schema.table_name import TableName
from streamhouse.runtime.session.catalogs import DEFAULT_DATABASE, Catalogs
from streamhouse.runtime.session.endpoints import Endpoints
from streamhouse.runtime.session.materialized_views import MaterializedViews
from streamhouse.runtime.session.table_definitions import TableDefinitions
from streamhouse.runtime.session.views import SessionViews, check_no_view
from streamhouse.sql.expressions.zones import UTC, ZONE_OPTION, zone_named
from streamhouse.sql.options.known_options import SET_OPTIONS, SYNONYMS, check_set
from streamhouse.sql.plan import CURRENT, AsOf, LookupJoin, Name, Resolver, TableInfo, ViewInfo


class Settings(UserDict[str, str]):
    """The set options, by the names that Flink prefers; `notice` receives warnings."""

    def __init__(self, notice: Callable[[str], None]) -> None:
        super().__init__()
        self._notice = notice

    @property
    def streaming(self) -> bool:
        """Whether queries over tables are continuous (`execution.runtime-mode`)."""
        return bool(self.value("execution.runtime-mode") == "streaming")

    def value(self, key: str) -> Any:
        """An option as a value of its type; its default if it is not set."""
        return OptionValues(SET_OPTIONS.values(), self)[key]

    def set(self, key: str, value: str) -> None:
        """Run SET; `OptionError` for an unknown option or value."""
        warning = check_set(key, value)
        if warning is not None:
            self._notice(warning)
        self[SYNONYMS.get(key, key)] = value

    def reset(self, key: str | None) -> None:
        """Run RESET, of one option or (None) of all."""
        if key is None:
            self.clear()
        else:
            self.pop(SYNONYMS.get(key, key), None)


class Session(Resolver):
    """Resolves names as Flink does.

    `warehouse` has the options of a warehouse from the command line (see `Catalogs`). `ddl.define`
    runs the statements that change the session.
    """

    def __init__(
        self,
        warehouse: Mapping[str, str] | None,
        open_catalogs: Callable[..., Catalogs] = Catalogs,
    ) -> None:
        self.notice: Callable[[str], None] = _to_stderr
        """Receives messages for the user about statements that did not fail."""
        self.pipeline = ""
        """The name of the pipeline, unless the script sets another one."""
        self.settings = Settings(self._notify)
        self.catalogs = open_catalogs(warehouse, self._notify)
        self.tables = TableDefinitions(self)
        self.views = SessionViews(self)
        self.materialized = MaterializedViews(self)
        self.functions: set[str] = set()
        """The names of the present Python functions."""
        self.endpoints = Endpoints(self)
        self._opened: dict[str, Table] = {}

    def full(self, name: Name) -> Name:
        """The name with catalog and database."""
        return self.catalogs.full(name)

    @property
    def pipeline_name(self) -> str:
        """The name of the pipeline to which the next queries belong."""
        return self.settings.get("pipeline.name", self.pipeline)

    @property
    def zone(self) -> str:
        """The time zone in which queries are planned (`table.local-time-zone`)."""
        return zone_named(ZONE_OPTION, self.settings.get(ZONE_OPTION, UTC))

    def table(self, name: Name, as_of: AsOf = CURRENT) -> TableInfo:
        """The table of a name, temporary ones first; only Paimon tables have columns `as_of`."""
        full = self.full(name)
        if full not in self.tables.temporary:
            return self._stored(full, as_of)
        if as_of:
            raise OptionError(
                f"table '{full[2]}' is not a Paimon table and has no history; leave out AS OF"
            )
        return self.tables.temporary[full]

    def view(self, name: Name) -> ViewInfo | None:
        """The view of a name; None if there is no view of that name."""
        return self.views.find(self.full(name))

    def dimension(self, lookup: LookupJoin) -> DimensionSpec:
        """A lookup and its table."""
        return DimensionSpec(lookup, self.endpoints.dimension(lookup))

    def is_temporary(self, name: Name) -> bool:
        """Whether a full name is that of a temporary table."""
        return name in self.tables.temporary

    def result_table(self, name: Name) -> Name:
        """A name for a table that keeps a result for one statement of the script.

        It has that of the pipeline, so that no other pipeline changes it.
        """
        suffix = re.sub("[^A-Za-z0-9_]", "_", self.pipeline_name)
        catalog = self.catalogs.of_results(name[0])
        database = DEFAULT_DATABASE if catalog != name[0] else name[1]
        table = f"{name[2]}_{suffix}" if suffix else name[2]
        return self.materialized.unused((catalog, database, table))

    def has_table(self, name: Name) -> bool:
        """Whether a full name is that of a stored table."""
        return self.catalogs.warehouse(name[0]).exists(name[1], name[2])

    def renaming_of(self, column: str) -> str | None:
        """How a column of a table that was opened was renamed or dropped; for error messages."""
        for identifier, table in self._opened.items():
            change = renamed_to(table, column)
            if change is not None and column not in table.arrow_schema.names:
                return f"in table {identifier} {change}"
        return None

    def _notify(self, text: str) -> None:
        self.notice(text)

    def _stored(self, full: Name, as_of: AsOf) -> TableInfo:
        warehouse, base = self.catalogs.warehouse(full[0]), TableName.parse(full[2]).table
        if not warehouse.exists(full[1], base):
            check_no_view(self, full)
            stored = warehouse.tables(full[1]) if full[1] in warehouse.databases() else []
            close = nearest(base, [*self.tables.temporary_names(full[0], full[1]), *stored])
            raise TableError(f"there is no table '{base}' in database '{full[1]}'; {close}")
        table = warehouse.readable(f"{full[1]}.{full[2]}", as_of)
        if isinstance(table, Table):
            self._opened[table.identifier] = table
        return stored_table(full, table)


def _to_stderr(text: str) -> None:
    print(f"notice: {text}", file=sys.stderr, flush=True)
