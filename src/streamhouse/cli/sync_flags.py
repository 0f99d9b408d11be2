"""The flags of `streamhouse sync`, and the commands' signatures, from which Typer reads them."""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter, Signature
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from streamhouse.cli.arguments import DEFAULT_WAREHOUSE, OptionsArgument, WarehouseArgument
from streamhouse.cli.spark_arguments import DEFAULT_MASTER, ConfArgument, MasterArgument

_Function = TypeVar("_Function", bound=Callable[..., None])


def _parameter(name: str, annotation: Any, default: Any) -> Parameter:
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _flag(
    name: str,
    metavar: str | None,
    help: str,
    default: str | bool | None = "",
    kind: Any = None,
    hidden: bool = False,
) -> Parameter:
    """A flag; `kind`: its type, that of the default by default."""
    option = typer.Option(f"--{name.replace('_', '-')}", metavar=metavar, help=help, hidden=hidden)
    return _parameter(name, Annotated[kind or type(default), option], default)


def _required(name: str, metavar: str, help: str, kind: Any = str) -> Parameter:
    return _flag(name, metavar, help, kind=kind).replace(default=Parameter.empty)


def _repeated(name: str, metavar: str, help: str) -> Parameter:
    return _flag(name, metavar, help, None, list[str] | None)


def _optional(name: str, metavar: str, help: str) -> Parameter:
    return _flag(name, metavar, help, None, str | None)


_TARGET = (
    _required("database", "NAME", "The Paimon database."),
    _required("table", "NAME", "The Paimon table."),
    _required(
        "mysql_conf",
        "KEY=VALUE",
        "An option of the source, as of a mysql-cdc table: hostname, port, username, password, "
        "database-name (a regular expression), …; repeated.",
        list[str],
    ),
    _parameter("warehouse", WarehouseArgument, DEFAULT_WAREHOUSE),
)
_OF_DATABASES = (
    _flag("including_tables", "REGEX", "The tables to follow.", ".*"),
    _optional("excluding_tables", "REGEX", "The tables not to follow."),
    _flag("table_prefix", None, "How the names of the Paimon tables begin."),
    _flag("table_suffix", None, "How the names of the Paimon tables end."),
    _repeated("table_prefix_db", "DATABASE=PREFIX", "Of one database."),
    _repeated("table_suffix_db", "DATABASE=SUFFIX", "Of one database."),
    _repeated("table_mapping", "TABLE=NAME", "The Paimon table of one table; repeated."),
    _flag("including_dbs", "REGEX", "The databases to follow.", ".*"),
    _optional("excluding_dbs", "REGEX", "The databases not to follow."),
    _repeated(
        "multiple_table_partition_keys",
        "TABLE=A,B",
        "The partition keys of one Paimon table; repeated.",
    ),
    _flag("eager_init", None, "Of Flink's sinks; without effect.", "false", hidden=True),
    _flag(
        "merge_shards",
        "true|false",
        "Write tables of one name, in several databases, into one Paimon table; false: into tables "
        "named database_table.",
        "true",
    ),
    _flag(
        "ignore_incompatible",
        "true|false",
        "Leave out tables that do not fit an existing Paimon table, with a notice.",
        "false",
    ),
    _flag(
        "mode",
        "combined|divided",
        "combined: tables that are created later are followed at once; divided: after a restart.",
        "combined",
    ),
)
_OF_TABLES = (
    _flag("partition_keys", "A,B", "The partition keys of the tables."),
    _flag("primary_keys", "A,B", "The primary key; default: that of MySQL."),
    _flag(
        "type_mapping",
        "MODE,…",
        "tinyint1-not-bool, to-nullable, to-string, char-to-string, longtext-to-bytes, "
        "bigint-unsigned-to-bigint, time-to-string.",
    ),
    _repeated(
        "computed_column",
        "NAME=FUNCTION(COLUMN)",
        "A computed column, such as 'day=date_format(created, yyyy-MM-dd)'; repeated.",
    ),
    _repeated("metadata_column", "A,B", "database_name, table_name, op_ts; repeated."),
    _flag("metadata_column_prefix", "P", "How the names of these columns begin."),
    _flag(
        "sync_primary_keys_from_source_schema",
        "true|false",
        "Whether tables get the primary key of MySQL; false: none, so they take inserts only.",
        "true",
    ),
    _repeated("table_conf", "KEY=VALUE", "An option of the Paimon tables; repeated."),
    _repeated("catalog_conf", "KEY=VALUE", "A catalog option, as --option; repeated."),
    _flag(
        "skip_unsupported",
        None,
        "Leave out views, and tables that cannot be followed, with a notice.",
        False,
    ),
    _optional(
        "schema_change_behavior",
        "evolve|try_evolve|lenient|ignore|exception",
        "What happens when tables are altered, as Flink CDC's schema.change.behavior; default: "
        "try_evolve.",
    ),
    _flag(
        "include_schema_changes",
        "KIND,…",
        "The schema changes to follow: add.column, alter.column.type, create.table, drop.column, "
        "drop.table, rename.column, truncate.table, or a part of a name.",
    ),
    _flag("exclude_schema_changes", "KIND,…", "The schema changes not to follow."),
)
_OF_RUNS = (
    _flag("until_caught_up", None, "Stop when nothing is left to read.", False),
    _flag(
        "from_scratch",
        None,
        "Forget where the sync was: read all tables again, compare them with the Paimon tables, "
        "and write the differences. Applies to this run only.",
        False,
    ),
    _flag("json", None, "Print each report as one JSON object on standard output.", False),
    _optional(
        "name", "NAME", "The name of the sync and of its checkpoint. Default: sync- and the target."
    ),
    _flag("checkpoints", "DIR", "Where the checkpoint is kept.", None, Path | None),
    _parameter("master", MasterArgument, DEFAULT_MASTER),
    _parameter("conf", ConfArgument, None),
    _parameter("option", OptionsArgument, None),
    _flag("verbose", None, "Print logs and stack traces.", False),
)
RUN_FLAGS = frozenset(
    {"warehouse", "catalog_conf", "eager_init", *(flag.name for flag in _OF_RUNS)}
)
"""Flags that are no arguments of `sync_table_options` and `sync_database_options`."""


def with_flags(databases: bool) -> Callable[[_Function], _Function]:
    """Give a command the flags of a sync of one table, or of whole databases."""
    target = [flag for flag in _TARGET if not databases or flag.name != "table"]
    flags = [*target, *(_OF_DATABASES if databases else ()), *_OF_TABLES, *_OF_RUNS]

    def declared(function: _Function) -> _Function:
        function.__signature__ = Signature(flags)  # type: ignore[attr-defined]
        return function

    return declared
