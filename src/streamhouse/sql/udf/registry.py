"""The Python functions that this process has imported, macros in their place, and calls of them.

Only `udf_modules.module` adds to it: planning a query imports no modules. So in a parsed tree only
the declaration of a called function may be known.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any

from sqlglot import exp

from streamhouse.sql.types import duck_type
from streamhouse.sql.udf.function import PREFIX, Declaration, PythonFunction

_CALLED = re.compile(rf"\b{PREFIX}\w+_[0-9a-f]{{12}}\b", re.IGNORECASE)
_DECLARED = "python"
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


def macros(sql: str) -> Iterator[str]:
    """Yields a CREATE MACRO statement for each known Python function that a text calls.

    The macro has the function's name in DuckDB, its number of arguments and its result type, and
    does not call it. It takes arguments of any type: `expressions.udf_conversion` has checked them,
    or binds the query to learn their types.
    """
    for name in {word.lower() for word in _CALLED.findall(sql)}:
        function = by_engine_name(name)
        if function is None:
            continue
        names = [f"a{number}" for number in range(len(function.signature.parameters))]
        all_null = " AND ".join(f"{parameter} IS NULL" for parameter in names)
        kind = duck_type(function.signature.result.type)
        yield (
            f"CREATE TEMP MACRO {name}({', '.join(names)}) AS "
            f"CASE WHEN {all_null} THEN CAST(NULL AS {kind}) END"
        )


def declared_call(declaration: Declaration, arguments: list[exp.Expr]) -> exp.Expr:
    """The node of a call; its `meta` holds the declaration."""
    node = exp.Anonymous(this=declaration.name, expressions=arguments)
    node.meta[_DECLARED] = declaration
    return node


def declaration_of(node: exp.Expr) -> Declaration | None:
    """The declaration of the function that a node calls; None for any other node."""
    declaration = node.meta.get(_DECLARED) if isinstance(node, exp.Anonymous) else None
    return declaration if isinstance(declaration, Declaration) else None


def declarations_in(tree: exp.Expr) -> list[Declaration]:
    """The functions that a tree calls, each once."""
    declarations = (declaration_of(node) for node in tree.find_all(exp.Anonymous))
    return list(dict.fromkeys(filter(None, declarations)))


def functions_in(tree: exp.Expr) -> tuple[PythonFunction, ...]:
    """The defined functions that a tree calls, each once."""
    return tuple(filter(None, map(defined, declarations_in(tree))))
