"""Finds types of parts of a query by letting DuckDB bind them; sqlglot cannot infer all."""

from __future__ import annotations

from collections.abc import Sequence

from duckdb.sqltypes import DuckDBPyType
from sqlglot import exp

from streamhouse.sql.expressions.binder import BindError, Relations, describe, generate

_CLAUSES = ("from_", "joins", "laterals", "group")


def inner_first(tree: exp.Expr, *kinds: type[exp.Expr]) -> list[exp.Expr]:
    """The nodes of these classes, inner ones before those that contain or read them.

    Nodes in WITH queries come first, in the order of these, then nodes of deeper SELECTs, then
    deeper nodes.
    """
    ctes = {id(cte): index for index, cte in enumerate(tree.find_all(exp.CTE))}

    def order(node: exp.Expr) -> tuple[int, int, int]:
        index, queries, current = len(ctes), 0, node.parent
        while current is not None:
            index = ctes.get(id(current), index)
            queries += isinstance(current, exp.Select)
            current = current.parent
        return index, -queries, -node.depth

    return sorted(tree.find_all(*kinds), key=order)


def types(
    node: exp.Expr, parts: Sequence[exp.Expr], relations: Relations
) -> list[DuckDBPyType] | None:
    """DuckDB's types of `parts`, evaluated in the SELECT of `node`; None if it cannot bind them.

    The probe has that SELECT's FROM, joins and GROUP BY, and the WITH queries around it.
    """
    column_types = [_of_column(part, node, relations) for part in parts]
    if all(column_types):
        return [DuckDBPyType(kind) for kind in column_types if kind]
    select = node.find_ancestor(exp.Select)
    args = select.args if select is not None else {}
    probe = exp.Select(
        expressions=[exp.alias_(part.copy(), f"part{index}") for index, part in enumerate(parts)]
    )
    for key in _CLAUSES:
        part = args.get(key)
        if part:
            copies = [one.copy() for one in part] if isinstance(part, list) else part.copy()
            probe.set(key, copies)
    _with(probe, node)
    for _ in range(2):
        try:
            return [kind for _, kind in describe(generate(probe), relations)]
        except (BindError, ValueError):
            # Retry without GROUP BY, which may contain the part itself.
            probe.set("group", None)
    return None


def _of_column(part: exp.Expr, node: exp.Expr, relations: Relations) -> str | None:
    """The type of a plain column of a relation, without a probe; None for anything else."""
    inner, select = part.unnest(), node.find_ancestor(exp.Select)
    if not isinstance(inner, exp.Column) or select is None or select.args.get("from_") is None:
        return None
    for source in (select.args["from_"], *(select.args.get("joins") or [])):
        table = source.this
        if isinstance(table, exp.Table) and table.alias_or_name == inner.table:
            return relations.get(table.name, {}).get(inner.name)
    return None


def _with(probe: exp.Select, node: exp.Expr) -> None:
    """Give the probe the WITH queries in whose scope a node is."""
    ctes: list[exp.Expr] = []
    recursive = False
    current = node.parent
    while current is not None:
        clause = current.args.get("with_")
        if clause is not None:
            ctes = [*(cte.copy() for cte in clause.expressions), *ctes]
            recursive = recursive or bool(clause.args.get("recursive"))
        current = current.parent
    if ctes:
        probe.set("with_", exp.With(expressions=ctes, recursive=recursive))
