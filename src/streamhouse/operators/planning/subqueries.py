"""Subqueries of conditions and expressions, as joins.

IN and EXISTS become semi joins, NOT IN and NOT EXISTS anti joins, and a scalar subquery that reads
no column of the query around it a left join with its one row.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from streamhouse.operators.aggregate import Aggregate
from streamhouse.operators.filter import Filter
from streamhouse.operators.join import Equality, Join, JoinKind
from streamhouse.operators.operator import LEFT, RIGHT, Operator
from streamhouse.operators.planning.from_clause import (
    FromClause,
    Sources,
    combined,
    condition,
    is_equality,
    joined,
    over_input,
)  # fmt: skip
from streamhouse.operators.planning.rows import (
    NotExpressedError,
    Rows,
    checked,
    comparable,
    conjuncts,
    fragment,
    item,
    over,
    plain_column,
    reference,
    sides_of,
)  # fmt: skip
from streamhouse.operators.planning.select_list import (
    Grouping,
    aggregates_in,
    function_name,
)  # fmt: skip
from streamhouse.operators.project import Item, Project
from streamhouse.operators.set_operation import SetKind, SetOperation

_PLAIN = ("expressions", "from_", "joins", "where", "distinct")
"""What a correlated subquery may have."""


class Subqueries:
    """Turns the subqueries of one SELECT into joins; `query` builds the tree of a subquery."""

    def __init__(self, sources: Sources, query: Callable[[exp.Expr], Operator]) -> None:
        self._sources, self._query = sources, query
        self._scalars = 0

    def filtered(self, rows: Rows, term: exp.Expr) -> Rows | None:
        """The rows for which a condition with a subquery is true; None for another condition."""
        negated = isinstance(term, exp.Not)
        test = term.this.unnest() if negated else term
        kind = JoinKind.ANTI if negated else JoinKind.SEMI
        if isinstance(test, exp.Exists):
            return self._matched(kind, rows, _body(test.this), None)
        if isinstance(test, exp.In) and test.args.get("query") is not None:
            return self._matched(kind, rows, _body(test.args["query"]), test.this)
        return None

    def _matched(self, kind: JoinKind, rows: Rows, query: exp.Expr, value: exp.Expr | None) -> Rows:
        inner: Rows | None = None
        terms: list[exp.Expr] = []
        if isinstance(query, exp.Select):
            inner, terms = self._correlated(query, rows)
            found = [each.unalias() for each in query.selects]
        if inner is None:
            inner = Rows(self._query(query))
            found = list(map(reference, inner.operator.columns))
        if value is None:
            return combined(kind, rows, inner, terms)
        row = value.unnest()
        values = list(row.expressions) if isinstance(row, exp.Tuple) else [value]
        if any(each.find(exp.Query) for each in values) or len(values) != len(found):
            raise NotExpressedError("IN of a subquery")
        return _membership(kind, rows, inner, terms, values, found)

    def _correlated(
        self, query: exp.Select, outer: Rows, aggregates: bool = False
    ) -> tuple[Rows | None, list[exp.Expr]]:
        """The rows of a subquery that reads columns of `outer`, and the conditions that do.

        None if it reads none. `aggregates`: it may have some.
        """
        if not _reads(query, outer):
            return None, []
        extra = [key for key, value in query.args.items() if value and key not in _PLAIN]
        if extra or query.find(exp.Window) or (aggregates_in(query) and not aggregates):
            raise NotExpressedError("a correlated subquery with more than WHERE")
        where = query.args.get("where")
        terms = list(conjuncts(where.this if where is not None else None))
        own = [term for term in terms if not term.find(exp.Query)]
        if len(own) < len(terms):
            raise NotExpressedError("a subquery within a correlated subquery")
        inner = FromClause(self._sources, self._query, own).rows(query)
        if {alias for alias, _ in inner.names} & {alias for alias, _ in outer.names}:
            raise NotExpressedError("a correlated subquery with an alias of the query around it")
        correlated = []
        for term in own:
            if sides_of(term, ((inner, RIGHT),)) <= {RIGHT}:
                condition = fragment(term, over(inner))
                inner = Rows(checked(Filter(inner.operator, condition)), inner.names)
            else:
                correlated.append(term)
        return inner, correlated

    def with_scalars(
        self, rows: Rows, nodes: list[exp.Expr], aggregated: bool = False
    ) -> tuple[Rows, list[exp.Expr]]:
        """The rows with a column for each scalar subquery of the expressions; see the module.

        `aggregated`: only for those within aggregates.
        """
        replaced = []
        for node in nodes:
            root = exp.Paren(this=node.copy())
            while (subquery := _first(root, aggregated)) is not None:
                if isinstance(subquery.parent, exp.In | exp.Exists):
                    raise NotExpressedError("IN or EXISTS within an expression")
                rows, value = self._scalar(rows, _body(subquery))
                subquery.replace(value)
            replaced.append(root.this)
        return rows, replaced

    def _scalar(self, rows: Rows, query: exp.Expr) -> tuple[Rows, exp.Expr]:
        """The rows with the value of a scalar subquery, and the expression of the value."""
        name = f"_s{self._scalars}"
        self._scalars += 1
        if not isinstance(query, exp.Select):
            return _beside(rows, self._query(query), name)
        inner, terms = self._correlated(query, rows, aggregates=True)
        if inner is None:
            return _beside(rows, self._query(query), name)
        joined = _per_group if aggregates_in(query) else _single
        return joined(rows, inner, terms, query.selects[0], name)


def _first(root: exp.Expr, aggregated: bool) -> exp.Subquery | None:
    """The first subquery of an expression, or of one of its aggregates."""
    calls = aggregates_in(root) if aggregated else [root]
    return next((each for call in calls for each in call.find_all(exp.Subquery)), None)


def _body(node: exp.Expr) -> exp.Expr:
    """The query within parentheses."""
    while isinstance(node, exp.Subquery) and not node.args.get("with_"):
        node = node.this
    return node


def _reads(query: exp.Expr, outer: Rows) -> bool:
    """Whether a subquery has columns of the query around it.

    A name that both have counts: the tree is then built with care, or not at all.
    """
    own = {
        each.alias_or_name.lower()
        for each in query.find_all(exp.Table, exp.Subquery, exp.Values, exp.Unnest)
    }
    columns = [column for column in query.find_all(exp.Column) if column.table]
    return any(
        column.table.lower() not in own and outer.find(column) is not None for column in columns
    )


def _membership(
    kind: JoinKind,
    rows: Rows,
    inner: Rows,
    terms: list[exp.Expr],
    values: list[exp.Expr],
    found: list[exp.Expr],
) -> Rows:
    """The rows with, or without, `values` among those that `found` has in `inner`."""
    equal = tuple(_same(rows, inner, *pair) for pair in zip(values, found, strict=True))
    never = all(
        each.left_column in rows.operator.not_null and each.right_column in inner.operator.not_null
        for each in equal
    )
    equalities, rest = condition(rows, inner, terms)
    if kind is JoinKind.SEMI or never:
        operator = joined(rows.operator, inner.operator, kind, (*equalities, *equal), rest)
    elif not terms and len(equal) == 1:
        operator = _outside(rows.operator, inner.operator, equal[0])
    else:
        # NOT IN is not true for a row if a comparison with any value is unknown.
        test = " AND ".join(f"{each.left} = {each.right}" for each in equal)
        unknown = f"({test}) IS DISTINCT FROM false"
        operator = joined(rows.operator, inner.operator, kind, equalities, (*rest, unknown))
    return Rows(operator, rows.names)


def _outside(rows: Operator, inner: Operator, equal: Equality) -> Operator:
    """The rows with a value that is not in `inner`: it has no null; any value, if it is empty."""
    null = checked(Filter(inner, f"({over_input(equal.right)}) IS NULL"))
    # Rows with a null leave if there is any row, the others if there is a null.
    some, nulls = (
        checked(Project(operator, (Item("_k0", value, "", frozenset()),)))
        for operator, value in ((inner, "true"), (null, "false"))
    )
    mark = checked(SetOperation(some, nulls, SetKind.UNION, True))
    same = Equality(f"(({equal.left}) IS NULL)", f'{RIGHT}."_k0"', "", "_k0", True)
    without = joined(rows, inner, JoinKind.ANTI, (equal,))
    return joined(without, mark, JoinKind.ANTI, (same,))


def _same(rows: Rows, inner: Rows, value: exp.Expr, found: exp.Expr) -> Equality:
    if not comparable(_type(value, rows), _type(found, inner)):
        raise NotExpressedError("IN of another type")
    sides = fragment(value, ((rows, LEFT),)), fragment(found, ((inner, RIGHT),))
    return Equality(*sides, plain_column(value, rows), plain_column(found, inner), True)


def _type(node: exp.Expr, rows: Rows) -> str:
    return checked(Project(rows.operator, (item("value", node, rows),))).types["value"]


def _beside(rows: Rows, operator: Operator, name: str) -> tuple[Rows, exp.Expr]:
    """The rows with the value of a scalar subquery that reads none of their columns."""
    if frozenset[str]() not in operator.keys:
        raise NotExpressedError("a scalar subquery that may have several rows")
    scalar = checked(Project(operator, (Item.of(operator.columns[0], name),)))
    while isinstance(operator, Project):
        operator = operator.input
    one = isinstance(operator, Aggregate) and not operator.by
    kind = JoinKind.INNER if one else JoinKind.LEFT
    return Rows(checked(Join(rows.operator, scalar, kind)), rows.names), reference(name)


def _single(
    rows: Rows, inner: Rows, terms: list[exp.Expr], selected: exp.Expr, name: str
) -> tuple[Rows, exp.Expr]:
    """The rows with the value of the one row of `inner` that each matches; NULL without one."""
    outside, inside = _equal_sides(rows, inner, terms)
    value = item(name, selected.unalias(), inner)
    return _looked_up(rows, _keyed(inner, inside, name, value), outside, name), reference(name)


def _per_group(
    rows: Rows, inner: Rows, terms: list[exp.Expr], selected: exp.Expr, name: str
) -> tuple[Rows, exp.Expr]:
    """The rows with the aggregates of the rows of `inner` that each matches."""
    outside, inside = _equal_sides(rows, inner, terms)
    node = selected.unalias()
    grouping = Grouping(inner, exp.Group(expressions=[each.copy() for each in inside]))
    value, by = grouping.replaced(node), [grouping.replaced(each) for each in inside]
    groups = grouping.rows()
    matched = Item(f"{name}m", "true")
    right = _keyed(groups, by, name, item(name, value, groups), matched)
    joined = _looked_up(rows, right, outside, name)
    if _is_null_of_no_rows(node):
        return joined, reference(name)
    empty = Rows(checked(Filter(inner.operator, "false")), inner.names)
    alone = Grouping(empty, None)
    value = alone.replaced(node)
    nothing = alone.rows()
    default = checked(Project(nothing.operator, (item(f"{name}d", value, nothing),)))
    both = Rows(checked(Join(joined.operator, default, JoinKind.INNER)), rows.names)
    found = exp.If(this=reference(matched.name), true=reference(name))
    return both, exp.Case(ifs=[found], default=reference(f"{name}d"))


def _is_null_of_no_rows(node: exp.Expr) -> bool:
    """Whether an expression is an aggregate that is NULL if there are no rows."""
    while type(node) is exp.Cast or isinstance(node, exp.Paren):
        node = node.this
    return function_name(node) in ("min", "max", "sum", "avg", "fsum", "favg")


def _equal_sides(
    rows: Rows, inner: Rows, terms: list[exp.Expr]
) -> tuple[list[exp.Expr], list[exp.Expr]]:
    """The expressions over `rows` and those over `inner` that the terms compare for equality."""
    sides = ((rows, LEFT), (inner, RIGHT))
    outside, inside = [], []
    for term in terms:
        if not is_equality(term, sides):
            raise NotExpressedError("a correlated scalar subquery with more than equalities")
        first, second = term.this, term.expression
        if sides_of(first, sides) == {RIGHT}:
            first, second = second, first
        if not comparable(_type(first, rows), _type(second, inner)):
            raise NotExpressedError("a comparison of different types")
        outside.append(first)
        inside.append(second)
    return outside, inside


def _keyed(inner: Rows, by: list[exp.Expr], name: str, *values: Item) -> Operator:
    """The rows of a subquery: the columns that are compared, and its value."""
    keys = (item(f"{name}k{n}", node, inner) for n, node in enumerate(by))
    return checked(Project(inner.operator, (*keys, *values)))


def _looked_up(rows: Rows, right: Operator, outside: list[exp.Expr], name: str) -> Rows:
    """The rows with what `_keyed` has for the values of the expressions `outside`."""
    equalities = tuple(
        Equality(
            fragment(node, ((rows, LEFT),)), f'{RIGHT}."{name}k{n}"', plain_column(node, rows),
            f"{name}k{n}", True,
        )
        for n, node in enumerate(outside)
    )  # fmt: skip
    if not any(key <= {each.right_column for each in equalities} for key in right.keys):
        raise NotExpressedError("a scalar subquery that may have several rows")
    return Rows(checked(Join(rows.operator, right, JoinKind.LEFT, equalities)), rows.names)
