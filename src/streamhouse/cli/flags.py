"""Flags of commands: metavar and help of each, for parameters with plain types."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, TypeVar

import typer

_Function = TypeVar("_Function", bound=Callable[..., None])


@dataclass(frozen=True)
class Flag:
    """How `--help` shows a flag; `min`: the least value of a number.

    `name`: such as `--page/--no-page`; None: that of the parameter.
    """

    metavar: str | None
    help: str
    min: int | None = None
    name: str | None = None


def with_flags(flags: Mapping[str, Flag]) -> Callable[[_Function], _Function]:
    """Make parameters flags of their names; types and defaults are those of the parameters."""

    def declared(function: _Function) -> _Function:
        signature = inspect.signature(function, eval_str=True)
        parameters = [
            parameter.replace(annotation=_option(parameter, flags[name]))
            if name in flags
            else parameter
            for name, parameter in signature.parameters.items()
        ]
        function.__signature__ = signature.replace(  # type: ignore[attr-defined]
            parameters=parameters
        )
        return function

    return declared


def _option(parameter: inspect.Parameter, flag: Flag) -> object:
    option = typer.Option(
        flag.name or f"--{parameter.name.replace('_', '-')}",
        metavar=flag.metavar,
        help=flag.help,
        min=flag.min,
    )
    return Annotated[parameter.annotation, option]


SERVE_FLAGS = {
    "views": Flag("FILE", "Serve only the views in this YAML file. Default: all tables and views."),
    "host": Flag(
        "ADDRESS", "The address to listen on; one that other machines can reach needs a token."
    ),
    "token_file": Flag(
        "FILE",
        "Tokens, one per line, or YAML with the permissions of each. The environment "
        "variable STREAMHOUSE_TOKEN can hold one more token.",
    ),
    "tls_cert": Flag("FILE", "Use HTTPS, with the certificate chain in this PEM file."),
    "tls_key": Flag("FILE", "The certificate's private key, in PEM."),
    "allow_run": Flag(None, "Let clients start and stop pipelines, which run on this machine."),
    "allow_origin": Flag(
        "URL", "Allow requests from web pages of this origin (CORS); can be repeated."
    ),
    "every": Flag(
        "DURATION", "Check followed tables this often. Default: 50ms, object stores 500ms."
    ),
    "heartbeat": Flag("DURATION", "Send an idle stream a heartbeat this often."),
    "queue": Flag(None, "Disconnect a stream's reader that lags this many events.", min=1),
    "max_rows": Flag(None, "The maximum rows of one response.", min=1),
    "query_timeout": Flag("DURATION", "The time limit of a query."),
    "query_rows": Flag(None, "The maximum rows of a query's result.", min=1),
    "query_memory": Flag("SIZE", "The memory limit of a query."),
    "answers": Flag(
        "SIZE", "The maximum size of all responses that clients have not yet received."
    ),
    "send_timeout": Flag(
        "DURATION", "Disconnect a client that receives nothing of its response for this long."
    ),
    "queries": Flag(None, "The maximum number of concurrent queries.", min=1),
    "max_connections": Flag(None, "The maximum number of connections.", min=1),
    "max_per_address": Flag(
        None, "The maximum number of connections per address; 0: no limit.", min=0
    ),
    "rate": Flag(None, "Requests per second and client, by token or address; 0: no limit.", min=0),
    "log": Flag("FORMAT", "The log, a line per request: text, json or off."),
}
"""The flags of `streamhouse serve`."""
