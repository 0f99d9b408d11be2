"""`streamhouse run`: runs a SQL script and its continuous queries."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamhouse.cli import restart_state
from streamhouse.cli.arguments import OptionsArgument, catalog_options, is_local
from streamhouse.cli.errors import INTERNAL_ERROR, INTERRUPTED, explain, on_failure
from streamhouse.cli.script_text import joined, parsed, texts
from streamhouse.cli.stop_signals import StopSignal
from streamhouse.errors import StreamhouseError, is_panic

if TYPE_CHECKING:
    import pyarrow as pa

    from streamhouse.runtime.monitoring.reporter import Reporter
    from streamhouse.runtime.script import ScriptOptions
    from streamhouse.sql.plan import Statement


def run(
    file: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE...",
            help="The SQL script; - reads stdin. Several files run as one script, in their order.",
        ),
    ],
    warehouse: Annotated[
        str | None,
        typer.Option(
            "--warehouse",
            envvar="STREAMHOUSE_WAREHOUSE",
            metavar="DIR",
            help="Where the tables are; replaces the path of every catalog the script creates.",
        ),
    ] = None,
    until_caught_up: Annotated[
        bool,
        typer.Option("--until-caught-up", help="Stop when nothing moves in any query."),
    ] = False,
    checkpoints: Annotated[
        Path | None,
        typer.Option(
            "--checkpoints", metavar="DIR", help="Where queries keep their place between runs."
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(
            "--name",
            metavar="NAME",
            help="What the pipeline is called, by `streamhouse pipelines` too; "
            "by default as its script says, or as the file is called.",
        ),
    ] = None,
    master: Annotated[
        str, typer.Option("--master", help="Spark's master, such as local[2].")
    ] = "local[2]",
    from_scratch: Annotated[
        bool,
        typer.Option(
            "--from-scratch",
            help="Have all continuous queries begin anew: without their checkpoints, and with "
            "their targets emptied. Only for this run.",
        ),
    ] = False,
    keep_targets: Annotated[
        bool,
        typer.Option(
            "--keep-targets", help="With --from-scratch: leave the rows that the targets have."
        ),
    ] = False,
    option: OptionsArgument = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Print logs and stack traces.")
    ] = False,
) -> None:
    """Run a SQL script: definitions at once, every INSERT over a stream as a continuous query.

    Continuous queries run until Ctrl-C (exit code 130) or SIGTERM (0), which let the batch at hand
    end, or, with --until-caught-up, until nothing moves in any of them. Running the script again
    goes on where it stopped, or, with --from-scratch, computes all of its targets anew.
    """
    read = texts(file)
    given = None if warehouse is None else catalog_options(_absolute(warehouse), option)
    with _spark(read, master, verbose):
        from streamhouse.runtime.monitoring.reporter import Reporter
        from streamhouse.sql.secrets import without_secrets

        reporter = Reporter(without_secrets(joined(file, read)), name, restart_state.lately())
        with _reported(reporter, given):
            statements, origins = parsed(file, read)
            from streamhouse.runtime.script import ScriptOptions, script_name

            if warehouse is not None and is_local(warehouse):
                Path(_absolute(warehouse)).mkdir(parents=True, exist_ok=True)
            stop = StopSignal(at_once=_at_once, notice="stopping …")
            anew = from_scratch and not restart_state.has_reset()
            options = ScriptOptions(
                name=name or script_name(Path(file[0])),
                warehouse=given,
                checkpoints=checkpoints,
                until_caught_up=until_caught_up,
                master=master,
                verbose=verbose,
                stopped=stop.asked,
                reporter=reporter,
                from_scratch=anew,
                keep_targets=keep_targets and (anew or not from_scratch),
            )
            _run(options, statements, origins, may_start_again="-" not in file)
    if stop.interrupted:
        raise typer.Exit(INTERRUPTED)


@contextmanager
def _reported(reporter: Reporter, warehouse: Mapping[str, str] | None) -> Iterator[None]:
    """Have the reporter tell how what is done in the `with` begins and ends."""

    def failed(error: BaseException) -> None:
        said = explain(error)[0].removeprefix("error: ")
        reporter.failed(said, getattr(error, "query", None))

    try:
        with on_failure(failed):
            if warehouse is not None:
                reporter.announce(warehouse)
            yield
    finally:
        reporter.close()


@contextmanager
def _spark(read: Sequence[str], master: str, verbose: bool) -> Iterator[None]:
    """Spark for continuous queries, started beside all that comes before they need it."""
    from streamhouse.sql.statements.likely_streaming import may_stream

    if not any(map(may_stream, read)):
        yield
        return
    from streamhouse.runtime.spark.session import begin_session, end_session

    begin_session("streamhouse", master, verbose)
    try:
        yield
    finally:
        # If the script could not be parsed, nothing else has ended the session.
        end_session()


def _at_once() -> None:
    """Leave nothing behind that waits for this command to be started again."""
    session = sys.modules.get("streamhouse.runtime.spark.session")
    if session is not None:
        session.let_go()


def _run(
    options: ScriptOptions,
    statements: Sequence[Statement],
    origins: Sequence[str],
    may_start_again: bool,
) -> None:
    from streamhouse.runtime.script import Script
    from streamhouse.runtime.spark.session import died, end_session, last_words
    from streamhouse.runtime.streaming.query import QueryFailed

    script = Script(options, ConsolePrinter())

    def mend(error: BaseException) -> None:
        if script.has_reset:
            restart_state.note_reset()
        if not may_start_again or options.stopped():
            return
        if died():
            _start_again(options.reporter, "Spark's JVM has died", last_words())
        elif isinstance(error, QueryFailed) and explain(error)[1] == INTERNAL_ERROR:
            end_session()
            _start_again(options.reporter, "a query has failed", explain(error)[0])
        elif is_panic(error):
            end_session()
            why = explain(error)[0]
            _start_again(options.reporter, "the table core has broken down", why)

    try:
        with on_failure(mend):
            script.run(statements, origins)
    finally:
        end_session()


def _start_again(reporter: Reporter | None, what: str, why: str) -> None:
    """Become a fresh process of the same command, after a failure that no user can mend.

    All that a crash can leave is mended at a start. What fails more than `restart_state.MOST` times
    within an hour is told of instead.
    """
    count = restart_state.count()
    if count > restart_state.MOST:
        raise StreamhouseError(f"{what}, {count} times within an hour; the last it said: {why}")
    said = f"{what} ({why or 'it said nothing'})"
    print(f"notice: {said}; starting again", file=sys.stderr, flush=True)
    if reporter is not None:
        reporter.restarting(said)
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def _absolute(warehouse: str) -> str:
    if not is_local(warehouse):
        return warehouse
    from streamhouse.paimon.storage.files import local_path

    return os.path.abspath(local_path(warehouse))


class ConsolePrinter:
    """Prints results on standard output, notices on standard error."""

    def notice(self, text: str) -> None:
        print(f"notice: {text}", file=sys.stderr, flush=True)

    def rows(self, reader: pa.RecordBatchReader) -> None:
        from streamhouse.cli.output import write_table

        write_table(reader.schema, reader, sys.stdout)
        sys.stdout.flush()

    def changes(self, batch: pa.RecordBatch) -> None:
        from streamhouse.serve.formats.cells import table_texts

        columns: list[Any] = [table_texts(batch.column(i)) for i in range(batch.num_columns)]
        for row in zip(*columns, strict=True):
            kind, *values = (str(value) for value in row)
            pairs = zip(batch.schema.names[1:], values, strict=True)
            print(f"{kind}  " + "  ".join(f"{name}={value}" for name, value in pairs))
        sys.stdout.flush()
