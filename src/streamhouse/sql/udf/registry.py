"""The Python functions that this process has imported.

Only `udf_modules.module` adds to it: planning a query imports no modules.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from streamhouse.sql.udf.declaration import Declaration
from streamhouse.sql.udf.function import PythonFunction

_defined: dict[Declaration, PythonFunction] = {}
_known: dict[str, tuple[PythonFunction, Callable[..., Any]]] = {}
"""By `engine_name`, their name in DuckDB."""


def define(declaration: Declaration, function: PythonFunction, compute: Callable[..., Any]) -> None:
    """Bind a declaration to a function: from now on, calls of it mean this function."""
    _defined[declaration] = function
    add(function, compute)


def add(function: PythonFunction, compute: Callable[..., Any]) -> None:
    """Make a function known under its name in DuckDB."""
    _known[function.engine_name] = function, compute


def defined(declaration: Declaration) -> PythonFunction | None:
    """The function of a declaration; None if its CREATE FUNCTION has not run in this process."""
    return _defined.get(declaration)


def by_engine_name(engine_name: str) -> PythonFunction | None:
    """The function with a name in DuckDB, if this process has defined or loaded it."""
    entry = _known.get(engine_name.lower())
    return None if entry is None else entry[0]


def compute_of(function: PythonFunction) -> Callable[..., Any] | None:
    """The Python callable of a function, if this process has defined or loaded it."""
    entry = _known.get(function.engine_name)
    return None if entry is None else entry[1]
