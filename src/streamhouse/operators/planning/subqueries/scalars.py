"""Values of scalar subqueries, as columns that joins add."""

from sqlglot import exp

from streamhouse.operators.aggregate import Aggregate
from streamhouse.operators.filter import Filter
from streamhouse.operators.join import Equality, Join, JoinKind
from streamhouse.operators.operator import LEFT, RIGHT, Operator
from streamhouse.operators.planning.joins import is_equality
from streamhouse.operators.planning.rows import (
    NotExpressedError,
    Rows,
    checked,
    comparable,
    fragment,
    item,
    plain_column,
    reference,
    sides_of,
)  # fmt: skip
from streamhouse.operators.planning.select_list import Grouping, is_null_of_no_rows
from streamhouse.operators.planning.subqueries.correlation import single
from streamhouse.operators.planning.subqueries.membership import type_of
from streamhouse.operators.project import Item, Project


def beside(rows: Rows, operator: Operator, name: str) -> tuple[Rows, exp.Expr]:
    """The rows with the value of a scalar subquery that reads none of their columns."""
    if not operator.has_key(()):
        operator = single(operator, [])
    scalar = checked(Project(operator, (Item.of(operator.columns[0], name),)))
    while isinstance(operator, Project):
        operator = operator.input
    one = isinstance(operator, Aggregate) and not operator.by
    kind = JoinKind.INNER if one else JoinKind.LEFT
    return Rows(checked(Join(rows.operator, scalar, kind)), rows.names), reference(name)


def single_row(
    rows: Rows, inner: Rows, terms: list[exp.Expr], selected: exp.Expr, name: str
) -> tuple[Rows, exp.Expr]:
    """The rows with the value of the one row of `inner` that each matches; NULL without one."""
    outside, inside = equal_sides(rows, inner, terms)
    value = item(name, selected.unalias(), inner)
    return looked_up(rows, keyed(inner, inside, name, value), outside, name), reference(name)


def per_group(
    rows: Rows, inner: Rows, terms: list[exp.Expr], selected: exp.Expr, name: str
) -> tuple[Rows, exp.Expr]:
    """The rows with the aggregates of the rows of `inner` that each matches."""
    outside, inside = equal_sides(rows, inner, terms)
    node = selected.unalias()
    grouping = Grouping(inner, exp.Group(expressions=[each.copy() for each in inside]))
    value, by = grouping.replaced(node), [grouping.replaced(each) for each in inside]
    groups = grouping.rows()
    matched = Item(f"{name}m", "true")
    right = keyed(groups, by, name, item(name, value, groups), matched)
    joined = looked_up(rows, right, outside, name)
    if is_null_of_no_rows(node):
        return joined, reference(name)
    empty = Rows(checked(Filter(inner.operator, "false")), inner.names)
    alone = Grouping(empty, None)
    value = alone.replaced(node)
    nothing = alone.rows()
    default = checked(Project(nothing.operator, (item(f"{name}d", value, nothing),)))
    both = Rows(checked(Join(joined.operator, default, JoinKind.INNER)), rows.names)
    found = exp.If(this=reference(matched.name), true=reference(name))
    return both, exp.Case(ifs=[found], default=reference(f"{name}d"))


def equal_sides(
    rows: Rows, inner: Rows, terms: list[exp.Expr]
) -> tuple[list[exp.Expr], list[exp.Expr]]:
    """The expressions over `rows` and those over `inner` that the terms compare for equality.

    Those that are equal as nulls, too, are in parentheses.
    """
    sides = ((rows, LEFT), (inner, RIGHT))
    outside, inside = [], []
    for term in terms:
        if not is_equality(term, sides):
            raise NotExpressedError("a correlated scalar subquery with more than equalities")
        first, second = term.this, term.expression
        if sides_of(first, sides) == {RIGHT}:
            first, second = second, first
        if not comparable(type_of(first, rows), type_of(second, inner)):
            raise NotExpressedError("a comparison of different types")
        safe = isinstance(term, exp.NullSafeEQ)
        outside.append(exp.Paren(this=first.copy()) if safe else first)
        inside.append(second)
    return outside, inside


def keyed(inner: Rows, by: list[exp.Expr], name: str, *values: Item) -> Operator:
    """The rows of a subquery: the columns that are compared, and its value."""
    keys = (item(f"{name}k{n}", node, inner) for n, node in enumerate(by))
    return checked(Project(inner.operator, (*keys, *values)))


def looked_up(rows: Rows, right: Operator, outside: list[exp.Expr], name: str) -> Rows:
    """The rows with what `keyed` has for the values of the expressions `outside`."""
    equalities = tuple(
        Equality(
            fragment(node, ((rows, LEFT),)), f'{RIGHT}."{name}k{n}"', plain_column(node, rows),
            f"{name}k{n}", True, isinstance(node, exp.Paren),
        )
        for n, node in enumerate(outside)
    )  # fmt: skip
    if not right.has_key({each.right_column for each in equalities}):
        raise NotExpressedError("a scalar subquery that may have several rows")
    return Rows(checked(Join(rows.operator, right, JoinKind.LEFT, equalities)), rows.names)
