"""The flags of `streamhouse sync`, for `with_flags`."""

from __future__ import annotations

from collections.abc import Mapping
from inspect import Parameter
from pathlib import Path
from typing import Any

from streamhouse.cli.arguments import DEFAULT_WAREHOUSE, OptionsArgument, WarehouseArgument
from streamhouse.cli.flags import Flag
from streamhouse.cli.spark_arguments import DEFAULT_MASTER, ConfArgument, MasterArgument


def _shared(name: str, annotation: Any, default: Any) -> Parameter:
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _text(metavar: str | None, help: str, default: str = "", hidden: bool = False) -> Flag:
    return Flag(metavar, help, default=default, hidden=hidden)


def _switch(help: str) -> Flag:
    return Flag(None, help, kind=bool, default=False)


def _repeated(metavar: str, help: str) -> Flag:
    return Flag(metavar, help, kind=list[str] | None, default=None)


def _optional(metavar: str, help: str, kind: Any = str | None) -> Flag:
    return Flag(metavar, help, kind=kind, default=None)


_Flags = Mapping[str, Flag | Parameter]

_TARGET: _Flags = {
    "database": Flag("NAME", "The Paimon database."),
    "mysql_conf": Flag(
        "KEY=VALUE",
        "An option of the source, as of a mysql-cdc table: hostname, port, username, password, "
        "database-name (a regular expression), …; repeated.",
        kind=list[str],
    ),
    "warehouse": _shared("warehouse", WarehouseArgument, DEFAULT_WAREHOUSE),
}
_OF_DATABASES: _Flags = {
    "including_tables": _text("REGEX", "The tables to follow.", ".*"),
    "excluding_tables": _optional("REGEX", "The tables not to follow."),
    "table_prefix": _text(None, "How the names of the Paimon tables begin."),
    "table_suffix": _text(None, "How the names of the Paimon tables end."),
    "table_prefix_db": _repeated("DATABASE=PREFIX", "Of one database."),
    "table_suffix_db": _repeated("DATABASE=SUFFIX", "Of one database."),
    "table_mapping": _repeated("TABLE=NAME", "The Paimon table of one table; repeated."),
    "including_dbs": _text("REGEX", "The databases to follow.", ".*"),
    "excluding_dbs": _optional("REGEX", "The databases not to follow."),
    "multiple_table_partition_keys": _repeated(
        "TABLE=A,B",
        "The partition keys of one Paimon table; repeated.",
    ),
    "eager_init": _text(None, "Of Flink's sinks; without effect.", "false", hidden=True),
    "merge_shards": _text(
        "true|false",
        "Write tables of one name, in several databases, into one Paimon table; false: into tables "
        "named database_table.",
        "true",
    ),
    "ignore_incompatible": _text(
        "true|false",
        "Leave out tables that do not fit an existing Paimon table, with a notice.",
        "false",
    ),
    "mode": _text(
        "combined|divided",
        "combined: tables that are created later are followed at once; divided: after a restart.",
        "combined",
    ),
}
_OF_TABLES: _Flags = {
    "partition_keys": _text("A,B", "The partition keys of the tables."),
    "primary_keys": _text("A,B", "The primary key; default: that of MySQL."),
    "type_mapping": _text(
        "MODE,…",
        "tinyint1-not-bool, to-nullable, to-string, char-to-string, longtext-to-bytes, "
        "bigint-unsigned-to-bigint, time-to-string.",
    ),
    "computed_column": _repeated(
        "NAME=FUNCTION(COLUMN)",
        "A computed column, such as 'day=date_format(created, yyyy-MM-dd)'; repeated.",
    ),
    "metadata_column": _repeated("A,B", "database_name, table_name, op_ts; repeated."),
    "metadata_column_prefix": _text("P", "How the names of these columns begin."),
    "sync_primary_keys_from_source_schema": _text(
        "true|false",
        "Whether tables get the primary key of MySQL; false: none, so they take inserts only.",
        "true",
    ),
    "table_conf": _repeated("KEY=VALUE", "An option of the Paimon tables; repeated."),
    "catalog_conf": _repeated("KEY=VALUE", "A catalog option, as --option; repeated."),
    "skip_unsupported": _switch(
        "Leave out views, and tables that cannot be followed, with a notice."
    ),
    "schema_change_behavior": _optional(
        "evolve|try_evolve|lenient|ignore|exception",
        "What happens when tables are altered, as Flink CDC's schema.change.behavior; default: "
        "try_evolve.",
    ),
    "include_schema_changes": _text(
        "KIND,…",
        "The schema changes to follow: add.column, alter.column.type, create.table, drop.column, "
        "drop.table, rename.column, truncate.table, or a part of a name.",
    ),
    "exclude_schema_changes": _text("KIND,…", "The schema changes not to follow."),
}
_OF_RUNS: _Flags = {
    "until_caught_up": _switch("Stop when nothing is left to read."),
    "from_scratch": _switch(
        "Forget where the sync was: read all tables again, compare them with the Paimon tables, "
        "and write the differences. Applies to this run only."
    ),
    "json": _switch("Print each report as one JSON object on standard output."),
    "name": _optional(
        "NAME", "The name of the sync and of its checkpoint. Default: sync- and the target."
    ),
    "checkpoints": _optional("DIR", "Where the checkpoint is kept.", Path | None),
    "master": _shared("master", MasterArgument, DEFAULT_MASTER),
    "conf": _shared("conf", ConfArgument, None),
    "option": _shared("option", OptionsArgument, None),
    "verbose": _switch("Print logs and stack traces."),
}
RUN_FLAGS = frozenset({"warehouse", "catalog_conf", "eager_init", *_OF_RUNS})
"""Flags that are no arguments of `sync_table_options` and `sync_database_options`."""
DATABASE_FLAGS: _Flags = {**_TARGET, **_OF_DATABASES, **_OF_TABLES, **_OF_RUNS}
TABLE_FLAGS: _Flags = {
    "database": _TARGET["database"],
    "table": Flag("NAME", "The Paimon table."),
    **_TARGET,
    **_OF_TABLES,
    **_OF_RUNS,
}
