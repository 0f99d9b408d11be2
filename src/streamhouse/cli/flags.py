"""Flags of commands: metavar and help of each (`flags.toml`), for parameters with plain types."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from inspect import Parameter
from typing import Annotated, Any, TypeVar

import typer

from streamhouse.options import table_of

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


def with_flags(
    given: str | Mapping[str, Flag | Parameter],
) -> Callable[[_Function], _Function]:
    """Make parameters flags of their names; types and defaults are those of the parameters.

    `given`: the flags, or the name of a command in `flags.toml`. The keywords of a function with
    `**flags` are all flags that are not among its parameters.
    """
    flags = _flags_of(given) if isinstance(given, str) else given

    def declared(function: _Function) -> _Function:
        signature = inspect.signature(function, eval_str=True)
        parameters = list(_parameters(signature, flags))
        function.__signature__ = signature.replace(  # type: ignore[attr-defined]
            parameters=parameters
        )
        return function

    return declared


def _flags_of(command: str) -> Mapping[str, Flag]:
    table = table_of(__package__, "flags.toml")[command]
    return {name: Flag(**{"metavar": None, **flag}) for name, flag in table.items()}


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
