"""Flags of commands: metavar and help of each, for parameters with plain types."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from inspect import Parameter
from typing import Annotated, Any, TypeVar

import typer

_Function = TypeVar("_Function", bound=Callable[..., None])


@dataclass(frozen=True)
class Flag:
    """How `--help` shows a flag; `min`: the least value of a number.

    `name`: such as `--page/--no-page`; None: that of the parameter. `kind` and `default`: of a flag
    that is no parameter of its command's function, but one of its keywords.
    """

    metavar: str | None
    help: str
    min: int | None = None
    name: str | None = None
    kind: Any = str
    default: Any = Parameter.empty
    hidden: bool = False


def with_flags(flags: Mapping[str, Flag | Parameter]) -> Callable[[_Function], _Function]:
    """Make parameters flags of their names; types and defaults are those of the parameters.

    The keywords of a function with `**flags` are all flags that are not among its parameters.
    """

    def declared(function: _Function) -> _Function:
        signature = inspect.signature(function, eval_str=True)
        parameters = list(_parameters(signature, flags))
        function.__signature__ = signature.replace(  # type: ignore[attr-defined]
            parameters=parameters
        )
        return function

    return declared


def _parameters(
    signature: inspect.Signature, flags: Mapping[str, Flag | Parameter]
) -> Iterator[Parameter]:
    for name, parameter in signature.parameters.items():
        if parameter.kind != Parameter.VAR_KEYWORD:
            yield _declared(parameter, flags.get(name, parameter))
            continue
        for keyword, flag in flags.items():
            if keyword not in signature.parameters:
                yield _keyword(keyword, flag)


def _keyword(name: str, flag: Flag | Parameter) -> Parameter:
    if isinstance(flag, Parameter):
        return flag
    plain = Parameter(name, Parameter.KEYWORD_ONLY, default=flag.default, annotation=flag.kind)
    return _declared(plain, flag)


def _declared(parameter: Parameter, flag: Flag | Parameter) -> Parameter:
    if isinstance(flag, Parameter):
        return flag
    option = typer.Option(
        flag.name or f"--{parameter.name.replace('_', '-')}",
        metavar=flag.metavar,
        help=flag.help,
        min=flag.min,
        hidden=flag.hidden,
    )
    return parameter.replace(annotation=Annotated[parameter.annotation, option])


SERVE_FLAGS: Mapping[str, Flag] = {
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
