"""Translates what depends on types that DuckDB binds: divisions, aggregates and TYPEOF."""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from streamhouse.errors import SqlError
from streamhouse.sql.expressions import aggregates, decimals, type_probe
from streamhouse.sql.expressions.binder import Relations
from streamhouse.sql.functions.expression_builders import call, cast
from streamhouse.sql.types import base, column_type

_DIGITS = "digits"
_TIMESTAMPS = ("TIMESTAMP", "TIME")
_DIVISION = "the type of this division is unknown; CAST its operands"
_TYPE = "the type of this expression is unknown here; use TYPEOF of a column or a CAST"
_AGGREGATE = "the type of this aggregate's argument is unknown; CAST it"


def resolved(
    tree: exp.Expr,
    relations: Relations,
    refused: Callable[[exp.Expr, str], SqlError],
) -> exp.Expr:
    """Give the divisions, aggregates and TYPEOFs of a translated tree Flink's meaning.

    `refused` makes the error to raise where DuckDB cannot determine a type.
    """
    kinds = (exp.Div, exp.Typeof, exp.AggFunc, exp.Filter, exp.Window)
    for node in type_probe.inner_first(tree, *kinds):
        if isinstance(node, exp.Typeof):
            new, message = _type_name(node, relations), _TYPE
        elif isinstance(node, exp.Div):
            new, message = decimals.divided(node, relations), _DIVISION
        elif aggregates.is_complete(node):
            new, message = aggregates.with_flink_type(node, relations), _AGGREGATE
        else:
            continue
        if new is None:
            raise refused(node, message)
        if node is tree:
            tree = new
        elif new is not node:
            node.replace(new)
    return tree


def note_digits(node: exp.Typeof, precision: int | None) -> None:
    """Note the declared precision of TYPEOF's argument, which DuckDB's types do not keep."""
    node.meta[_DIGITS] = precision


def _type_name(node: exp.Typeof, relations: Relations) -> exp.Expr | None:
    """TYPEOF: Flink's name of the type, without NOT NULL; None if the type is unknown."""
    kinds = type_probe.types(node, [node.this], relations)
    if kinds is None:
        return None
    try:
        type_name = column_type(kinds[0])
    except ValueError:
        return None
    precision = node.meta.get(_DIGITS)
    if precision is not None and base(type_name) in _TIMESTAMPS:
        type_name = f"{base(type_name)}({precision})"
    text = exp.Literal.string(type_name)
    if node.this.find(exp.AggFunc) is None:
        return cast(text, "VARCHAR")
    # Stays an aggregate, so that its query still returns one row per group.
    value = exp.Coalesce(this=call("ANY_VALUE", text), expressions=[text.copy()])
    return cast(value, "VARCHAR")
