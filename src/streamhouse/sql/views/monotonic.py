"""Finds out whether a query's result only grows while rows are added to its tables.

Works on the translated tree of a bounded query. What is not known to grow counts as changing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sqlglot import exp

from streamhouse.sql.plan import TableInfo


def changes_by(tree: exp.Expr, tables: Mapping[str, TableInfo]) -> str | None:
    """What lets rows leave the result, in words; None if the result only grows.

    `tables` has the table of each relation (`scan_0`, …).
    """
    return next(_changing(tree, tables), None)


def _changing(tree: exp.Expr, tables: Mapping[str, TableInfo]) -> Iterator[str]:
    for node in tree.walk():
        if isinstance(node, exp.Table):
            table = tables.get(node.name)
            if table is not None and table.changelog:
                yield f"table {'.'.join(table.name[-2:])} has updates and deletes"
        elif isinstance(node, exp.SetOperation):
            if isinstance(node, exp.Except):
                yield "EXCEPT loses a row when its right side gets it"
        elif isinstance(node, exp.Window):
            yield f"{node.this.sql_name()} OVER changes when rows are added"
        elif isinstance(node, exp.AggFunc):
            if not isinstance(node.parent, exp.Window):
                yield f"{node.sql_name()} changes when rows are added"
        elif isinstance(node, exp.Join):
            yield from _join(node)
        elif isinstance(node, exp.Limit | exp.Offset | exp.Fetch):
            yield "LIMIT loses rows when others take their places"
        elif isinstance(node, exp.Anonymous | exp.Func) and "getvariable" in node.name.lower():
            yield "the current time changes"
        elif isinstance(node, exp.Query) and not _grows_with(node):
            yield "a subquery that is not compared by IN or EXISTS in WHERE changes"


def _join(join: exp.Join) -> Iterator[str]:
    side, kind = (join.side or "").upper(), (join.kind or "").upper()
    if side and not isinstance(join.this.unalias(), exp.Unnest):
        yield f"{side} JOIN replaces a row without a match when there is one"
    elif kind in ("ANTI", "ASOF"):
        yield f"{kind} JOIN loses a row when it gets a match"


def _grows_with(query: exp.Query) -> bool:
    """Whether more rows of a nested query can only mean more rows of the query around it."""
    node: exp.Expr = query
    parent = node.parent
    while isinstance(parent, exp.Subquery | exp.Paren | exp.SetOperation):
        node, parent = parent, parent.parent
    if parent is None or isinstance(parent, exp.From | exp.Join | exp.CTE | exp.Lateral):
        # In a JOIN it may stand in ON, too, where the next test would find it.
        return not isinstance(parent, exp.Join) or node is parent.this
    if isinstance(parent, exp.In | exp.Exists | exp.Any):
        node, parent = parent, parent.parent
    if isinstance(node, exp.Any) and isinstance(parent, exp.EQ):
        node, parent = parent, parent.parent
    elif not isinstance(node, exp.In | exp.Exists):
        return False
    while isinstance(parent, exp.And | exp.Or | exp.Paren):
        parent = parent.parent
    return isinstance(parent, exp.Where | exp.Join)
