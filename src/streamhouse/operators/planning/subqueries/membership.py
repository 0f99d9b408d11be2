"""IN and NOT IN of a subquery, as joins."""

from collections.abc import Iterable

from sqlglot import exp

from streamhouse.operators.filter import Filter
from streamhouse.operators.join import Equality, JoinKind
from streamhouse.operators.operator import LEFT, RIGHT, Operator
from streamhouse.operators.planning.joins import condition, joined, over_input
from streamhouse.operators.planning.rows import (
    NotExpressedError,
    Rows,
    checked,
    comparable,
    fragment,
    item,
    plain_column,
)  # fmt: skip
from streamhouse.operators.project import Item, Project
from streamhouse.operators.set_operation import SetKind, SetOperation


def membership(
    kind: JoinKind,
    rows: Rows,
    inner: Rows,
    terms: list[exp.Expr],
    values: list[exp.Expr],
    found: list[exp.Expr],
) -> Rows:
    """The rows with, or without, `values` among those that `found` has in `inner`."""
    equal = tuple(same(rows, inner, *pair) for pair in zip(values, found, strict=True))
    equalities, rest = condition(rows, inner, terms)
    if kind is JoinKind.SEMI or never_null(equal, rows, inner):
        operator = joined(rows.operator, inner.operator, kind, (*equalities, *equal), rest)
    elif not terms and len(equal) == 1:
        operator = _outside(rows.operator, inner.operator, equal[0])
    else:
        # NOT IN is not true for a row if a comparison with any value is unknown.
        test = " AND ".join(f"{each.left} = {each.right}" for each in equal)
        unknown = f"({test}) IS DISTINCT FROM false"
        operator = joined(rows.operator, inner.operator, kind, equalities, (*rest, unknown))
    return Rows(operator, rows.names)


def never_null(equal: Iterable[Equality], rows: Rows, inner: Rows) -> bool:
    """Whether no side of an equality can be null."""
    left, right = rows.operator.not_null, inner.operator.not_null
    return all(each.left_column in left and each.right_column in right for each in equal)


def _outside(rows: Operator, inner: Operator, equal: Equality) -> Operator:
    """The rows with a value that is not in `inner`: it has no null; any value, if it is empty."""
    alike = Equality(f"(({equal.left}) IS NULL)", f'{RIGHT}."_k0"', "", "_k0", True)
    without = joined(rows, inner, JoinKind.ANTI, (equal,))
    return joined(without, marks(inner, equal, "_k0"), JoinKind.ANTI, (alike,))


def marks(inner: Operator, equal: Equality, name: str) -> Operator:
    """For which values IN is unknown without a match: nulls (true) if `inner` has any row, other
    values (false) if it has a null."""
    null = checked(Filter(inner, f"({over_input(equal.right)}) IS NULL"))
    some, nulls = (
        checked(Project(operator, (Item(name, value, "", frozenset()),)))
        for operator, value in ((inner, "true"), (null, "false"))
    )
    return checked(SetOperation(some, nulls, SetKind.UNION, True))


def same(rows: Rows, inner: Rows, value: exp.Expr, found: exp.Expr) -> Equality:
    """The equality of a value of `rows` and one of `inner`, whose types can be compared."""
    if not comparable(type_of(value, rows), type_of(found, inner)):
        raise NotExpressedError("IN of another type")
    sides = fragment(value, ((rows, LEFT),)), fragment(found, ((inner, RIGHT),))
    return Equality(*sides, plain_column(value, rows), plain_column(found, inner), True)


def type_of(node: exp.Expr, rows: Rows) -> str:
    """The DuckDB type of an expression over rows."""
    return checked(Project(rows.operator, (item("value", node, rows),))).types["value"]
