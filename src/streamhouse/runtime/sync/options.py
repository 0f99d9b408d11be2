"""The options of a sync, as Paimon's `mysql_sync_table` and `mysql_sync_database` name them."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Self, TypedDict, Unpack, get_args, get_type_hints

from streamhouse.close_matches import nearest
from streamhouse.connectors.mysql_cdc.database.discovery import TableFilter
from streamhouse.connectors.mysql_cdc.database.part_reader import KIND
from streamhouse.connectors.mysql_cdc.database.type_mapping import NOT_BOOL, TypeMapping
from streamhouse.errors import OptionError
from streamhouse.mysql.metadata import TableNames
from streamhouse.mysql.options import DECLARED, MySqlOptions, parse, without_effect
from streamhouse.options import boolean, choice, required
from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.secret_references import resolve_secrets

METADATA = {one.key: one.type for one in DECLARED.metadata if one.key != KIND}
"""The metadata columns of a sync, with their types."""
_TINYINT1 = ("jdbc.properties.tinyInt1isBit", "treat-tinyint1-as-boolean.enabled")
_EFFECTIVE = (
    *_TINYINT1, "include-comments.enabled", "schema-change.enabled",
    "jdbc.properties.useInformationSchema", "debezium.include.schema.comments",
    "debezium.include.schema.changes",
)  # fmt: skip
"""Options of the source that mean what a sync does."""
_CASE = "case-sensitive"
_DATABASE_KEY, _TABLE_KEY = "database-name", "table-name"


BEHAVIORS = ("evolve", "try_evolve", "lenient", "ignore", "exception")
Event = Literal[
    "add.column",
    "alter.column.type",
    "create.table",
    "drop.column",
    "drop.table",
    "rename.column",
    "truncate.table",
]
EVENTS: tuple[str, ...] = get_args(Event)
_KEEPS_ROWS = ("drop.table", "truncate.table")
_ALWAYS = "create.table"


@dataclass(frozen=True)
class SchemaChanges:
    """How a sync handles schema changes; `events` are the kinds of changes that it follows.

    docs/decisions/195-schema-changes-of-a-sync.md describes the behaviours.
    """

    behavior: str = "try_evolve"
    events: frozenset[str] = frozenset(EVENTS)

    @classmethod
    def of(
        cls, behavior: str | None, include: Iterable[str] = (), exclude: Iterable[str] = ()
    ) -> Self:
        """From the values of the options; raises `OptionError`."""
        name = choice(
            "--schema-change-behavior",
            (behavior or "try_evolve").lower().replace("-", "_"),
            BEHAVIORS,
        )
        included = _events("--include-schema-changes", include)
        excluded = _events("--exclude-schema-changes", exclude)
        events = set(EVENTS) if included is None else {*included, _ALWAYS}
        if included is None and name == "lenient":
            events -= set(_KEEPS_ROWS)
        return cls(name, frozenset(events - (excluded or set())))

    def follows(self, event: Event) -> bool:
        """Whether a kind of change is applied to the Paimon table."""
        if self.behavior == "ignore":
            return event == _ALWAYS and _ALWAYS in self.events
        return event in self.events

    @property
    def keeps_columns_equal(self) -> bool:
        """Whether the Paimon table gets the same columns, in the same order."""
        return self.behavior in ("evolve", "try_evolve")


def _events(flag: str, names: Iterable[str]) -> set[str] | None:
    """The kinds of changes whose names contain one of these; None for no names."""
    wanted = [name.strip().lower() for name in names if name.strip()]
    found: set[str] = set()
    for name in wanted:
        matching = {event for event in EVENTS if name in event}
        if not matching:
            raise OptionError(f"{flag}: there is no '{name}'; {nearest(name, EVENTS)}")
        found |= matching
    return found if wanted else None


@dataclass(frozen=True)
class TableNaming:
    """How the Paimon tables of a database sync are named.

    `mapping` has the names of single tables, which win; `prefixes` and `suffixes` those of single
    databases, instead of `prefix` and `suffix`. Their keys are in lower case, since Paimon ignores
    the case of these names.
    """

    prefix: str = ""
    suffix: str = ""
    merge_shards: bool = True
    mapping: Mapping[str, str] = field(default_factory=dict)
    prefixes: Mapping[str, str] = field(default_factory=dict)
    suffixes: Mapping[str, str] = field(default_factory=dict)

    def own(self, names: TableNames) -> str:
        """The name of a table in MySQL by which `mapping` has another one."""
        return names[1] if self.merge_shards else "_".join(names)

    def name(self, names: TableNames) -> str:
        """The name of the Paimon table of a table in MySQL."""
        database, own = names[0].lower(), self.own(names)
        prefix = self.prefixes.get(database, self.prefix)
        suffix = self.suffixes.get(database, self.suffix)
        return self.mapping.get(own.lower(), f"{prefix}{own}{suffix}")


@dataclass(frozen=True)
class SyncOptions:
    """The checked options of one sync; `table` is None for a whole database.

    `warehouse` are the catalog's options. `mysql` has the patterns of `tables` as its names.
    `names` decides the names of the Paimon tables. `partition_keys_of` has those of single Paimon
    tables. `source_keys`: tables get the primary keys of MySQL unless `primary_keys` are given.
    `live`: tables that are created later are followed without a restart. `schema_changes`: what
    happens when tables are altered. `notices`: of options without effect.
    """

    warehouse: Mapping[str, str] = field(repr=False)
    database: str
    table: str | None
    mysql: MySqlOptions
    tables: TableFilter
    mapping: TypeMapping = TypeMapping()
    partition_keys: tuple[str, ...] = ()
    primary_keys: tuple[str, ...] = ()
    computed_columns: tuple[str, ...] = ()
    metadata_columns: tuple[str, ...] = ()
    table_conf: Mapping[str, str] = field(default_factory=dict)
    metadata_prefix: str = ""
    names: TableNaming = TableNaming()
    partition_keys_of: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    source_keys: bool = True
    ignore_incompatible: bool = False
    skip_unsupported: bool = False
    live: bool = True
    schema_changes: SchemaChanges = SchemaChanges()
    notices: tuple[str, ...] = ()

    @property
    def origin(self) -> str:
        """What the offsets of this sync belong to."""
        return f"mysql-cdc {self.tables.databases} into {self.name}"

    @property
    def name(self) -> str:
        """The target: a database, or a table."""
        return self.database if self.table is None else f"{self.database}.{self.table}"

    @property
    def metadata_names(self) -> dict[str, str]:
        """The names of the metadata columns in the Paimon tables."""
        return {name: self.spelt(f"{self.metadata_prefix}{name}") for name in self.metadata_columns}

    def spelt(self, name: str) -> str:
        """A name in lower case, if the catalog is not `case-sensitive`."""
        return name.lower() if self.warehouse.get(_CASE, "").lower() == "false" else name

    def target(self, names: TableNames) -> str:
        """The Paimon table, `database.table`, of a table in MySQL."""
        if self.table is not None:
            return f"{self.database}.{self.table}"
        return f"{self.database}.{self.spelt(self.names.name(names))}"

    def address(self, target: str) -> TableAddress:
        """The address of a target, `database.table`."""
        return TableAddress(self.warehouse, target)


class TableArguments(TypedDict, total=False):
    """The arguments that both actions have, about the Paimon tables."""

    partition_keys: Sequence[str]
    primary_keys: Sequence[str]
    type_mapping: Sequence[str]
    computed_column: Sequence[str]
    metadata_column: Sequence[str]
    metadata_column_prefix: str
    sync_primary_keys_from_source_schema: bool
    table_conf: Mapping[str, str] | None
    skip_unsupported: bool
    schema_change_behavior: str | None
    include_schema_changes: Sequence[str]
    exclude_schema_changes: Sequence[str]


class DatabaseArguments(TableArguments, total=False):
    """The arguments of a sync of whole databases."""

    including_tables: str
    excluding_tables: str | None
    table_prefix: str
    table_suffix: str
    table_prefix_db: Mapping[str, str] | None
    table_suffix_db: Mapping[str, str] | None
    table_mapping: Mapping[str, str] | None
    including_dbs: str
    excluding_dbs: str | None
    multiple_table_partition_keys: Mapping[str, str] | None
    merge_shards: bool
    ignore_incompatible: bool
    mode: str


_TYPES: Mapping[str, object] = get_type_hints(DatabaseArguments)
LISTS = tuple(name for name, kind in _TYPES.items() if kind == Sequence[str])
"""The arguments that are lists of texts."""
MAPS = tuple(name for name, kind in _TYPES.items() if kind == Mapping[str, str] | None)
"""The arguments that map texts to texts."""
BOOLEANS = tuple(name for name, kind in _TYPES.items() if kind is bool)
TABLE_ARGUMENTS = tuple(TableArguments.__annotations__)
_BEHAVIOR = TABLE_ARGUMENTS.index("skip_unsupported")
DATABASE_ARGUMENTS = (
    *(name for name in DatabaseArguments.__annotations__ if name not in (*TABLE_ARGUMENTS, "mode")),
    *TABLE_ARGUMENTS[_BEHAVIOR:], "mode", *TABLE_ARGUMENTS[:_BEHAVIOR],
)  # fmt: skip
"""The names of the arguments in the order in which a CALL may give them without names."""


def sync_table_options(
    warehouse: Mapping[str, str],
    database: str,
    table: str,
    mysql_conf: Mapping[str, str],
    **arguments: Unpack[TableArguments],
) -> SyncOptions:
    """The options of a sync into one table; raises `OptionError`."""
    _check_names(arguments, TableArguments.__annotations__)
    pattern = required(mysql_conf, _TABLE_KEY, "--mysql-conf")
    given = {**arguments, "including_tables": pattern}
    return _options(warehouse, (database, table), mysql_conf, given)


def sync_database_options(
    warehouse: Mapping[str, str],
    database: str,
    mysql_conf: Mapping[str, str],
    **arguments: Unpack[DatabaseArguments],
) -> SyncOptions:
    """The options of a sync of whole databases; raises `OptionError`."""
    _check_names(arguments, DatabaseArguments.__annotations__)
    if _TABLE_KEY in mysql_conf:
        raise OptionError(
            f"--mysql-conf {_TABLE_KEY}: a sync of a database takes --including-tables and "
            "--excluding-tables instead"
        )
    return _options(warehouse, (database, None), {**mysql_conf, _TABLE_KEY: "*"}, arguments)


def _check_names(arguments: Iterable[str], known: Collection[str]) -> None:
    for name in arguments:
        if name not in known:
            raise TypeError(f"unexpected keyword argument '{name}'; {nearest(name, known)}")


def _options(
    warehouse: Mapping[str, str],
    target: tuple[str, str | None],
    mysql_conf: Mapping[str, str],
    arguments: Mapping[str, Any],
) -> SyncOptions:
    database, table = target
    databases, mysql = required(mysql_conf, _DATABASE_KEY, "--mysql-conf"), _mysql(mysql_conf)
    schema_changes = SchemaChanges.of(
        arguments.get("schema_change_behavior"),
        arguments.get("include_schema_changes", ()),
        arguments.get("exclude_schema_changes", ()),
    )
    mode = choice("--mode", arguments.get("mode", "combined"), ("combined", "divided"))
    finds_tables = mode == "combined" and "create.table" in schema_changes.events
    partitions = arguments.get("multiple_table_partition_keys") or {}
    return SyncOptions(
        warehouse,
        database,
        table,
        mysql,
        TableFilter(
            databases,
            arguments.get("including_tables", ".*"),
            arguments.get("excluding_tables"),
            including_databases=arguments.get("including_dbs", ".*"),
            excluding_databases=arguments.get("excluding_dbs"),
        ),
        _mapping(mysql_conf, arguments.get("type_mapping", ())),
        tuple(arguments.get("partition_keys", ())),
        tuple(arguments.get("primary_keys", ())),
        tuple(arguments.get("computed_column", ())),
        _metadata(arguments.get("metadata_column", ())),
        dict(arguments.get("table_conf") or {}),
        arguments.get("metadata_column_prefix", ""),
        _naming(arguments),
        {name: tuple(keys.split(",")) for name, keys in partitions.items()},
        arguments.get("sync_primary_keys_from_source_schema", True),
        arguments.get("ignore_incompatible", False),
        arguments.get("skip_unsupported", False),
        table is not None or (finds_tables and mysql.startup_mode != "snapshot"),
        schema_changes,
        tuple(
            f"--mysql-conf {key} has no effect: {why}"
            for key in mysql_conf
            if key not in _EFFECTIVE and (why := without_effect(key)) is not None
        ),
    )


def _naming(arguments: Mapping[str, Any]) -> TableNaming:
    return TableNaming(
        arguments.get("table_prefix", ""),
        arguments.get("table_suffix", ""),
        arguments.get("merge_shards", True),
        _by_lower_case(arguments.get("table_mapping")),
        _by_lower_case(arguments.get("table_prefix_db")),
        _by_lower_case(arguments.get("table_suffix_db")),
    )


def _by_lower_case(names: Mapping[str, str] | None) -> dict[str, str]:
    return {key.lower(): name for key, name in (names or {}).items()}


def _mapping(conf: Mapping[str, str], modes: Sequence[str]) -> TypeMapping:
    """The mapping, to which the JDBC driver's option for TINYINT(1) belongs, too."""
    mapping = TypeMapping.of(modes)
    for key in _TINYINT1:
        if key not in conf:
            continue
        if not boolean(key, conf[key]):
            mapping = TypeMapping(mapping.modes | {NOT_BOOL})
        elif NOT_BOOL in mapping.modes:
            raise OptionError(
                f"--mysql-conf {key}=true contradicts --type-mapping {NOT_BOOL}; give one"
            )
    return mapping


def _mysql(conf: Mapping[str, str]) -> MySqlOptions:
    options = parse(resolve_secrets(conf, "--mysql-conf"))
    if options.append_only:
        raise OptionError(
            "--mysql-conf scan.read-changelog-as-append-only.enabled: a sync writes tables with a "
            "primary key, so it cannot read changes as inserts"
        )
    return options


def _metadata(names: Sequence[str]) -> tuple[str, ...]:
    for name in names:
        if name not in METADATA:
            raise OptionError(f"--metadata-column: there is no '{name}'; {nearest(name, METADATA)}")
    return tuple(dict.fromkeys(names))
