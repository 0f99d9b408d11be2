"""What the types that DuckDB binds decide: divisions, sums and averages."""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from streamhouse.errors import SqlError
from streamhouse.sql import aggregates, decimals, probe
from streamhouse.sql.probe import Relations

_DIVISION = "the type of this division is not known; CAST what is divided"
_AGGREGATE = "the type of what is added up here is not known; CAST it"


def resolved(
    tree: exp.Expr,
    relations: Relations,
    refused: Callable[[exp.Expr, str], SqlError],
) -> exp.Expr:
    """A tree in DuckDB's terms with Flink's divisions and aggregates.

    `refused` makes the error where DuckDB cannot tell a type.
    """
    for node in probe.inner_first(tree, exp.Div, exp.AggFunc, exp.Filter, exp.Window):
        if isinstance(node, exp.Div):
            new, message = decimals.divided(node, relations), _DIVISION
        elif aggregates.is_whole(node):
            new, message = aggregates.typed(node, relations), _AGGREGATE
        else:
            continue
        if new is None:
            raise refused(node, message)
        if node is tree:
            tree = new
        elif new is not node:
            node.replace(new)
    return tree
