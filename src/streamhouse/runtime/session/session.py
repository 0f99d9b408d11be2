"""A script's session: its catalogs, tables, views, functions and settings; resolves names.

Describes what a query reads and writes, so that drivers and executors can open it.
"""

import re
import sys
from collections import UserDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from streamhouse.close_matches import nearest
from streamhouse.connectors import registry
from streamhouse.connectors.bad_records import OPTIONS, BadRecordOptions
from streamhouse.connectors.base import Scan
from streamhouse.connectors.specs import SinkSpec, SourceSpec
from streamhouse.errors import OptionError, TableError
from streamhouse.lookup.dimension import DimensionSpec
from streamhouse.options import OptionValues
from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.schema.evolution import renamed_to
from streamhouse.paimon.schema.options.computed_columns import stored_table
from streamhouse.paimon.schema.table_name import TableName
from streamhouse.runtime.session.catalogs import DEFAULT_DATABASE, Catalogs
from streamhouse.runtime.session.materialized_views import MaterializedViews
from streamhouse.runtime.session.table_definitions import TableDefinitions
from streamhouse.runtime.session.views import SessionViews, check_no_view
from streamhouse.sql.expressions.zones import UTC, ZONE_OPTION, zone_named
from streamhouse.sql.options.known_options import SET_OPTIONS, SYNONYMS, check_set
from streamhouse.sql.plan import (
    CURRENT,
    AsOf,
    LookupJoin,
    Name,
    Resolver,
    StreamQuery,
    TableInfo,
    ViewInfo,
)


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
        """A lookup and the address of its table; for a table on a server, only its name."""
        if lookup.on_server:
            address = TableAddress({}, ".".join(lookup.table.name[1:]))
        else:
            address = self.address(lookup.table)
        return DimensionSpec(lookup, address)

    def address(self, info: TableInfo) -> TableAddress:
        """The address of a Paimon table, with the schema id that the query is planned with."""
        catalog, database, name = info.name
        warehouse = self.catalogs.warehouse(catalog)
        version = warehouse.table(f"{database}.{TableName.parse(name).data}").schema_id
        return TableAddress(self.catalogs.options(catalog), f"{database}.{name}", version)

    def target(self, info: TableInfo) -> TableAddress:
        """The address of a continuous query's target; for another sink than Paimon, a name only.

        The name of a sink cannot be that of a table (`default.alerts$print`). The query's side
        tables are named after it. Without a warehouse the address has no options.
        """
        if info.connector == "paimon":
            return self.address(info)
        catalog, database, name = info.name
        options = self.catalogs.options(catalog) if catalog in self.catalogs else {}
        return TableAddress(options, f"{database}.{name}${info.connector}")

    def sink(self, info: TableInfo, hint: Mapping[str, str]) -> SinkSpec | None:
        """The sink of a table, with the options of a hint; None for a Paimon table."""
        if info.connector == "paimon":
            return None
        table = replace(info, options={**info.options, **hint})
        if hint:
            for text in registry.check_declaration(table, f"table {'.'.join(info.name[1:])}"):
                self.notice(text)
        return SinkSpec(
            info.connector,
            registry.effective_options(table),
            tuple(column for column in info.columns if not column.virtual),
            primary_key=info.primary_key,
            partitioned_by=info.partitioned_by,
            name=".".join(info.name[1:]),
        )

    def source(self, query: StreamQuery) -> SourceSpec:
        """The source of a continuous query."""
        table = query.source
        if table.connector == "paimon":
            address = self.address(table)
            return SourceSpec("paimon", dict(query.scan.options), table.columns, address)
        options = registry.effective_options(table, query.scan.options)
        return SourceSpec(
            table.connector,
            options,
            table.columns,
            partitioned_by=table.partitioned_by,
            primary_key=table.primary_key,
        )

    def scan(self, table: TableInfo, columns: Sequence[str]) -> Scan:
        """A bounded read of a table of another connector than Paimon."""
        options = registry.effective_options(table)
        return registry.connector(table.connector).scan(table, options, columns)

    def dead_letters(self, query: StreamQuery) -> TableAddress | None:
        """The table into which the source of a query writes bad records; None if there is none."""
        options = {**query.source.options, **query.scan.options}
        parsed = OptionValues(OPTIONS, options).record(BadRecordOptions)
        if parsed.table is None:
            return None
        catalog, database, name = self.catalogs.full(tuple(parsed.table.split(".")))
        return TableAddress(self.catalogs.options(catalog), f"{database}.{name}")

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
