"""A script's session: catalogs, the current database, temporary tables and settings."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from streamhouse.connectors import registry
from streamhouse.connectors.bad_records import BadRecords
from streamhouse.connectors.specs import SinkSpec, SourceSpec
from streamhouse.errors import OptionError, TableError
from streamhouse.lookup.dimension import is_server
from streamhouse.options import nearest
from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.schema.evolution import renamed_to
from streamhouse.paimon.schema.options.option_aliases import resolved
from streamhouse.paimon.schema.table_name import TableName
from streamhouse.paimon.storage.files import is_local, local_path
from streamhouse.runtime.session.computed_columns import computed_of, with_computed
from streamhouse.runtime.session.functions import SessionFunctions
from streamhouse.runtime.session.views import SessionViews
from streamhouse.secret_references import resolve_secrets
from streamhouse.sql.changes import Change, ResetTableOption, SetTableOption
from streamhouse.sql.options.catalog_options import (
    check_catalog,
    default_database,
    of_warehouse,
    table_defaults,
)
from streamhouse.sql.options.flink_settings import SYNONYMS
from streamhouse.sql.options.known_options import check_set
from streamhouse.sql.options.renamed_options import renamed
from streamhouse.sql.options.store_options import canonical_options, named_options
from streamhouse.sql.plan import (
    AsOf,
    CreateCatalog,
    CreateDatabase,
    CreateTable,
    Drop,
    LookupJoin,
    Name,
    StreamQuery,
    TableInfo,
    ViewInfo,
)
from streamhouse.sql.statements.alter_table import AlterTable

DEFAULT_CATALOG = "default_catalog"
DEFAULT_DATABASE = "default"
_FLINK_DEFAULT_DATABASE = "default_database"


@dataclass(frozen=True)
class _Defaults:
    """The default database and the default table options of a catalog."""

    database: str = DEFAULT_DATABASE
    table_options: Mapping[str, str] = field(default_factory=dict)


class Session:
    """Resolves names as Flink does, and runs DDL statements; implements `Resolver`.

    With a `warehouse` (from the command line), the initial catalog is a Paimon catalog of this
    warehouse, and its options override those of every catalog that the script creates.
    """

    def __init__(self, warehouse: Mapping[str, str] | None) -> None:
        self._warehouse_options = dict(warehouse) if warehouse is not None else None
        self._catalogs: dict[str, dict[str, str]] = {}
        self._defaults: defaultdict[str, _Defaults] = defaultdict(_Defaults)
        self._temporary: dict[Name, TableInfo] = {}
        self.views = SessionViews(self, self._warehouse)
        self.functions = SessionFunctions(lambda text: self.notice(text))
        self._opened: dict[str, Table] = {}
        self._catalog = DEFAULT_CATALOG
        self._database = DEFAULT_DATABASE
        self.settings: dict[str, str] = {}
        self.notice: Callable[[str], None] = _to_stderr
        """Receives messages for the user about statements that did not fail."""
        if self._warehouse_options is not None:
            self._catalogs[DEFAULT_CATALOG] = canonical_options(self._warehouse_options)
            self._make_default(DEFAULT_CATALOG, DEFAULT_DATABASE)

    @property
    def streaming(self) -> bool:
        """Whether queries over tables are continuous (`execution.runtime-mode`)."""
        return self.settings.get("execution.runtime-mode", "streaming").lower() == "streaming"

    def set(self, key: str, value: str) -> None:
        warning = check_set(key, value)
        if warning is not None:
            self.notice(warning)
        self.settings[SYNONYMS.get(key, key)] = value

    def reset(self, key: str | None) -> None:
        if key is None:
            self.settings.clear()
        else:
            self.settings.pop(SYNONYMS.get(key, key), None)

    def create_catalog(self, statement: CreateCatalog) -> None:
        options = dict(statement.options)
        if statement.name in self._catalogs:
            if statement.if_not_exists:
                return
            raise OptionError(f"catalog '{statement.name}' already exists")
        catalog_type = options.pop("type", None)
        if catalog_type not in ("paimon", "generic_in_memory"):
            raise OptionError(
                f"catalog '{statement.name}': 'type' is {catalog_type!r}; it must be 'paimon'"
            )
        where = f"catalog '{statement.name}'"
        for text in check_catalog(options, where):
            self.notice(f"{where}: {text}")
        table_options, database = (
            table_defaults(options),
            default_database(options, DEFAULT_DATABASE),
        )
        options = named_options(resolve_secrets(of_warehouse(options), where), where)
        if self._warehouse_options is not None:
            options.update(self._warehouse_options)
        if "warehouse" not in options:
            raise OptionError(
                f"catalog '{statement.name}': option 'warehouse' is missing; give it in WITH, or "
                "--warehouse DIR on the command line"
            )
        if is_local(options["warehouse"]):
            options["warehouse"] = local_path(options["warehouse"])
        options = canonical_options(options, where)
        self._catalogs[statement.name] = options
        self._defaults[statement.name] = _Defaults(database, table_options)
        self._make_default(statement.name, database)

    def use_catalog(self, name: str) -> None:
        # Flink's default catalog always exists; without a warehouse it has temporary tables only.
        if name != DEFAULT_CATALOG:
            self._options(name)
        self._catalog, self._database = name, self._defaults[name].database

    def create_database(self, statement: CreateDatabase) -> None:
        catalog, database = self._database_name(statement.name)
        self._warehouse(catalog).create_database(database, statement.if_not_exists)

    def use_database(self, name: Name) -> None:
        catalog, database = self._database_name(name)
        if (catalog, database) != (DEFAULT_CATALOG, DEFAULT_DATABASE):
            known = self._warehouse(catalog).databases()
            if database not in known:
                raise TableError(f"there is no database '{database}'; {nearest(database, known)}")
        self._catalog, self._database = catalog, database

    def create_table(self, statement: CreateTable) -> None:
        full = self.full(statement.name)
        where = f"table {'.'.join(full[1:])}"
        options = dict(statement.options)
        connector = options.get("connector", "paimon")
        if connector == "paimon":
            defaults = self._defaults[full[0]].table_options
            options = {
                **self._resolved_options(defaults, where),
                **self._resolved_options(options, where),
            }
        if self.view(full) is not None:
            raise TableError(f"{where}: there is a view of that name; DROP it first")
        if statement.watermark is not None:
            self.notice(
                f"{where}: WATERMARK FOR {statement.watermark} has no effect here: queries do "
                "not wait for late rows, and do not drop them"
            )
        if connector != "paimon":
            info = TableInfo(
                full, statement.columns, statement.computed, statement.primary_key,
                statement.partitioned_by, options, connector,
            )  # fmt: skip
            self._create_foreign(statement, registry.declared(info), where)
            return
        if statement.temporary:
            raise OptionError(
                f"{where}: a temporary table needs a 'connector', such as 'datagen' or 'mysql-cdc'"
            )
        metadata = next((c.name for c in statement.columns if c.metadata is not None), None)
        if metadata is not None:
            raise OptionError(
                f"{where}: Paimon tables have no metadata; leave out METADATA column '{metadata}'"
            )
        options.pop("connector", None)
        self._warehouse(full[0]).create_table(
            full[1],
            full[2],
            statement.columns,
            statement.primary_key,
            statement.partitioned_by,
            with_computed(options, statement.columns, statement.computed),
            statement.comment,
            statement.if_not_exists,
        )

    def drop(self, statement: Drop) -> None:
        if statement.kind == "DATABASE":
            catalog, database = self._database_name(statement.name)
            self.views.check_none(catalog, database)
            self._warehouse(catalog).drop_database(database, statement.if_exists)
        elif statement.kind == "CATALOG":
            self._defaults.pop(statement.name[0], None)
            if self._catalogs.pop(statement.name[0], None) is None and not statement.if_exists:
                raise OptionError(f"there is no catalog '{statement.name[0]}'")
        elif statement.kind == "VIEW":
            self.views.drop(statement)
        elif statement.kind == "FUNCTION":
            self.functions.drop(statement)
        else:
            full = self.full(statement.name)
            if self._temporary.pop(full, None) is None:
                self._no_view(full)
                warehouse = self._warehouse(full[0])
                warehouse.drop_table(full[1], full[2], statement.if_exists)

    def alter(self, statement: AlterTable) -> None:
        """Run ALTER TABLE; a temporary table cannot be changed."""
        full = self.full(statement.name)
        if full in self._temporary:
            raise TableError(
                f"table '{full[2]}' is temporary and cannot be changed; DROP it and CREATE it anew"
            )
        self._no_view(full)
        warehouse = self._warehouse(full[0])
        identifier = f"{full[1]}.{full[2]}"
        if statement.new_name:
            new = self.full(statement.new_name)
            if new[0] != full[0]:
                raise TableError(f"table '{identifier}' cannot move to the catalog '{new[0]}'")
            warehouse.rename_table(identifier, f"{new[1]}.{new[2]}", statement.if_exists)
        else:
            changes = [
                self._resolved_change(change, f"table {identifier}") for change in statement.changes
            ]
            warehouse.alter_table(identifier, *changes, if_exists=statement.if_exists)

    def _resolved_options(self, options: Mapping[str, str], where: str) -> dict[str, str]:
        """A table's options by their Paimon names; gives a notice for each that was replaced."""
        result, notices = resolved(options)
        for text in notices:
            self.notice(f"{where}: {text}")
        return result

    def _resolved_change(self, change: Change, where: str) -> Change:
        if isinstance(change, ResetTableOption):
            return ResetTableOption(renamed(change.key))
        if not isinstance(change, SetTableOption):
            return change
        ((key, value),) = self._resolved_options({change.key: change.value}, where).items()
        return SetTableOption(key, value)

    def show(self, kind: str, of: Name = ()) -> list[str]:
        """The names for SHOW CATALOGS, DATABASES, VIEWS or TABLES (which includes views).

        `of` is the database of the views and tables, by default the current one. `kind` may also
        be CURRENT CATALOG or CURRENT DATABASE.
        """
        if kind == "CATALOGS":
            return sorted(self._catalogs)
        if kind == "DATABASES":
            return sorted(self._warehouse(self._catalog).databases())
        if kind.startswith("CURRENT"):
            return [self._catalog if kind == "CURRENT CATALOG" else self._database]
        catalog, database = self._database_name(of) if of else (self._catalog, self._database)
        stored = self._warehouse(catalog).tables(database)
        views = self.views.listed(catalog, database)
        if kind == "VIEWS":
            return views
        temporary = [n[2] for n in self._temporary if n[:2] == (catalog, database)]
        return sorted({*temporary, *views, *stored})

    def full(self, name: Name) -> Name:
        """The name with catalog and database."""
        full = (self._catalog, self._database)[: 3 - len(name)] + tuple(name)
        return (full[0], self._plain(full[0], full[1]), full[2])

    def table(self, name: Name) -> TableInfo:
        """The table of a name, temporary ones first; else `TableError` with the nearest name."""
        full = self.full(name)
        if full in self._temporary:
            return self._temporary[full]
        return self._stored(full, AsOf())

    def table_as_of(self, name: Name, moment: AsOf) -> TableInfo:
        """As `table`, with the columns as of `moment`; only for Paimon tables."""
        full = self.full(name)
        if full in self._temporary:
            raise OptionError(
                f"table '{full[2]}' is not a Paimon table and has no history; leave out AS OF"
            )
        return self._stored(full, moment)

    def view(self, name: Name) -> ViewInfo | None:
        """The view of a name; None if there is no view of that name."""
        full = self.full(name)
        if full[0] in self._catalogs:
            return self.views.find(full)
        return self.views.temporary(full)

    def viewed(self, name: Name) -> TableInfo:
        """As `table`."""
        return self.table(name)

    def is_temporary(self, name: Name) -> bool:
        """Whether a full name is that of a temporary table."""
        return name in self._temporary

    def has_table(self, name: Name) -> bool:
        """Whether a full name is that of a stored table."""
        return self._warehouse(name[0]).exists(name[1], name[2])

    def _no_view(self, full: Name) -> None:
        if self.view(full) is not None:
            raise TableError(
                f"'{'.'.join(full[1:])}' is a view, which is read-only; to change the view "
                "itself, use DROP VIEW and CREATE VIEW"
            )

    def _stored(self, full: Name, moment: AsOf) -> TableInfo:
        warehouse, base = self._warehouse(full[0]), TableName.parse(full[2]).table
        if not warehouse.exists(full[1], base):
            self._no_view(full)
            close = nearest(base, self._table_names(full))
            raise TableError(f"there is no table '{base}' in database '{full[1]}'; {close}")
        table = warehouse.readable(f"{full[1]}.{full[2]}", moment)
        if isinstance(table, Table):
            self._opened[table.identifier] = table
        options, computed = computed_of(table.options)
        return TableInfo(
            full, table.columns, computed, tuple(table.primary_key),
            tuple(table.partition_keys), options,
        )  # fmt: skip

    def became(self, column: str) -> str | None:
        """How a column of a table that was opened was renamed or dropped; for error messages."""
        for identifier, table in self._opened.items():
            change = renamed_to(table, column)
            if change is not None and column not in table.arrow_schema.names:
                return f"in table {identifier} {change}"
        return None

    def address(self, info: TableInfo) -> TableAddress:
        """The address of a Paimon table, with the schema id that the query is planned with."""
        catalog, database, name = info.name
        identifier = f"{database}.{name}"
        version = (
            self._warehouse(catalog).table(f"{database}.{TableName.parse(name).data}").schema_id
        )
        return TableAddress(self._options(catalog), identifier, version)

    def target(self, info: TableInfo) -> TableAddress:
        """The address of a continuous query's target; for another sink than Paimon, a name only.

        The name of a sink cannot be that of a table (`default.alerts$print`). The query's side
        tables are named after it. Without a warehouse the address has no options.
        """
        if info.connector == "paimon":
            return self.address(info)
        catalog, database, name = info.name
        options = self._catalogs.get(catalog, {})
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

    def dimension(self, lookup: LookupJoin) -> TableAddress:
        """The address of a lookup's table; for a table on a server, only its name."""
        if is_server(lookup):
            return TableAddress({}, ".".join(lookup.table.name[1:]))
        return self.address(lookup.table)

    def bad_records(self, query: StreamQuery) -> TableAddress | None:
        """The table into which the source of a query writes bad records; None if there is none."""
        options = {**query.source.options, **query.source_options}
        parsed = BadRecords.parse(options, f"table {query.source.name[-1]}")
        if parsed.table is None:
            return None
        catalog, database, name = self.full(tuple(parsed.table.split(".")))
        return TableAddress(dict(self._options(catalog)), f"{database}.{name}")

    def source(self, query: StreamQuery) -> SourceSpec:
        """The source of a continuous query."""
        table = query.source
        if table.connector == "paimon":
            address = self.address(table)
            return SourceSpec("paimon", dict(query.source_options), table.columns, address)
        options = registry.effective_options(table, query.source_options)
        return SourceSpec(
            table.connector,
            options,
            table.columns,
            partitioned_by=table.partitioned_by,
            primary_key=table.primary_key,
        )

    def _create_foreign(self, statement: CreateTable, info: TableInfo, where: str) -> None:
        if info.name in self._temporary:
            if statement.if_not_exists:
                return
            raise TableError(f"{where} already exists; drop it or write IF NOT EXISTS")
        for text in registry.check_declaration(info, where):
            self.notice(text)
        self._temporary[info.name] = info

    def _table_names(self, full: Name) -> list[str]:
        temporary = [name[2] for name in self._temporary if name[:2] == full[:2]]
        warehouse = self._warehouse(full[0])
        stored = warehouse.tables(full[1]) if full[1] in warehouse.databases() else []
        return [*temporary, *stored]

    def _database_name(self, name: Name) -> tuple[str, str]:
        catalog = name[0] if len(name) == 2 else self._catalog
        return catalog, self._plain(catalog, name[-1])

    def _plain(self, catalog: str, database: str) -> str:
        """The database's name, with Flink's `default_database` mapped to the default database.

        A stored database of that name is used as it is.
        """
        if catalog != DEFAULT_CATALOG or database != _FLINK_DEFAULT_DATABASE:
            return database
        stored = catalog in self._catalogs and database in self._warehouse(catalog).databases()
        return database if stored else DEFAULT_DATABASE

    def catalog_options(self, catalog: str) -> dict[str, str]:
        """The options of a catalog; `TableError` with the nearest name if there is none."""
        return dict(self._options(catalog))

    def _options(self, catalog: str) -> dict[str, str]:
        if catalog not in self._catalogs:
            if catalog == DEFAULT_CATALOG:
                problem = (
                    "there is no catalog yet" if not self._catalogs else "no warehouse is given"
                )
                raise TableError(
                    f"{problem}: write CREATE CATALOG … WITH ('type' = 'paimon', "
                    "'warehouse' = '…') and USE CATALOG, or give --warehouse DIR"
                )
            hint = nearest(catalog, self._catalogs)
            raise TableError(f"there is no catalog '{catalog}'; {hint}")
        return self._catalogs[catalog]

    def _warehouse(self, catalog: str) -> Warehouse:
        return Warehouse(self._options(catalog))

    def _make_default(self, catalog: str, database: str) -> None:
        self._warehouse(catalog).create_database(database, if_not_exists=True)


def _to_stderr(text: str) -> None:
    print(f"notice: {text}", file=sys.stderr, flush=True)
