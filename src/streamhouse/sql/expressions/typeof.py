"""TYPEOF: the name of a type, which DuckDB finds by binding the expression."""

from __future__ import annotations

from sqlglot import exp

from streamhouse.sql.expressions import type_probe
from streamhouse.sql.expressions.binder import Relations
from streamhouse.sql.functions.expression_builders import call, cast
from streamhouse.sql.types import base, column_type

_TIMESTAMPS = ("TIMESTAMP", "TIMESTAMP_LTZ", "TIME")


def type_name(node: exp.Typeof, relations: Relations, precision: int | None) -> exp.Expr | None:
    """Flink's name of the argument's type, without NOT NULL; None if the type is unknown.

    `precision` is the declared one of a TIMESTAMP or TIME, which DuckDB's types do not keep.
    """
    kinds = type_probe.types(node, [node.this], relations)
    if kinds is None:
        return None
    try:
        name = column_type(kinds[0])
    except ValueError:
        return None
    if precision is not None and base(name) in _TIMESTAMPS:
        name = f"{base(name)}({precision})"
    text = exp.Literal.string(name)
    if node.this.find(exp.AggFunc) is None:
        return cast(text, "VARCHAR")
    # Stays an aggregate, so that its query still returns one row per group.
    value = exp.Coalesce(this=call("ANY_VALUE", text), expressions=[text.copy()])
    return cast(value, "VARCHAR")
