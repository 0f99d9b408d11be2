"""FROM and JOIN: the rows of a SELECT before WHERE."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from sqlglot import exp

from streamhouse.operators.join import Equality, Join, JoinKind
from streamhouse.operators.operator import INPUT, LEFT, RIGHT, Operator
from streamhouse.operators.planning.accumulation import distinct
from streamhouse.operators.planning.correlation import Within, for_all
from streamhouse.operators.planning.filters import passing
from streamhouse.operators.planning.rows import (
    RESERVED,
    NotExpressedError,
    Rows,
    Sides,
    checked,
    comparable,
    conjuncts,
    fragment,
    free_columns,
    over,
    plain_column,
    sides_of,
)  # fmt: skip
from streamhouse.operators.project import Item, Project
from streamhouse.operators.scan import Scan
from streamhouse.operators.unnest import Unnest
from streamhouse.operators.values import Values
from streamhouse.sql.plan import BoundedScan

_ELEMENT_ARGS = ("this", "alias", "joins", "expressions", "offset", "outer")
_JOIN_ARGS = ("this", "on", "side", "kind", "using")
_KINDS = {"": JoinKind.INNER, "LEFT": JoinKind.LEFT, "RIGHT": JoinKind.LEFT, "FULL": JoinKind.FULL}
_RIGHT = re.compile(rf'"?\b{RIGHT}"?\.(?=")')
ONE_ROW = Values((), ((),))
"""The row of a SELECT without FROM."""


@dataclass(frozen=True)
class Sources:
    """What names in FROM refer to: the query's scans, and the WITH queries in scope."""

    scans: dict[str, BoundedScan]
    queries: dict[str, Operator]
    numbers: Iterator[int] = field(default_factory=itertools.count)
    """Numbers for the columns of subqueries."""

    def find(self, name: str, prefix: str) -> Operator | None:
        """The operator of a relation; the columns of a scan begin with `prefix`."""
        if name.lower() in self.queries:
            return self.queries[name.lower()]
        scan = self.scans.get(name)
        if scan is None:
            return None
        fixed = bool(scan.as_of)
        return Scan(scan.table, scan.relation, scan.columns, prefix, fixed)


class FromClause:
    """Builds the rows of one SELECT's FROM.

    `where` are the conditions of WHERE; those that joins take over are removed. `query` builds the
    tree of a subquery, `within` that of one that reads columns of relations before it. `domain` is
    the first relation of a subquery that reads its columns.
    """

    def __init__(
        self,
        sources: Sources,
        query: Callable[[exp.Expr], Operator],
        where: list[exp.Expr],
        within: Within,
        domain: Rows | None = None,
    ) -> None:
        self._sources, self._query, self._where = sources, query, where
        self._within, self._domain = within, domain
        self._several = False

    def rows(self, select: exp.Select) -> Rows:
        """The joined rows of a SELECT."""
        from_ = select.args.get("from_")
        if select.args.get("laterals"):
            raise NotExpressedError("LATERAL")
        if from_ is None:
            return self._domain or Rows(ONE_ROW)
        joins = [*(from_.this.args.get("joins") or ()), *(select.args.get("joins") or ())]
        self._several = bool(joins)
        if self._domain is None or not any(map(_is_outer, joins)):
            return self._joined(from_.this, joins, self._where, self._domain)
        return _inner([self._domain, self._joined(from_.this, joins)], [], self._where)

    def _joined(
        self,
        first: exp.Expr,
        joins: list[exp.Join],
        where: list[exp.Expr] | None = None,
        domain: Rows | None = None,
    ) -> Rows:
        """Joined elements: inner joins in an order in which equalities relate them."""
        # After outer joins the conditions of WHERE are true, not before.
        movable = where is not None and not any(map(_is_outer, joins))
        where = where if where is not None and movable else []
        elements, terms = [] if domain is None else [domain], list[exp.Expr]()
        rest = ((each.this, *_kind(each), [*conjuncts(each.args.get("on"))]) for each in joins)
        for node, side, kind, on in ((first, "", JoinKind.INNER, []), *rest):
            dependent = self._dependent(node, elements, side)
            if dependent is None and kind is JoinKind.INNER:
                elements.append(self._element(node))
                # A subquery of an inner join's condition may as well be in WHERE.
                for term in on:
                    (where if movable and term.find(exp.Query) else terms).append(term)
                continue
            left = _inner(elements, terms, where) if elements else Rows(ONE_ROW)
            if dependent is None:
                right = self._element(node)
                sides = (right, left) if side == "RIGHT" else (left, right)
                elements, terms = [combined(kind, *sides, on)], []
            else:
                elements, terms = [dependent(left, node, kind, on)], []
        return _inner(elements, terms, where)

    def _dependent(
        self, node: exp.Expr, elements: list[Rows], side: str
    ) -> Callable[[Rows, exp.Expr, JoinKind, list[exp.Expr]], Rows] | None:
        """How to join an element that reads columns of those before it; None if it reads none."""
        if isinstance(node, exp.Unnest):
            found = _unnested
        elif not isinstance(node.this, exp.Query | exp.Subquery) or not any(
            free_columns(node.this, each) for each in elements
        ):
            return None
        else:
            found = self._lateral
        if side in ("RIGHT", "FULL"):
            raise NotExpressedError(f"{side} JOIN LATERAL")
        return found

    def _lateral(self, left: Rows, node: exp.Expr, kind: JoinKind, on: list[exp.Expr]) -> Rows:
        number = next(self._sources.numbers)
        inner, terms, found = for_all(node.this, left, number, self._within)
        columns, alias = inner.operator.columns, node.alias_or_name
        values = columns[: len(found)]
        called = [each.name for each in node.args["alias"].columns] or list(values)
        if len(called) != len(values):
            raise NotExpressedError("an alias with some of the columns only")
        named = dict(zip(values, (f"{alias}.{name}" for name in called), strict=True))
        items = tuple(Item.of(column, named.get(column, column)) for column in columns)
        names = {(alias.lower(), name.lower()): f"{alias}.{name}" for name in called}
        right = Rows(checked(Project(inner.operator, items)), names)
        return combined(kind, left, right, [*on, *terms])

    def _element(self, node: exp.Expr) -> Rows:
        extra = [key for key, value in node.args.items() if value and key not in _ELEMENT_ARGS]
        if extra:
            raise NotExpressedError(f"{extra[0].strip('_').upper()} in FROM")
        alias = node.alias_or_name
        if alias.lower() in RESERVED:
            raise NotExpressedError(f"the alias {alias}")
        names = [each.name for each in getattr(node.args.get("alias"), "columns", ())]
        match node:
            case exp.Table():
                operator = self._sources.find(node.name, f"{alias}." if self._several else "")
                if operator is None:
                    raise NotExpressedError(f"the relation {node.name}")
            case exp.Lateral() | exp.Subquery() if isinstance(node.this, exp.Query):
                operator = self._query(node.this.unnest())
            case exp.Subquery() if isinstance(node.this, exp.Table) and not alias:
                return self._joined(node.this, node.this.args.get("joins") or [])
            case exp.Values():
                operator = _values(node, names)
            case _:
                raise NotExpressedError(f"{type(node).__name__.upper()} in FROM")
        return self._named(operator, alias, names)

    def _named(self, operator: Operator, alias: str, names: list[str]) -> Rows:
        """The rows of an element of FROM, whose columns the query calls `alias.name`."""
        own = operator.read if isinstance(operator, Scan) else operator.columns
        called = names or list(own)
        if len(called) != len(own):
            raise NotExpressedError("an alias with some of the columns only")
        if self._several and not isinstance(operator, Scan):
            pairs = zip(operator.columns, called, strict=True)
            items = tuple(Item.of(column, f"{alias}.{name}") for column, name in pairs)
            operator = checked(Project(operator, items))
        keys = ((alias.lower(), name.lower()) for name in called)
        return Rows(operator, dict(zip(keys, operator.columns, strict=True)))


def _is_outer(join: exp.Join) -> bool:
    return (join.side or "").upper() in ("RIGHT", "FULL")


def _kind(join: exp.Join) -> tuple[str, JoinKind]:
    """The side and the kind of a join."""
    extra = [key for key, value in join.args.items() if value and key not in _JOIN_ARGS]
    if extra or join.args.get("using"):
        raise NotExpressedError(f"{(extra or ['using'])[0].upper()} of a join")
    side, kind = (join.side or "").upper(), (join.kind or "").upper()
    if kind in ("SEMI", "ANTI") and side in ("", "LEFT"):
        return "", JoinKind(kind)
    if kind not in ("", "INNER", "CROSS", "OUTER") or side not in _KINDS:
        raise NotExpressedError(f"{side} {kind} JOIN".strip())
    return side, _KINDS[side]


def _inner(elements: list[Rows], terms: list[exp.Expr], where: list[exp.Expr]) -> Rows:
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
    operator = joined(left.operator, right.operator, kind, *condition(left, right, terms))
    names = left.names if kind.one_sided else {**left.names, **right.names}
    return passing(Rows(operator, names), timed)


def _is_timed(term: exp.Expr) -> bool:
    return any(each.name.lower() == "getvariable" for each in term.find_all(exp.Anonymous))


def condition(
    left: Rows, right: Rows, terms: list[exp.Expr]
) -> tuple[tuple[Equality, ...], tuple[str, ...]]:
    """The equalities among the terms of a join's condition, and the SQL of the others."""
    sides = ((left, LEFT), (right, RIGHT))
    equalities = tuple(_equality(term, sides) for term in terms if is_equality(term, sides))
    rest = [term for term in terms if not is_equality(term, sides) and not _is_true(term)]
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
    return checked(Join(left, right, kind, equalities, residual))


def _is_true(term: exp.Expr) -> bool:
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
    return Equality(*fragments, *names, exact, isinstance(term, exp.NullSafeEQ))


def _unnested(left: Rows, node: exp.Expr, kind: JoinKind, on: list[exp.Expr]) -> Rows:
    if kind not in (JoinKind.INNER, JoinKind.LEFT) or not all(map(_is_true, on)):
        raise NotExpressedError("UNNEST with a condition")
    collections = ", ".join(fragment(each, over(left)) for each in node.expressions)
    alias, names = node.alias_or_name, [each.name for each in node.args["alias"].columns]
    if isinstance(node.args.get("offset"), exp.Identifier):
        names.append(node.args["offset"].name)
    columns = tuple(f"{alias}.{name}" for name in names)
    numbered = " WITH ORDINALITY" if node.args.get("offset") else ""
    table = f"UNNEST({collections}){numbered}"
    unnest = checked(Unnest(left.operator, table, columns, kind is JoinKind.LEFT))
    called = {(alias.lower(), n.lower()): c for n, c in zip(names, columns, strict=True)}
    return Rows(unnest, {**left.names, **called})


def _values(node: exp.Values, names: list[str]) -> Operator:
    nothing = ((Rows(ONE_ROW), INPUT),)
    rows = tuple(tuple(fragment(e, nothing) for e in row.expressions) for row in node.expressions)
    if not names:
        raise NotExpressedError("VALUES without names of columns")
    return checked(Values(tuple(names), rows))
