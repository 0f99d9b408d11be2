"""Joins: the terms of their conditions, their order, and what goes below them."""

import re
from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from streamhouse.operators.join import Equality, Join, JoinKind
from streamhouse.operators.operator import INPUT, LEFT, RIGHT, Operator
from streamhouse.operators.planning.accumulation import distinct
from streamhouse.operators.planning.rows import (
    Rows,
    Sides,
    checked,
    comparable,
    fragment,
    over,
    passing,
    plain_column,
    sides_of,
)  # fmt: skip
from streamhouse.operators.planning.time_ranges import ADDED, in_pieces
from streamhouse.operators.project import Item, Project
from streamhouse.sql.batch.joins_in_time import NEAREST
from streamhouse.sql.functions.expression_builders import column_of

_RIGHT = re.compile(rf'"?\b{RIGHT}"?\.(?=")')


def inner_join(elements: list[Rows], terms: list[exp.Expr], where: list[exp.Expr]) -> Rows:
    """The inner join of elements by terms and by those of `where` that only read these elements.

    Each term is used as early as possible. Terms are removed from `where`.
    """
    first, *rest = (passing(each, _taken(over(each), terms, where)) for each in elements)
    while rest:
        sides = [((first, LEFT), (each, RIGHT)) for each in rest]
        equal = (any(is_equality(term, pair) for term in (*terms, *where)) for pair in sides)
        number = next((n for n, found in enumerate(equal) if found), 0)
        on = _taken(sides[number], terms, where)
        first = combined(JoinKind.INNER, first, rest.pop(number), on)
    return passing(first, terms)


def _taken(sides: Sides, *lists: list[exp.Expr]) -> list[exp.Expr]:
    """The terms that read columns of these sides only; they are removed from the lists."""
    found = []
    for terms in lists:
        for term in list(terms):
            read = set() if term.find(exp.Query) else sides_of(term, sides)
            if read and "" not in read:
                found.append(term)
                terms[:] = [each for each in terms if each is not term]
    return found


def combined(kind: JoinKind, left: Rows, right: Rows, terms: list[exp.Expr]) -> Rows:
    """The join of two sides by the terms of its condition."""
    if kind is not JoinKind.FULL:
        # Rows of the right side for which a term is not true have no match.
        right = passing(right, _taken(over(right), terms))
    # The time passes for the rows of a filter, not for all pairs of rows.
    timed = [term for term in terms if _is_timed(term)] if kind is JoinKind.INNER else []
    terms = [term for term in terms if not any(term is each for each in timed)]
    equalities, rest = condition(left, right, terms)
    if rest and not _has_key(left, right, equalities):
        left, right, terms = in_pieces(kind, left, right, terms)
        equalities, rest = condition(left, right, terms)
    single = any(_is_nearest(term, equalities, right) for term in terms)
    operator = joined(left.operator, right.operator, kind, equalities, rest, single)
    names = left.names if kind.one_sided else {**left.names, **right.names}
    return passing(Rows(operator, names), timed)


def _has_key(left: Rows, right: Rows, equalities: Sequence[Equality]) -> bool:
    """Whether rows of one side meet one row of the other at most, by these equalities."""
    columns = {e.left_column for e in equalities}, {e.right_column for e in equalities}
    return left.operator.has_key(columns[0]) or right.operator.has_key(columns[1])


def _is_nearest(term: exp.Expr, equalities: Sequence[Equality], right: Rows) -> bool:
    """Whether a left row has one match at most, since a term selects the nearest of equal keys."""
    equal = {each.right_column for each in equalities if each.exact} - {""}
    keys = [column_of(table, n) for table, n in term.meta.get(NEAREST, ())]
    return bool(keys) and all(right.find(key) in equal for key in keys)


def _is_timed(term: exp.Expr) -> bool:
    return any(each.name.lower() == "getvariable" for each in term.find_all(exp.Anonymous))


def condition(
    left: Rows, right: Rows, terms: list[exp.Expr]
) -> tuple[tuple[Equality, ...], tuple[str, ...]]:
    """The equalities among the terms of a join's condition, and the SQL of the others."""
    sides = ((left, LEFT), (right, RIGHT))
    equalities = tuple(_equality(term, sides) for term in terms if is_equality(term, sides))
    rest = [term for term in terms if not is_equality(term, sides) and not is_true(term)]
    return equalities, tuple(fragment(each, sides) for each in rest)


def over_input(sql: str) -> str:
    """The SQL of an expression over `RIGHT` as one over `INPUT`."""
    return _RIGHT.sub(f"{INPUT}.", sql)


def joined(
    left: Operator,
    right: Operator,
    kind: JoinKind,
    equalities: tuple[Equality, ...],
    rest: tuple[str, ...] = (),
    single: bool = False,
) -> Operator:
    """A join; one that only asks whether there is a match gets each key of the right side once."""
    if kind.one_sided and equalities and not rest:
        keys = tuple(
            Item(f"_k{n}", over_input(each.right), each.right_column)
            for n, each in enumerate(equalities)
        )
        equalities = tuple(
            replace(each, right=f'{RIGHT}."_k{n}"', right_column=f"_k{n}")
            for n, each in enumerate(equalities)
        )
        right = distinct(checked(Project(right, keys)))
    residual = " AND ".join(f"({each})" for each in rest) if len(rest) > 1 else "".join(rest)
    return checked(Join(left, right, kind, equalities, residual, single))


def is_true(term: exp.Expr) -> bool:
    """Whether a condition is the literal TRUE."""
    return isinstance(term, exp.Boolean) and bool(term.this)


def is_equality(term: exp.Expr, sides: Sides) -> bool:
    """Whether a condition compares an expression of one side with one of the other."""
    if not isinstance(term, exp.EQ | exp.NullSafeEQ) or term.find(exp.Query):
        return False
    found = [sides_of(each, sides) for each in (term.this, term.expression)]
    return found in ([{LEFT}, {RIGHT}], [{RIGHT}, {LEFT}])


def _equality(term: exp.Expr, sides: Sides) -> Equality:
    first, second = term.this, term.expression
    if sides_of(first, sides) == {RIGHT}:
        first, second = second, first
    left, right = sides[0][0], sides[1][0]
    names = plain_column(first, left), plain_column(second, right)
    exact = all(names) and comparable(left.operator.types[names[0]], right.operator.types[names[1]])
    fragments = fragment(first, sides[:1]), fragment(second, sides[1:])
    nulls, added = isinstance(term, exp.NullSafeEQ), bool(term.meta.get(ADDED))
    return Equality(*fragments, *names, exact, nulls, added)
