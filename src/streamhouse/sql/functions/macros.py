"""DuckDB expressions as SQL texts with placeholders, and the functions that `macros.sql` defines.

The functions and casts of a text are DuckDB's: they are not lowered as those of a user. The planner
expands the macros itself, so that no connection needs them, and each part of one has its type.
"""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib.resources import files
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.parsers.duckdb import DuckDBParser

from streamhouse.sql.functions.builtin_udfs import PREFIX, arrow_call
from streamhouse.sql.functions.expression_builders import (
    GENERATED,
    Args,
    Build,
    Table,
    bytes_of,
    parameter,
    tried,
)

_MACRO = re.compile(r"^CREATE MACRO (\w+)\((.*?)\) AS\s+(.*?);$", re.MULTILINE | re.DOTALL)
_NODES = (
    "ABS", "APPROX_COUNT_DISTINCT", "ARG_MAX", "ARG_MIN", "AVG", "BIT_AND", "BIT_OR", "BIT_XOR",
    "BOOL_AND", "BOOL_OR", "CEIL", "COALESCE", "CORR", "COUNT", "COVAR_POP", "COVAR_SAMP",
    "CUME_DIST", "DENSE_RANK", "FIRST_VALUE", "KURTOSIS", "LAG", "LAST_VALUE", "LEAD", "LOWER",
    "MAX", "MIN", "NTH_VALUE", "NTILE", "NULLIF", "PERCENTILE_CONT", "PERCENTILE_DISC",
    "PERCENT_RANK", "RANK", "REGR_AVGX", "REGR_AVGY", "REGR_INTERCEPT", "REGR_R2", "REGR_SLOPE",
    "REGR_SXX", "REGR_SXY", "REGR_SYY", "ROW_NUMBER", "SKEWNESS", "STDDEV_POP", "STDDEV_SAMP",
    "SUBSTRING", "SUM", "UPPER", "VAR_POP", "VAR_SAMP",
)  # fmt: skip
"""The functions that are nodes of sqlglot; all others are calls by name."""
_OPERATORS = (exp.Binary, exp.Unary, exp.Between, exp.In)
_ATOMS = (exp.Dot, exp.Paren)
"""Nodes that sqlglot takes for operators, and that need no parentheses."""


class _Template(DuckDB):
    """DuckDB's dialect without sqlglot's own nodes for functions, but those of `_NODES`."""

    class Parser(DuckDBParser):
        FUNCTIONS = {name: DuckDBParser.FUNCTIONS[name] for name in _NODES}
        FUNCTION_PARSERS = {
            name: DuckDBParser.FUNCTION_PARSERS[name] for name in ("CAST", "TRY_CAST")
        }
        NO_PAREN_FUNCTIONS: ClassVar[dict[Any, Any]] = {}
        NO_PAREN_FUNCTION_PARSERS = {"CASE": DuckDBParser.NO_PAREN_FUNCTION_PARSERS["CASE"]}


def filled(text: str, /, **parts: exp.Expr) -> exp.Expr:
    """The expression of a text with `parts` in place of the columns of their names.

    A part that is an operator gets parentheses where the text has one around it. The first place
    gets the part itself, others get copies.
    """
    tree = _parsed(text).copy()
    tests = [each for each in tree.find_all(exp.Anonymous) if each.name == "TRY"]
    inside = {id(column) for each in tests for column in each.find_all(exp.Column)}
    _fill([each for each in tree.find_all(exp.Column) if id(each) not in inside], parts)
    for each in tests:
        new = _tried(each.expressions[0], parts)
        tree = new if each is tree else tree
        each.replace(new)
    return tree


def _fill(columns: Sequence[exp.Column], parts: Mapping[str, exp.Expr]) -> None:
    used: set[str] = set()
    for column in columns:
        part = parts[column.name]
        part = part.copy() if column.name in used else part
        used.add(column.name)
        if _is_operator(column.parent) and _is_operator(part):
            part = exp.Paren(this=part)
        column.replace(part)


def _tried(body: exp.Expr, parts: Mapping[str, exp.Expr]) -> exp.Expr:
    """The argument of TRY in a text, with its parts; null where it fails."""
    names = list(dict.fromkeys(column.name for column in body.find_all(exp.Column)))

    def build(*given: exp.Expr) -> exp.Expr:
        whole = exp.Paren(this=body.copy())
        _fill(list(whole.find_all(exp.Column)), dict(zip(names, given, strict=True)))
        made: exp.Expr = whole.this
        return made

    return tried(build, *(parts[name] for name in names))


def _is_operator(node: exp.Expr | None) -> bool:
    return isinstance(node, _OPERATORS) and not isinstance(node, _ATOMS)


@lru_cache(maxsize=1024)
def _parsed(text: str) -> exp.Expr:
    (tree,) = _Template().parse(text)
    assert tree is not None
    for node in reversed(list(tree.walk())):
        # The parser notes places in this text, not in a user's.
        node.meta.clear()
        new = _read(node)
        if node is tree:
            tree = new
        elif new is not node:
            node.replace(new)
    return tree


def _read(node: exp.Expr) -> exp.Expr:
    """A node of a text, whose parts are read: calls of macros and of Python are expanded."""
    if isinstance(node, exp.Cast | exp.Lambda):
        node.meta[GENERATED] = True
        node.type = None
    if isinstance(node, exp.Lambda):
        names = {each.name for each in node.expressions}
        for each in list(node.this.find_all(exp.Identifier)):
            if each.name in names and not isinstance(each.parent, exp.Column):
                each.replace(parameter(each.name))
    if isinstance(node, exp.Anonymous) and node.name == "AS_BYTES":
        return bytes_of(node.expressions[0])
    if isinstance(node, exp.Anonymous) and node.name.startswith(PREFIX):
        return arrow_call(node.name.removeprefix(PREFIX), *node.expressions)
    if isinstance(node, exp.Anonymous) and node.name.startswith("_"):
        return _expanded(node.name)(node.expressions)
    return node


def _expanded(name: str) -> Build:
    """A builder of the macro of a name, which has one text for each number of arguments."""

    def build(args: Args) -> exp.Expr:
        names, text = _MACROS[name][len(args)]
        return filled(text, **dict(zip(names, args, strict=True)))

    return build


def _defined() -> dict[str, dict[int, tuple[list[str], str]]]:
    """The parameters and texts of the macros, by name and number of parameters."""
    macros: dict[str, dict[int, tuple[list[str], str]]] = {}
    for name, names, text in _MACRO.findall((files(__package__) / "macros.sql").read_text()):
        parameters = names.split(", ") if names else []
        macros.setdefault(name, {})[len(parameters)] = parameters, text
    return macros


_MACROS = _defined()
TABLE: Table = {
    name: (min(texts), max(texts), _expanded(name))
    for name, texts in _MACROS.items()
    if not name.startswith("_")
}
