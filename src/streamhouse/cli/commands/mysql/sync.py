"""`streamhouse sync`: follows MySQL tables, or whole databases, into Paimon tables."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import typer

from streamhouse.cli.errors import INTERRUPTED, StopSignal, explain, on_failure, report_errors
from streamhouse.cli.flags import catalog_options, key_values, names_of, spark_options, with_flags
from streamhouse.cli.restart_state import recent_restarts, restart_after
from streamhouse.cli.run_output import StartOutput, notice, print_stderr

if TYPE_CHECKING:
    from streamhouse.runtime.sync.options import SyncOptions
    from streamhouse.runtime.sync.run import Report

_EXAMPLES = {
    "mysql_conf": "hostname=localhost",
    "table_conf": "bucket=4",
    "table_prefix_db": "shop=shop_",
    "table_suffix_db": "shop=_shop",
    "table_mapping": "orders=sales",
    "multiple_table_partition_keys": "orders=day,hour",
}
"""Examples of the flags of KEY=VALUE, for errors."""
OF_RUNS = frozenset({"warehouse", "catalog_conf", "eager_init", *names_of("sync_runs")})
"""Flags that are no arguments of `sync_table_options` and `sync_database_options`."""


@with_flags("sync_table", "sync_target", "sync_tables", "sync_runs")
def mysql_table(**flags: Any) -> None:
    """Follow one or several MySQL tables into one Paimon table, as Paimon's mysql_sync_table.

    The options database-name and table-name of --mysql-conf are regular expressions. The table is
    created if it is missing. Runs until Ctrl-C or SIGTERM; a restart resumes where it stopped.
    """
    from streamhouse.runtime.sync.options import sync_table_options

    _run(sync_table_options, flags)


@with_flags("sync_target", "sync_databases", "sync_tables", "sync_runs")
def mysql_database(**flags: Any) -> None:
    """Follow whole MySQL databases into a Paimon database, as Paimon's mysql_sync_database.

    The option database-name of --mysql-conf is a regular expression. Missing tables are created.
    Runs until Ctrl-C or SIGTERM; a restart resumes where it stopped.
    """
    from streamhouse.options import boolean
    from streamhouse.runtime.sync.options import sync_database_options

    if boolean("--eager-init", flags["eager_init"]):
        notice("--eager-init has no effect: writers of a table start with its first rows")
    _run(sync_database_options, flags)


def _app() -> typer.Typer:
    # The flags of Paimon's actions are also accepted with underscores, as Paimon writes them.
    settings = {"token_normalize_func": lambda token: token.replace("_", "-")}
    app = typer.Typer(
        no_args_is_help=True,
        help="Follow MySQL tables, or whole databases, into Paimon tables.",
        context_settings={"help_option_names": ["-h", "--help"], **settings},
    )
    app.command("mysql-table", context_settings=settings)(report_errors(mysql_table))
    app.command("mysql-database", context_settings=settings)(report_errors(mysql_database))
    return app


sync = _app()
"""The subcommands of `streamhouse sync`."""


def _parsed(name: str, value: Any) -> Any:
    from streamhouse.options import boolean
    from streamhouse.procedures.arguments import names
    from streamhouse.runtime.sync.options import BOOLEANS, LISTS

    flag = f"--{name.replace('_', '-')}"
    if name in _EXAMPLES:
        given = key_values(flag, value, _EXAMPLES[name])
        return {key: _unquoted(text) for key, text in given.items()}
    if name == "computed_column":
        return value or ()
    if name in LISTS:
        return names(value if isinstance(value, str) else ",".join(value or ()))
    return boolean(flag, value) if name in BOOLEANS and isinstance(value, str) else value


def _unquoted(value: str) -> str:
    """The value without quotes around it, which a shell would have removed."""
    quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "'\""
    return value[1:-1] if quoted else value


def _run(make: Callable[..., SyncOptions], flags: Mapping[str, Any]) -> None:
    """Run the sync whose options `make` returns for the arguments of the flags."""
    from streamhouse.paimon.catalog.warehouse import Warehouse
    from streamhouse.runtime.spark.session import begin_session, end_session

    spark = spark_options(flags["master"], flags["conf"], flags["verbose"])
    given = [*(flags["option"] or ()), *(flags["catalog_conf"] or ())]
    catalog = Warehouse(catalog_options(flags["warehouse"], given)).options
    arguments = {name: _parsed(name, one) for name, one in flags.items() if name not in OF_RUNS}
    checked = make(catalog, **arguments)
    begin_session("streamhouse", spark)
    try:
        from streamhouse.runtime.monitoring.reporter import Reporter
        from streamhouse.runtime.sync.run import SyncRun, run_sync

        stop = StopSignal(notice="stopping …")
        run = SyncRun(
            checked,
            flags["name"],
            flags["checkpoints"],
            flags["until_caught_up"],
            flags["from_scratch"],
            stop.requested,
            notice,
            _print_json if flags["json"] else _print_line,
            spark,
            output=None if flags["json"] else StartOutput(),
        )
        run.reporter = Reporter(f"sync {checked.origin}", run.pipeline, recent_restarts())
        reporter = run.reporter

        def failed(error: BaseException) -> None:
            if not stop.requested():
                restart_after(error, reporter, flags["from_scratch"] and not run.from_scratch)
            reporter.failed(explain(error)[0].removeprefix("error: "))

        with on_failure(failed):
            run_sync(run)
        reporter.close()
    finally:
        end_session()
    if stop.interrupted:
        raise typer.Exit(INTERRUPTED)


def _print_line(report: Report) -> None:
    print_stderr(report.text())


def _print_json(report: Report) -> None:
    print(json.dumps(report.to_json()), flush=True)
