"""Flags and arguments of commands: metavar and help of each (`flags.toml`), for plain types."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from streamhouse.options import table_of

_Function = TypeVar("_Function", bound=Callable[..., None])
_TABLE: Mapping[str, Any] = table_of(__package__, "flags.toml")
_SHARED = "shared"
_KINDS: Mapping[str, tuple[Any, Any]] = {
    "text": (str, ""),
    "optional": (str | None, None),
    "path": (Path | None, None),
    "switch": (bool, False),
    "repeated": (list[str] | None, None),
    "required": (str, Parameter.empty),
    "required-list": (list[str], Parameter.empty),
}
"""The type and the default of flags that are keywords of `**flags`."""


def with_flags(*sections: str) -> Callable[[_Function], _Function]:
    """Make the parameters of a command's function flags, or arguments, of their names.

    `flags.toml` describes them, in the first of the sections that has them, or else in `shared`.
    Types and defaults are those of the parameters. The keywords of a function with
    `**flags` are all others of the sections.
    """
    entries: dict[str, Mapping[str, Any]] = {}
    for section in sections:
        for name, entry in _TABLE[section].items():
            shared = {} if "help" in entry else _TABLE[_SHARED][name]
            entries.setdefault(name, {**shared, **entry})

    def declared(function: _Function) -> _Function:
        signature = inspect.signature(function, eval_str=True)
        parameters = list(_parameters(signature, entries))
        function.__signature__ = signature.replace(  # type: ignore[attr-defined]
            parameters=parameters
        )
        return function

    return declared


def names_of(section: str) -> frozenset[str]:
    """The names of the flags in a section."""
    return frozenset(_TABLE[section])


def _parameters(
    signature: inspect.Signature, entries: Mapping[str, Mapping[str, Any]]
) -> Iterator[Parameter]:
    for name, parameter in signature.parameters.items():
        if parameter.kind != Parameter.VAR_KEYWORD:
            yield _declared(parameter, entries.get(name) or _TABLE[_SHARED][name])
            continue
        for keyword, entry in entries.items():
            if keyword not in signature.parameters:
                yield _keyword(keyword, entry)


def _keyword(name: str, entry: Mapping[str, Any]) -> Parameter:
    kind, default = _KINDS[entry.get("kind", "text")]
    default = entry.get("default", default)
    return _declared(
        Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=kind), entry
    )


def _declared(parameter: Parameter, entry: Mapping[str, Any]) -> Parameter:
    shown: dict[str, Any] = {
        key: entry.get(key) for key in ("metavar", "help", "envvar", "min", "max")
    }
    if entry.get("argument"):
        made = typer.Argument(**shown)
    else:
        name = entry.get("name") or f"--{parameter.name.replace('_', '-')}"
        made = typer.Option(name, **shown, hidden=entry.get("hidden", False))
    return parameter.replace(annotation=Annotated[parameter.annotation, made])
