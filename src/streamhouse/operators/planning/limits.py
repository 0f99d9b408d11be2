"""LIMIT and OFFSET, of a query or of each value of columns."""

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from streamhouse.operators.limit import Limit
from streamhouse.operators.operator import Operator
from streamhouse.operators.planning.filters import passing
from streamhouse.operators.planning.rows import (
    NotExpressedError,
    Rows,
    checked,
    fragment,
    over,
    reference,
)  # fmt: skip
from streamhouse.operators.planning.select_list import over_rows
from streamhouse.operators.project import Item, Project
from streamhouse.sql import select_parts
from streamhouse.sql.batch import total_order


def limited(
    rows: Rows, tree: exp.Expr, order: list[exp.Ordered], given: list[exp.Expr]
) -> Operator:
    """The first rows of a query, or of each value of the columns `given`."""
    limit, offset = tree.args.get("limit"), tree.args.get("offset")
    if limit is None and offset is None:
        return rows.operator
    most = None
    if isinstance(limit, exp.Fetch):
        most = _count(limit.args.get("count"))
    elif limit is not None:
        most = _count(limit.expression)
    skipped = 0 if offset is None else _count(offset.expression)
    terms = tuple(fragment(term, over(rows)) for term in order)
    in_order = not total_order.is_total(tree)
    first = rows.operator
    if given:
        return _numbered(rows, (skipped, most), order, given, in_order)
    if skipped and most is not None and not in_order:
        # The change of the first rows needs no other rows, and there are few of them.
        first = checked(Limit(first, most + skipped, 0, terms))
    return checked(Limit(first, most, skipped, terms, in_order))


def _count(node: exp.Expr | None) -> int:
    if not isinstance(node, exp.Literal) or not node.is_int:
        raise NotExpressedError("LIMIT of an expression")
    return int(node.name)


def _numbered(
    rows: Rows,
    limits: tuple[int, int | None],
    order: list[exp.Ordered],
    by: Sequence[exp.Expr],
    in_order: bool,
) -> Operator:
    """The rows after the first `limits[0]`, at most `limits[1]`, of each value of columns."""
    skipped, most = limits
    name = "_number"
    number = select_parts.over(exp.RowNumber(), by, order)
    ranked = replace(over_rows(rows.operator, name, number, rows), in_order=in_order)
    bounds = [(exp.LTE, None if most is None else skipped + most), (exp.GT, skipped or None)]
    tests: list[exp.Expr] = [
        kind(this=reference(name), expression=exp.Literal.number(bound))
        for kind, bound in bounds
        if bound is not None
    ]
    found = passing(Rows(checked(ranked)), tests)
    return checked(Project(found.operator, tuple(map(Item.of, rows.operator.columns))))
