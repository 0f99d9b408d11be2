"""The Python functions that this process has imported.

Only `module` adds to it: planning a query imports nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from streamhouse.sql.udf.declaration import Declaration
from streamhouse.sql.udf.function import PythonFunction

_defined: dict[Declaration, PythonFunction] = {}
_known: dict[str, tuple[PythonFunction, Callable[..., Any]]] = {}
"""By the name that DuckDB has for them."""


def define(declaration: Declaration, function: PythonFunction, compute: Callable[..., Any]) -> None:
    """Have the calls of a declared function mean this one from now on."""
    _defined[declaration] = function
    keep(function, compute)


def keep(function: PythonFunction, compute: Callable[..., Any]) -> None:
    """Have a function called by the name that DuckDB has for it."""
    _known[function.engine_name] = function, compute


def defined(declaration: Declaration) -> PythonFunction | None:
    """The function of a declaration whose CREATE FUNCTION has run in this process."""
    return _defined.get(declaration)


def known(engine_name: str) -> PythonFunction | None:
    """The function that DuckDB has under a name, if it has been defined or loaded here."""
    found = _known.get(engine_name.lower())
    return None if found is None else found[0]


def compute_of(function: PythonFunction) -> Callable[..., Any] | None:
    """The function itself, if it has been defined or loaded here."""
    found = _known.get(function.engine_name)
    return None if found is None else found[1]
