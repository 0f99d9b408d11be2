"""`streamhouse run`: runs a SQL script and its continuous queries."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from streamhouse.cli.errors import INTERRUPTED, StopSignal, explain, on_failure
from streamhouse.cli.flags import (
    DEFAULT_MASTER,
    absolute,
    catalog_options,
    check_store,
    script_variables,
    spark_options,
    with_flags,
)
from streamhouse.cli.restart_state import recent_restarts, restart_after
from streamhouse.cli.run_output import JsonOutput, TextOutput
from streamhouse.runtime.run_output import RunOutput
from streamhouse.runtime.script_text import join_scripts, parse_scripts, read_scripts

if TYPE_CHECKING:
    from streamhouse.runtime.monitoring.reporter import Reporter
    from streamhouse.runtime.script import ScriptOptions
    from streamhouse.runtime.spark.settings import SparkOptions
    from streamhouse.sql.syntax import Statement

_READING_INSERT = re.compile(
    r"\b(INSERT\s+INTO|MATERIALIZED|CREATE\s+TABLE\b[^;]*\bAS\s+SELECT)\b[^;]*\bFROM\b"
    r"|\bCALL\s+(\w+\.)?sys\.sync_mysql",
    re.IGNORECASE,
)
_BATCH = re.compile(r"'execution\.runtime-mode'\s*=\s*'batch'", re.IGNORECASE)


@with_flags("run")
def run(
    file: list[str],
    warehouse: str | None = None,
    until_caught_up: bool = False,
    checkpoints: Path | None = None,
    name: str | None = None,
    master: str = DEFAULT_MASTER,
    conf: list[str] | None = None,
    from_scratch: bool = False,
    keep_targets: bool = False,
    option: list[str] | None = None,
    variables: list[str] | None = None,
    as_json: bool = False,
    verbose: bool = False,
) -> None:
    """Run a SQL script: DDL at once, and each INSERT from a stream as a continuous query.

    Continuous queries run until Ctrl-C (exit code 130) or SIGTERM (0), which let the current batch
    finish, or, with --until-caught-up, until all have caught up. Running the script again resumes
    where it stopped, or, with --from-scratch, recomputes all of its targets.

    The start, rows and lag every ten seconds, and the end are reported on standard error. Spark's
    own log is in the file .pipelines/NAME/spark.log of the warehouse.
    """
    output = JsonOutput() if as_json else TextOutput()
    scripts = read_scripts(file, script_variables(variables))
    catalog = None if warehouse is None else catalog_options(absolute(warehouse), option)
    if catalog is not None:
        check_store(catalog)
    spark = spark_options(master, conf, verbose)
    with _spark_session(scripts, spark):
        from streamhouse.runtime.monitoring.reporter import Reporter
        from streamhouse.sql.secrets import without_secrets

        reporter = Reporter(without_secrets(join_scripts(file, scripts)), name, recent_restarts())
        with _report_status(reporter, catalog, output):
            statements, origins = parse_scripts(file, scripts)
            from streamhouse.runtime.script import ScriptOptions, script_name

            stop = StopSignal(notice="stopping …")
            options = ScriptOptions(
                name=name or script_name(Path(file[0])),
                warehouse=catalog,
                checkpoints=checkpoints,
                until_caught_up=until_caught_up,
                spark=spark,
                stopped=stop.requested,
                reporter=reporter,
                from_scratch=from_scratch,
                keep_targets=keep_targets,
            )
            _run(options, output, statements, origins, may_restart="-" not in file)
    if stop.interrupted:
        raise typer.Exit(INTERRUPTED)


@contextmanager
def _report_status(
    reporter: Reporter, warehouse: Mapping[str, str] | None, output: RunOutput
) -> Iterator[None]:
    """Report the start, end and failure of the `with` block in the pipeline's status."""

    def failed(error: BaseException) -> None:
        message = explain(error)[0].removeprefix("error: ")
        reporter.failed(message, getattr(error, "query", None))
        output.failed(message)

    try:
        with on_failure(failed):
            if warehouse is not None:
                reporter.announce(warehouse)
            yield
    finally:
        reporter.close()


@contextmanager
def _spark_session(scripts: Sequence[str], options: SparkOptions) -> Iterator[None]:
    """Start Spark in the background if a script may have continuous queries; end it at the end."""
    if not any(map(may_stream, scripts)):
        yield
        return
    from streamhouse.runtime.spark.session import begin_session, end_session

    begin_session("streamhouse", options)
    try:
        yield
    finally:
        # If the script could not be parsed or planned, nothing else has ended the session.
        end_session()


def may_stream(script: str) -> bool:
    """Whether an INSERT or a view may read a table in streaming mode, or a CALL syncs tables.

    It needs no parser, so Spark can be started before the parser is loaded. A wrong result only
    costs time: `sql.streaming.query_planner` decides what the queries are.
    """
    return _READING_INSERT.search(script) is not None and _BATCH.search(script) is None


def _run(
    options: ScriptOptions,
    output: RunOutput,
    statements: Sequence[Statement],
    origins: Sequence[str],
    may_restart: bool,
) -> None:
    from streamhouse.runtime.script import ScriptRunner
    from streamhouse.runtime.spark.session import end_session

    script = ScriptRunner(options, output)

    def restart(error: BaseException) -> None:
        if may_restart and not options.stopped():
            restart_after(error, options.reporter, script.has_reset)

    try:
        with on_failure(restart):
            script.run(statements, origins)
    finally:
        end_session()
