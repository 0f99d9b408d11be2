"""`streamhouse sync`: follows MySQL tables, or whole databases, into Paimon tables."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from streamhouse.cli import restart_state
from streamhouse.cli.arguments import (
    DEFAULT_WAREHOUSE,
    OptionsArgument,
    WarehouseArgument,
    catalog_options,
    key_values,
)
from streamhouse.cli.errors import INTERRUPTED, on_failure, reported
from streamhouse.cli.run_output import StartOutput
from streamhouse.cli.spark_arguments import (
    DEFAULT_MASTER,
    ConfArgument,
    MasterArgument,
    spark_options,
)
from streamhouse.cli.stop_signals import StopSignal

if TYPE_CHECKING:
    from streamhouse.runtime.spark.options import SparkOptions
    from streamhouse.runtime.sync.options import SyncOptions
    from streamhouse.runtime.sync.progress import Report

_Database = Annotated[str, typer.Option("--database", metavar="NAME", help="The Paimon database.")]
_MysqlConf = Annotated[
    list[str],
    typer.Option(
        "--mysql-conf",
        metavar="KEY=VALUE",
        help="An option of the source, as of a mysql-cdc table: hostname, port, username, "
        "password, database-name (a regular expression), …; repeated.",
    ),
]
_TableConf = Annotated[
    list[str] | None,
    typer.Option(
        "--table-conf", metavar="KEY=VALUE", help="An option of the Paimon tables; repeated."
    ),
]
_CatalogConf = Annotated[
    list[str] | None,
    typer.Option(
        "--catalog-conf", metavar="KEY=VALUE", help="A catalog option, as --option; repeated."
    ),
]
_PartitionKeys = Annotated[
    str,
    typer.Option("--partition-keys", metavar="A,B", help="The partition keys of the tables."),
]
_PrimaryKeys = Annotated[
    str,
    typer.Option("--primary-keys", metavar="A,B", help="The primary key; default: that of MySQL."),
]
_TypeMapping = Annotated[
    str,
    typer.Option(
        "--type-mapping",
        metavar="MODE,…",
        help="tinyint1-not-bool, to-nullable, to-string, char-to-string, longtext-to-bytes, "
        "bigint-unsigned-to-bigint, time-to-string.",
    ),
]
_Computed = Annotated[
    list[str] | None,
    typer.Option(
        "--computed-column",
        metavar="NAME=FUNCTION(COLUMN)",
        help="A computed column, such as 'day=date_format(created, yyyy-MM-dd)'; repeated.",
    ),
]
_Metadata = Annotated[
    list[str] | None,
    typer.Option(
        "--metadata-column", metavar="A,B", help="database_name, table_name, op_ts; repeated."
    ),
]
_MetadataPrefix = Annotated[
    str,
    typer.Option(
        "--metadata-column-prefix", metavar="P", help="How the names of these columns begin."
    ),
]
_SourceKeys = Annotated[
    str,
    typer.Option(
        "--sync-primary-keys-from-source-schema",
        metavar="true|false",
        help="Whether tables without --primary-keys get MySQL's; false refuses them.",
    ),
]
_Skip = Annotated[
    bool,
    typer.Option(
        "--skip-unsupported",
        help="Leave out views, and tables that cannot be followed, with a notice.",
    ),
]
_Behavior = Annotated[
    str | None,
    typer.Option(
        "--schema-change-behavior",
        metavar="evolve|try_evolve|lenient|ignore|exception",
        help="What happens when tables are altered, as Flink CDC's schema.change.behavior; "
        "default: try_evolve.",
    ),
]
_IncludeChanges = Annotated[
    str,
    typer.Option(
        "--include-schema-changes",
        metavar="KIND,…",
        help="The schema changes to follow: add.column, alter.column.type, create.table, "
        "drop.column, drop.table, rename.column, truncate.table, or a part of a name.",
    ),
]
_ExcludeChanges = Annotated[
    str,
    typer.Option(
        "--exclude-schema-changes", metavar="KIND,…", help="The schema changes not to follow."
    ),
]
_UntilCaughtUp = Annotated[
    bool, typer.Option("--until-caught-up", help="Stop when nothing is left to read.")
]
_Json = Annotated[
    bool, typer.Option("--json", help="Print each report as one JSON object on standard output.")
]
_Name = Annotated[
    str | None,
    typer.Option(
        "--name",
        metavar="NAME",
        help="The name of the sync and of its checkpoint. Default: sync- and the target.",
    ),
]
_Checkpoints = Annotated[
    Path | None,
    typer.Option("--checkpoints", metavar="DIR", help="Where the checkpoint is kept."),
]
_Verbose = Annotated[bool, typer.Option("--verbose", help="Print logs and stack traces.")]


def mysql_table(
    database: _Database,
    table: Annotated[str, typer.Option("--table", metavar="NAME", help="The Paimon table.")],
    mysql_conf: _MysqlConf,
    warehouse: WarehouseArgument = DEFAULT_WAREHOUSE,
    partition_keys: _PartitionKeys = "",
    primary_keys: _PrimaryKeys = "",
    type_mapping: _TypeMapping = "",
    computed_column: _Computed = None,
    metadata_column: _Metadata = None,
    metadata_column_prefix: _MetadataPrefix = "",
    sync_primary_keys_from_source_schema: _SourceKeys = "true",
    table_conf: _TableConf = None,
    catalog_conf: _CatalogConf = None,
    skip_unsupported: _Skip = False,
    schema_change_behavior: _Behavior = None,
    include_schema_changes: _IncludeChanges = "",
    exclude_schema_changes: _ExcludeChanges = "",
    until_caught_up: _UntilCaughtUp = False,
    json: _Json = False,
    name: _Name = None,
    checkpoints: _Checkpoints = None,
    master: MasterArgument = DEFAULT_MASTER,
    conf: ConfArgument = None,
    option: OptionsArgument = None,
    verbose: _Verbose = False,
) -> None:
    """Follow one or several MySQL tables into one Paimon table, as Paimon's mysql_sync_table.

    The options database-name and table-name of --mysql-conf are regular expressions. The table is
    created if it is missing. Runs until Ctrl-C or SIGTERM; started again, it goes on where it was.
    """
    from streamhouse.options import boolean
    from streamhouse.procedures.arguments import names
    from streamhouse.runtime.sync.options import sync_table_options

    def options() -> SyncOptions:
        return sync_table_options(
            _catalog(warehouse, option, catalog_conf),
            database,
            table,
            _conf("--mysql-conf", mysql_conf),
            partition_keys=names(partition_keys),
            primary_keys=names(primary_keys),
            type_mapping=names(type_mapping),
            computed_column=computed_column or (),
            metadata_column=names(",".join(metadata_column or ())),
            metadata_column_prefix=metadata_column_prefix,
            sync_primary_keys_from_source_schema=boolean(
                "--sync-primary-keys-from-source-schema", sync_primary_keys_from_source_schema
            ),
            table_conf=_conf("--table-conf", table_conf),
            skip_unsupported=skip_unsupported,
            schema_change_behavior=schema_change_behavior,
            include_schema_changes=names(include_schema_changes),
            exclude_schema_changes=names(exclude_schema_changes),
        )

    spark = spark_options(master, conf, verbose)
    _run(options, until_caught_up, json, name, checkpoints, spark)


def mysql_database(
    database: _Database,
    mysql_conf: _MysqlConf,
    warehouse: WarehouseArgument = DEFAULT_WAREHOUSE,
    including_tables: Annotated[
        str,
        typer.Option("--including-tables", metavar="REGEX", help="The tables to follow."),
    ] = ".*",
    excluding_tables: Annotated[
        str | None,
        typer.Option("--excluding-tables", metavar="REGEX", help="The tables not to follow."),
    ] = None,
    table_prefix: Annotated[
        str, typer.Option("--table-prefix", help="How the names of the Paimon tables begin.")
    ] = "",
    table_suffix: Annotated[
        str, typer.Option("--table-suffix", help="How the names of the Paimon tables end.")
    ] = "",
    table_prefix_db: Annotated[
        list[str] | None,
        typer.Option("--table-prefix-db", metavar="DATABASE=PREFIX", help="Of one database."),
    ] = None,
    table_suffix_db: Annotated[
        list[str] | None,
        typer.Option("--table-suffix-db", metavar="DATABASE=SUFFIX", help="Of one database."),
    ] = None,
    table_mapping: Annotated[
        list[str] | None,
        typer.Option(
            "--table-mapping", metavar="TABLE=NAME", help="The Paimon table of one table; repeated."
        ),
    ] = None,
    including_dbs: Annotated[
        str, typer.Option("--including-dbs", metavar="REGEX", help="The databases to follow.")
    ] = ".*",
    excluding_dbs: Annotated[
        str | None,
        typer.Option("--excluding-dbs", metavar="REGEX", help="The databases not to follow."),
    ] = None,
    multiple_table_partition_keys: Annotated[
        list[str] | None,
        typer.Option(
            "--multiple-table-partition-keys",
            metavar="TABLE=A,B",
            help="The partition keys of one Paimon table; repeated.",
        ),
    ] = None,
    eager_init: Annotated[
        str, typer.Option("--eager-init", hidden=True, help="Of Flink's sinks; without effect.")
    ] = "false",
    merge_shards: Annotated[
        str,
        typer.Option(
            "--merge-shards",
            metavar="true|false",
            help="Write tables of one name, in several databases, into one Paimon table; false: "
            "into tables named database_table.",
        ),
    ] = "true",
    ignore_incompatible: Annotated[
        str,
        typer.Option(
            "--ignore-incompatible",
            metavar="true|false",
            help="Leave out tables that do not fit an existing Paimon table, with a notice.",
        ),
    ] = "false",
    mode: Annotated[
        str,
        typer.Option(
            "--mode",
            metavar="combined|divided",
            help="combined: tables that are created later are followed at once; divided: after a "
            "restart.",
        ),
    ] = "combined",
    partition_keys: _PartitionKeys = "",
    primary_keys: _PrimaryKeys = "",
    type_mapping: _TypeMapping = "",
    computed_column: _Computed = None,
    metadata_column: _Metadata = None,
    metadata_column_prefix: _MetadataPrefix = "",
    sync_primary_keys_from_source_schema: _SourceKeys = "true",
    table_conf: _TableConf = None,
    catalog_conf: _CatalogConf = None,
    skip_unsupported: _Skip = False,
    schema_change_behavior: _Behavior = None,
    include_schema_changes: _IncludeChanges = "",
    exclude_schema_changes: _ExcludeChanges = "",
    until_caught_up: _UntilCaughtUp = False,
    json: _Json = False,
    name: _Name = None,
    checkpoints: _Checkpoints = None,
    master: MasterArgument = DEFAULT_MASTER,
    conf: ConfArgument = None,
    option: OptionsArgument = None,
    verbose: _Verbose = False,
) -> None:
    """Follow whole MySQL databases into a Paimon database, as Paimon's mysql_sync_database.

    The option database-name of --mysql-conf is a regular expression. Missing tables are created.
    Runs until Ctrl-C or SIGTERM; started again, it goes on where it was.
    """
    from streamhouse.options import boolean
    from streamhouse.procedures.arguments import names
    from streamhouse.runtime.sync.options import sync_database_options

    if boolean("--eager-init", eager_init):
        _notice("--eager-init has no effect: writers of a table start with its first rows")

    def options() -> SyncOptions:
        return sync_database_options(
            _catalog(warehouse, option, catalog_conf),
            database,
            _conf("--mysql-conf", mysql_conf),
            including_tables=including_tables,
            excluding_tables=excluding_tables,
            table_prefix=table_prefix,
            table_suffix=table_suffix,
            table_prefix_db=_conf("--table-prefix-db", table_prefix_db),
            table_suffix_db=_conf("--table-suffix-db", table_suffix_db),
            table_mapping=_conf("--table-mapping", table_mapping),
            including_dbs=including_dbs,
            excluding_dbs=excluding_dbs,
            multiple_table_partition_keys=_conf(
                "--multiple-table-partition-keys", multiple_table_partition_keys
            ),
            merge_shards=boolean("--merge-shards", merge_shards),
            ignore_incompatible=boolean("--ignore-incompatible", ignore_incompatible),
            skip_unsupported=skip_unsupported,
            schema_change_behavior=schema_change_behavior,
            include_schema_changes=names(include_schema_changes),
            exclude_schema_changes=names(exclude_schema_changes),
            mode=mode,
            partition_keys=names(partition_keys),
            primary_keys=names(primary_keys),
            type_mapping=names(type_mapping),
            computed_column=computed_column or (),
            metadata_column=names(",".join(metadata_column or ())),
            metadata_column_prefix=metadata_column_prefix,
            sync_primary_keys_from_source_schema=boolean(
                "--sync-primary-keys-from-source-schema", sync_primary_keys_from_source_schema
            ),
            table_conf=_conf("--table-conf", table_conf),
        )

    spark = spark_options(master, conf, verbose)
    _run(options, until_caught_up, json, name, checkpoints, spark)


def _app() -> typer.Typer:
    app = typer.Typer(
        no_args_is_help=True,
        help="Follow MySQL tables, or whole databases, into Paimon tables.",
        # The flags of Paimon's actions are also accepted with underscores, as Paimon writes them.
        context_settings={
            "help_option_names": ["-h", "--help"],
            "token_normalize_func": lambda token: token.replace("_", "-"),
        },
    )
    settings = {"token_normalize_func": lambda token: token.replace("_", "-")}
    app.command("mysql-table", context_settings=settings)(reported(mysql_table))
    app.command("mysql-database", context_settings=settings)(reported(mysql_database))
    return app


_EXAMPLES = {
    "--table-conf": "bucket=4",
    "--table-prefix-db": "shop=shop_",
    "--table-suffix-db": "shop=_shop",
    "--table-mapping": "orders=sales",
    "--multiple-table-partition-keys": "orders=day,hour",
}

sync = _app()
"""The subcommands of `streamhouse sync`."""


def _conf(flag: str, texts: list[str] | None) -> dict[str, str]:
    given = key_values(flag, texts, _EXAMPLES.get(flag, "hostname=localhost"))
    return {key: _unquoted(value) for key, value in given.items()}


def _unquoted(value: str) -> str:
    """The value without quotes around it, which a shell would have removed."""
    quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "'\""
    return value[1:-1] if quoted else value


def _catalog(
    warehouse: str, option: list[str] | None, catalog_conf: list[str] | None
) -> Mapping[str, str]:
    from streamhouse.paimon.catalog.warehouse import Warehouse

    return Warehouse(catalog_options(warehouse, [*(option or ()), *(catalog_conf or ())])).options


def _run(
    options: Callable[[], SyncOptions],
    until_caught_up: bool,
    as_json: bool,
    name: str | None,
    checkpoints: Path | None,
    spark: SparkOptions,
) -> None:
    from streamhouse.runtime.spark.session import begin_session, end_session

    checked = options()
    begin_session("streamhouse", spark)
    try:
        from streamhouse.cli.errors import explain
        from streamhouse.cli.self_restart import restart_after
        from streamhouse.runtime.monitoring.reporter import Reporter
        from streamhouse.runtime.sync.run import SyncRun, run_sync

        stop = StopSignal(notice="stopping …")
        run = SyncRun(
            checked,
            name,
            checkpoints,
            until_caught_up,
            spark,
            stop.requested,
            _notice,
            _print_json if as_json else _print_line,
            starts=None if as_json else StartOutput(),
        )
        run.reporter = Reporter(f"sync {checked.origin}", run.pipeline, restart_state.recent())
        reporter = run.reporter

        def failed(error: BaseException) -> None:
            if not stop.requested():
                restart_after(error, reporter)
            reporter.failed(explain(error)[0].removeprefix("error: "))

        with on_failure(failed):
            run_sync(run)
        reporter.close()
    finally:
        end_session()
    if stop.interrupted:
        raise typer.Exit(INTERRUPTED)


def _notice(text: str) -> None:
    print(f"notice: {text}", file=sys.stderr, flush=True)


def _print_line(report: Report) -> None:
    print(report.text(), file=sys.stderr, flush=True)


def _print_json(report: Report) -> None:
    print(json.dumps(report.to_json()), flush=True)
