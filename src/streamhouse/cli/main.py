"""The `streamhouse` command: finds the requested subcommand, and imports only what it needs."""

import faulthandler
import inspect
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Annotated, Any

import typer

from streamhouse.cli.errors import report, report_errors
from streamhouse.options import table_of

COMMANDS: Mapping[str, Mapping[str, str]] = table_of(__package__, "commands.toml")
"""The `module` of each subcommand in `cli.commands`, and its line in the `help` of all."""


def _load(name: str) -> Callable[..., Any] | typer.Typer:
    """Import a subcommand's module; returns its function, or group, of the module's name."""
    module = COMMANDS[name]["module"]
    loaded = import_module(f"streamhouse.cli.commands.{module}")
    function: Callable[..., Any] | typer.Typer = getattr(loaded, module.rpartition(".")[2])
    return function


def build(arguments: Sequence[str]) -> typer.Typer:
    """The application for these arguments.

    Only the command that they name is imported; the others have only their line of help, so that
    `--help` and `query` do not import Spark.
    """
    requested = next((word for word in arguments if not word.startswith("-")), None)
    app = typer.Typer(
        name="streamhouse",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_globals)
    for name, command in COMMANDS.items():
        loaded = _load(name) if name == requested else None
        if isinstance(loaded, typer.Typer):
            app.add_typer(loaded, name=name)
            continue
        function = _unloaded if loaded is None else report_errors(loaded)
        app.command(name, help=_help(function) if name == requested else command["help"])(function)
    return app


def _help(function: Callable[..., Any]) -> str:
    """The docstring with each paragraph on one line, for the terminal's width to break."""
    paragraphs = inspect.cleandoc(function.__doc__ or "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def main() -> None:
    """Entry point of the console script; SIGUSR1 prints the stacks of all threads to stderr."""
    _open_closed_streams()
    if hasattr(signal, "SIGUSR1"):
        faulthandler.register(signal.SIGUSR1)
    arguments = sys.argv[1:]
    try:
        app = build(arguments)
    except ImportError as error:
        sys.exit(report(error, "--verbose" in arguments))
    app(prog_name="streamhouse")


def _open_closed_streams() -> None:
    """Open the standard streams that are closed (`>&-`) on the null device.

    Else the next file or socket would get their numbers, and what Java or the cores print.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            stream = open(number, "w" if number else "r", closefd=False)
            setattr(sys, name, stream)


def _unloaded() -> None:
    raise AssertionError("a command ran that the arguments did not name")


def _version(requested: bool) -> None:
    if requested:
        from importlib.metadata import version

        typer.echo(f"streamhouse {version('streamhouse')}")
        raise typer.Exit


def _globals(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Real-time SQL views: scheduled by Spark, computed by DuckDB, stored in Apache Paimon."""
