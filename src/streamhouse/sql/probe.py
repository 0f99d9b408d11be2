"""DuckDB's types of expressions within a query, which it is asked for by a query of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from duckdb.sqltypes import DuckDBPyType
from sqlglot import exp

from streamhouse.sql.binder import BindError, describe, generate

N = TypeVar("N", bound=exp.Expr)

_CLAUSES = ("from_", "joins", "laterals", "group")


def types_of(
    parts: Sequence[exp.Expr], within: exp.Expr, relations: Mapping[str, Mapping[str, str]]
) -> list[DuckDBPyType] | None:
    """The types of expressions that stand where `within` does.

    None if DuckDB cannot tell them without the rest of the query.
    """
    around = within.find_ancestor(exp.Select)
    args = around.args if around is not None else {}
    probe = exp.Select(
        expressions=[exp.alias_(part.copy(), f"part{place}") for place, part in enumerate(parts)]
    )
    for key in _CLAUSES:
        part = args.get(key)
        if part:
            copies = [one.copy() for one in part] if isinstance(part, list) else part.copy()
            probe.set(key, copies)
    _with(probe, within)
    for _ in range(2):
        try:
            return [kind for _, kind in describe(generate(probe), relations)]
        except (BindError, ValueError):
            # What rows are grouped by may be the expression itself.
            probe.set("group", None)
    return None


def inner_first(tree: exp.Expr, nodes: Sequence[N]) -> list[N]:
    """Nodes of a tree, those before others that may be made of them."""
    ctes = {id(cte): place for place, cte in enumerate(tree.find_all(exp.CTE))}

    def order(node: N) -> tuple[int, int]:
        place, current = len(ctes), node.parent
        while current is not None:
            place = ctes.get(id(current), place)
            current = current.parent
        return place, -node.depth

    return sorted(nodes, key=order)


def _with(probe: exp.Select, node: exp.Expr) -> None:
    """Give a query the WITH queries that stand around a node."""
    found: list[exp.Expr] = []
    recursive = False
    current = node.parent
    while current is not None:
        clause = current.args.get("with_")
        if clause is not None:
            found = [*(cte.copy() for cte in clause.expressions), *found]
            recursive = recursive or bool(clause.args.get("recursive"))
        current = current.parent
    if found:
        probe.set("with_", exp.With(expressions=found, recursive=recursive))
