"""The options of a sync, as Paimon's `mysql_sync_table` and `mysql_sync_database` name them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from streamhouse.connectors.mysql_cdc.database.discovery import TableNames
from streamhouse.connectors.mysql_cdc.database.table_filter import TableFilter
from streamhouse.connectors.mysql_cdc.database.type_mapping import TypeMapping
from streamhouse.connectors.mysql_cdc.metadata import DATABASE, TABLE, TIME
from streamhouse.connectors.mysql_cdc.server.options import MySqlOptions, parse
from streamhouse.errors import OptionError
from streamhouse.options import choice, nearest, required
from streamhouse.secret_references import resolve_secrets

METADATA: Mapping[str, str] = {
    DATABASE: "STRING",
    TABLE: "STRING",
    TIME: "TIMESTAMP_LTZ(3)",
}
"""The metadata columns of a sync, with their types."""
_STARTS = ("initial", "latest-offset")
_DATABASE_KEY, _TABLE_KEY = "database-name", "table-name"


@dataclass(frozen=True)
class SyncOptions:
    """The checked options of one sync; `table` is None for a whole database.

    `warehouse` are the catalog's options. `mysql` has the patterns of `tables` as its names.
    `live`: tables that are created later are followed without a restart.
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
    table_prefix: str = ""
    table_suffix: str = ""
    merge_shards: bool = True
    ignore_incompatible: bool = False
    skip_unsupported: bool = False
    live: bool = True

    @property
    def origin(self) -> str:
        """What the offsets of this sync belong to."""
        return f"mysql-cdc {self.tables.databases} into {self.name}"

    @property
    def name(self) -> str:
        """The target: a database, or a table."""
        return self.database if self.table is None else f"{self.database}.{self.table}"

    @property
    def skips_snapshot(self) -> bool:
        """Whether the first tables are followed without reading their rows."""
        return self.mysql.startup_mode == "latest-offset"

    def target(self, names: TableNames) -> str:
        """The Paimon table, `database.table`, of a table in MySQL."""
        if self.table is not None:
            return f"{self.database}.{self.table}"
        name = names[1] if self.merge_shards else "_".join(names)
        return f"{self.database}.{self.table_prefix}{name}{self.table_suffix}"


def sync_table_options(
    warehouse: Mapping[str, str],
    database: str,
    table: str,
    mysql_conf: Mapping[str, str],
    *,
    partition_keys: Sequence[str] = (),
    primary_keys: Sequence[str] = (),
    type_mapping: Sequence[str] = (),
    computed_column: Sequence[str] = (),
    metadata_column: Sequence[str] = (),
    table_conf: Mapping[str, str] | None = None,
    skip_unsupported: bool = False,
) -> SyncOptions:
    """The options of a sync into one table; raises `OptionError`."""
    tables = TableFilter(
        required(mysql_conf, _DATABASE_KEY, "--mysql-conf"),
        required(mysql_conf, _TABLE_KEY, "--mysql-conf"),
    )
    return SyncOptions(
        warehouse,
        database,
        table,
        _mysql(mysql_conf),
        tables,
        TypeMapping.of(type_mapping),
        tuple(partition_keys),
        tuple(primary_keys),
        tuple(computed_column),
        _metadata(metadata_column),
        dict(table_conf or {}),
        skip_unsupported=skip_unsupported,
    )


def sync_database_options(
    warehouse: Mapping[str, str],
    database: str,
    mysql_conf: Mapping[str, str],
    *,
    including_tables: str = ".*",
    excluding_tables: str | None = None,
    table_prefix: str = "",
    table_suffix: str = "",
    merge_shards: bool = True,
    ignore_incompatible: bool = False,
    skip_unsupported: bool = False,
    mode: str = "combined",
    partition_keys: Sequence[str] = (),
    primary_keys: Sequence[str] = (),
    type_mapping: Sequence[str] = (),
    computed_column: Sequence[str] = (),
    metadata_column: Sequence[str] = (),
    table_conf: Mapping[str, str] | None = None,
) -> SyncOptions:
    """The options of a sync of whole databases; raises `OptionError`."""
    if _TABLE_KEY in mysql_conf:
        raise OptionError(
            f"--mysql-conf {_TABLE_KEY}: a sync of a database takes --including-tables and "
            "--excluding-tables instead"
        )
    databases = required(mysql_conf, _DATABASE_KEY, "--mysql-conf")
    tables = TableFilter(databases, including_tables, excluding_tables)
    return SyncOptions(
        warehouse,
        database,
        None,
        _mysql({**mysql_conf, _TABLE_KEY: "*"}),
        tables,
        TypeMapping.of(type_mapping),
        tuple(partition_keys),
        tuple(primary_keys),
        tuple(computed_column),
        _metadata(metadata_column),
        dict(table_conf or {}),
        table_prefix,
        table_suffix,
        merge_shards,
        ignore_incompatible,
        skip_unsupported,
        choice("--mode", mode, ("combined", "divided")) == "combined",
    )


def _mysql(conf: Mapping[str, str]) -> MySqlOptions:
    options = parse(resolve_secrets(conf, "--mysql-conf"))
    if options.append_only:
        raise OptionError(
            "--mysql-conf scan.read-changelog-as-append-only.enabled: a sync writes tables with a "
            "primary key, so it cannot read changes as inserts"
        )
    if options.startup_mode not in _STARTS:
        raise OptionError(
            f"--mysql-conf scan.startup.mode: '{options.startup_mode}' is not supported in a "
            f"sync; it starts with {' or '.join(_STARTS)}"
        )
    return options


def _metadata(names: Sequence[str]) -> tuple[str, ...]:
    for name in names:
        if name not in METADATA:
            raise OptionError(f"--metadata-column: there is no '{name}'; {nearest(name, METADATA)}")
    return tuple(dict.fromkeys(names))
