"""FROM and JOIN: the rows of a SELECT before WHERE."""

from collections.abc import Callable, Iterator

from sqlglot import exp

from streamhouse.operators.join import JoinKind
from streamhouse.operators.operator import INPUT, Operator
from streamhouse.operators.planning.correlation import for_all
from streamhouse.operators.planning.joins import combined, inner_join, is_true
from streamhouse.operators.planning.rows import (
    RESERVED,
    NotExpressedError,
    Rows,
    Sources,
    check_args,
    checked,
    fragment,
    free_columns,
    over,
)  # fmt: skip
from streamhouse.operators.project import Item, Project
from streamhouse.operators.scan import Scan
from streamhouse.operators.unnest import Unnest
from streamhouse.operators.values import Values
from streamhouse.sql.select_parts import conjuncts

_ELEMENT_ARGS = ("this", "alias", "joins", "expressions", "offset", "outer")
_JOIN_ARGS = ("this", "on", "side", "kind")
_KINDS = {"": JoinKind.INNER, "LEFT": JoinKind.LEFT, "RIGHT": JoinKind.LEFT, "FULL": JoinKind.FULL}
Scalars = Callable[[Rows, list[exp.Expr]], tuple[Rows, list[exp.Expr]]]
"""Gives rows a column for each subquery of expressions, and the expressions over these rows."""
ONE_ROW = Values((), ((),))
"""The row of a SELECT without FROM."""


class FromClause:
    """Builds the rows of one SELECT's FROM.

    `where` are the conditions of WHERE; those that joins take over are removed. `scalars` gives
    columns for the subqueries of conditions. `domain` is the first relation of a subquery that
    reads its columns.
    """

    def __init__(
        self,
        sources: Sources,
        where: list[exp.Expr],
        scalars: Scalars,
        domain: Rows | None = None,
    ) -> None:
        self._sources, self._where = sources, where
        self._scalars, self._domain = scalars, domain
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
        return inner_join([self._domain, self._joined(from_.this, joins)], [], self._where)

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
        rest = ((each.this, *_kind(each), conjuncts(each.args.get("on"))) for each in joins)
        for node, side, kind, on in ((first, "", JoinKind.INNER, []), *rest):
            dependent = self._dependent(node, elements, side)
            if dependent is None and kind is JoinKind.INNER:
                elements.append(self._element(node))
                # A subquery of an inner join's condition may as well be in WHERE.
                for term in on:
                    (where if movable and term.find(exp.Query) else terms).append(term)
                continue
            left = inner_join(elements, terms, where) if elements else Rows(ONE_ROW)
            if dependent is None:
                right = self._element(node)
                sides = (right, left) if side == "RIGHT" else (left, right)
                elements, terms = [combined(kind, *self._without_subqueries(*sides, on))], []
            else:
                elements, terms = [dependent(left, node, kind, on)], []
        return inner_join(elements, terms, where)

    def _without_subqueries(
        self, left: Rows, right: Rows, on: list[exp.Expr]
    ) -> tuple[Rows, Rows, list[exp.Expr]]:
        """The sides of an outer join and its terms; a subquery is a column of the side it reads."""
        found = []
        for term in on:
            if term.find(exp.Query):
                tests = list(_tests(term))
                if not any(free_columns(each, right) for each in tests):
                    left, (term,) = self._scalars(left, [term])
                elif not any(free_columns(each, left) for each in tests):
                    right, (term,) = self._scalars(right, [term])
                else:
                    raise NotExpressedError("a subquery of an outer join that reads both sides")
            found.append(term)
        return left, right, found

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
        inner, terms, found = for_all(node.this, left, self._sources)
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
        check_args(node, _ELEMENT_ARGS, " in FROM")
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
                operator = self._sources.operator(node.this.unnest())
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


def _tests(term: exp.Expr) -> Iterator[exp.Expr]:
    """The subqueries of a condition, with the values that IN, ANY and ALL compare."""
    for query in term.copy().find_all(exp.Query):
        if query.find_ancestor(exp.Query) is None:
            test = query.find_ancestor(exp.Any, exp.All) or query
            compared = test is not query or isinstance(query.parent, exp.In)
            yield test.parent if compared and test.parent is not None else query


def _is_outer(join: exp.Join) -> bool:
    return (join.side or "").upper() in ("RIGHT", "FULL")


def _kind(join: exp.Join) -> tuple[str, JoinKind]:
    """The side and the kind of a join."""
    check_args(join, _JOIN_ARGS, " of a join")
    side, kind = (join.side or "").upper(), (join.kind or "").upper()
    if kind in ("SEMI", "ANTI") and side in ("", "LEFT"):
        return "", JoinKind(kind)
    if kind not in ("", "INNER", "CROSS", "OUTER") or side not in _KINDS:
        raise NotExpressedError(f"{side} {kind} JOIN".strip())
    return side, _KINDS[side]


def _unnested(left: Rows, node: exp.Expr, kind: JoinKind, on: list[exp.Expr]) -> Rows:
    if kind not in (JoinKind.INNER, JoinKind.LEFT) or not all(map(is_true, on)):
        raise NotExpressedError("UNNEST with a condition")
    collections = ", ".join(fragment(each, over(left)) for each in node.expressions)
    alias, names = node.alias_or_name, [each.name for each in node.args["alias"].columns]
    if isinstance(node.args.get("offset"), exp.Identifier):
        names.append(node.args["offset"].name)
    columns = tuple(f"{alias}.{name}" for name in names)
    numbered = " WITH ORDINALITY" if node.args.get("offset") else ""
    table = f"UNNEST({collections}){numbered}"
    series = kind is JoinKind.INNER and node.expressions[0].name == "RANGE"
    unnest = checked(Unnest(left.operator, table, columns, kind is JoinKind.LEFT, series))
    called = {(alias.lower(), n.lower()): c for n, c in zip(names, columns, strict=True)}
    return Rows(unnest, {**left.names, **called})


def _values(node: exp.Values, names: list[str]) -> Operator:
    nothing = ((Rows(ONE_ROW), INPUT),)
    rows = tuple(tuple(fragment(e, nothing) for e in row.expressions) for row in node.expressions)
    if not names:
        raise NotExpressedError("VALUES without names of columns")
    return checked(Values(tuple(names), rows))
