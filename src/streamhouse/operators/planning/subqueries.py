"""Subqueries of conditions and expressions, as joins.

IN and EXISTS become semi joins, NOT IN and NOT EXISTS anti joins, and a scalar subquery that reads
no column of the query around it a left join with its one row. Those that read columns of the query
around them are computed for all its rows at once: see `correlation`.
"""

from collections.abc import Callable, Iterable
from itertools import compress

from sqlglot import exp

from streamhouse.operators.aggregate import Aggregate
from streamhouse.operators.filter import Filter
from streamhouse.operators.join import Equality, Join, JoinKind
from streamhouse.operators.operator import LEFT, RIGHT, Operator
from streamhouse.operators.planning.accumulation import distinct
from streamhouse.operators.planning.correlation import for_all, single
from streamhouse.operators.planning.from_clause import FromClause
from streamhouse.operators.planning.joins import (
    combined,
    condition,
    is_equality,
    joined,
    over_input,
)
from streamhouse.operators.planning.rows import (
    NotExpressedError,
    Rows,
    Sources,
    checked,
    comparable,
    fragment,
    free_columns,
    item,
    passing,
    plain_column,
    reference,
    sides_of,
)  # fmt: skip
from streamhouse.operators.planning.select_list import Grouping, aggregates_in, is_null_of_no_rows
from streamhouse.operators.project import Item, Project
from streamhouse.operators.set_operation import SetKind, SetOperation
from streamhouse.sql.batch.row_comparisons import by_exists, tested
from streamhouse.sql.select_parts import conjuncts

_PLAIN = ("expressions", "from_", "joins", "where", "distinct")
"""What a correlated subquery may have."""


class Subqueries:
    """Turns the subqueries of one SELECT into joins."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources

    def filtered(self, rows: Rows, term: exp.Expr) -> Rows | None:
        """The rows for which a condition with a subquery is true; None for another condition."""
        negated = isinstance(term, exp.Not)
        test = term.this.unnest() if negated else term
        kind = JoinKind.ANTI if negated else JoinKind.SEMI
        try:
            if isinstance(test, exp.Exists):
                return self._matched(kind, rows, _body(test.this), None)
            if isinstance(test, exp.In) and test.args.get("query") is not None:
                return self._matched(kind, rows, _body(test.args["query"]), test.this)
        except NotExpressedError:
            pass
        return None

    def _matched(self, kind: JoinKind, rows: Rows, query: exp.Expr, value: exp.Expr | None) -> Rows:
        inner, terms, found = self._inner(query, rows)
        if value is None:
            return combined(kind, rows, inner, terms)
        row = value.unnest()
        values = list(row.expressions) if isinstance(row, exp.Tuple) else [value]
        if any(each.find(exp.Query) for each in values) or len(values) != len(found):
            raise NotExpressedError("IN of a subquery")
        return _membership(kind, rows, inner, terms, values, found)

    def _inner(
        self, query: exp.Expr, rows: Rows, equal: bool = False
    ) -> tuple[Rows, list[exp.Expr], list[exp.Expr]]:
        """The rows of a subquery, its conditions that read columns of `rows`, and its columns.

        `equal`: the conditions are equalities.
        """
        if not free_columns(query, rows):
            own = Rows(self._sources.operator(query))
            return own, [], list(map(reference, own.operator.columns))
        try:
            query = _select(query)
            inner, terms = self._correlated(query, rows)
            if equal:
                _equal_sides(rows, inner, terms)
            return inner, terms, [each.unalias() for each in query.selects]
        except NotExpressedError:
            return for_all(query, rows, self._sources)

    def _correlated(
        self, query: exp.Select, outer: Rows, aggregates: bool = False
    ) -> tuple[Rows, list[exp.Expr]]:
        """The rows of a plain subquery, and its conditions that read columns of `outer`.

        `aggregates`: it may have some.
        """
        extra = [key for key, value in query.args.items() if value and key not in _PLAIN]
        plain = not extra and query.find(exp.Window) is None
        if not plain or (aggregates_in(query) and not aggregates):
            raise NotExpressedError("a correlated subquery with more than WHERE")
        where = query.args.get("where")
        terms = conjuncts(where)
        own = [term for term in terms if not term.find(exp.Query)]
        if len(own) < len(terms):
            raise NotExpressedError("a subquery within a correlated subquery")
        inner = FromClause(self._sources, own, self.with_scalars).rows(query)
        if {alias for alias, _ in inner.names} & {alias for alias, _ in outer.names}:
            raise NotExpressedError("a correlated subquery with an alias of the query around it")
        alone = [sides_of(term, ((inner, RIGHT),)) <= {RIGHT} for term in own]
        inner = passing(inner, list(compress(own, alone)))
        return inner, [term for term, is_alone in zip(own, alone, strict=True) if not is_alone]

    def with_scalars(
        self, rows: Rows, nodes: list[exp.Expr], aggregated: bool = False
    ) -> tuple[Rows, list[exp.Expr]]:
        """The rows with a column for each scalar subquery of the expressions; see the module.

        `aggregated`: only for those within aggregates.
        """
        replaced = []
        for node in nodes:
            root = exp.Paren(this=node.copy())
            while (test := _first(root, aggregated, _is_test)) is not None:
                try:
                    rows, value = self._tested(rows, test)
                except NotExpressedError:
                    found = by_exists(test, self._new_name())
                    if found is None:
                        raise
                    value = found
                test.replace(value)
            while (subquery := _first(root, aggregated, _is_subquery)) is not None:
                rows, value = self._scalar(rows, _body(subquery))
                subquery.replace(value)
            replaced.append(root.this)
        return rows, replaced

    def _tested(self, rows: Rows, test: exp.Expr) -> tuple[Rows, exp.Expr]:
        """The rows with the match of an EXISTS or IN within an expression, and its value."""
        if not isinstance(test, exp.Exists | exp.In):
            raise NotExpressedError("a comparison with ANY or ALL of a subquery")
        name, value = self._new_name(), None if isinstance(test, exp.Exists) else test.this
        query = _body(test.this if value is None else test.args["query"])
        inner, terms, found = self._inner(query, rows, equal=True)
        outside, inside = _equal_sides(rows, inner, terms)
        known = value is None
        if value is not None:
            if len(found) != 1 or isinstance(value.unnest(), exp.Tuple) or value.find(exp.Query):
                raise NotExpressedError("IN of several columns within an expression")
            equal = _same(rows, inner, value, found[0])
            known = _never_null([equal], rows, inner)
            outside, inside = [*outside, value], [*inside, found[0]]
        if not known and terms:
            raise NotExpressedError("IN of a correlated subquery within an expression")
        if not inside:  # All rows match, or none.
            outside, inside = [exp.true()], [exp.true()]
        match = Item(f"{name}m", "true", "", frozenset())
        found_keys = distinct(_keyed(inner, inside, name))
        items = (*map(Item.of, found_keys.columns), match)
        matched = _looked_up(rows, checked(Project(found_keys, items)), outside, name)
        is_matched = exp.Not(this=exp.Is(this=reference(match.name), expression=exp.Null()))
        if known:
            return matched, exp.Paren(this=is_matched)
        unknown = distinct(_marks(inner.operator, equal, f"{name}n"))
        null = Equality(f"(({equal.left}) IS NULL)", f'{RIGHT}."{name}n"', "", f"{name}n", True)
        marked = checked(Join(matched.operator, unknown, JoinKind.LEFT, (null,)))
        is_marked = exp.Not(this=exp.Is(this=reference(f"{name}n"), expression=exp.Null()))
        return Rows(marked, rows.names), tested(is_matched, is_marked)

    def _new_name(self) -> str:
        return f"_s{next(self._sources.numbers)}"

    def _scalar(self, rows: Rows, query: exp.Expr) -> tuple[Rows, exp.Expr]:
        """The rows with the value of a scalar subquery, and the expression of the value."""
        name = self._new_name()
        if not free_columns(query, rows):
            return _beside(rows, self._sources.operator(query), name)
        joined = _per_group if aggregates_in(query) else _single_row
        try:
            query = _select(query)
            inner, terms = self._correlated(query, rows, aggregates=True)
            return joined(rows, inner, terms, query.selects[0], name)
        except NotExpressedError:
            inner, terms, found = for_all(query, rows, self._sources)
            by = [each.expression.name for each in terms]
            return _single_row(rows, Rows(single(inner.operator, by)), terms, found[0], name)


def _select(query: exp.Expr) -> exp.Select:
    if not isinstance(query, exp.Select):
        raise NotExpressedError("a correlated set operation")
    return query


def _first(
    root: exp.Expr, aggregated: bool, is_wanted: Callable[[exp.Expr], bool]
) -> exp.Expr | None:
    """The first wanted node of an expression, or of one of its aggregates."""
    calls = aggregates_in(root) if aggregated else [root]
    kinds = (exp.Subquery, exp.Exists, exp.In, exp.Any, exp.All)
    found = (each for call in calls for each in call.find_all(*kinds))
    own = (each for each in found if each.find_ancestor(exp.Query) is None)
    nodes = (each.parent if isinstance(each, exp.Any | exp.All) else each for each in own)
    return next((each for each in nodes if each is not None and is_wanted(each)), None)


def _is_test(node: exp.Expr) -> bool:
    if isinstance(node, exp.In):
        return node.args.get("query") is not None
    quantified = node.args.get("expression")
    if isinstance(quantified, exp.Any | exp.All):
        return quantified.find(exp.Query) is not None
    return isinstance(node, exp.Exists)


def _is_subquery(node: exp.Expr) -> bool:
    return isinstance(node, exp.Subquery)


def _body(node: exp.Expr) -> exp.Expr:
    """The query within parentheses."""
    while isinstance(node, exp.Subquery) and not node.args.get("with_"):
        node = node.this
    return node


def _beside(rows: Rows, operator: Operator, name: str) -> tuple[Rows, exp.Expr]:
    """The rows with the value of a scalar subquery that reads none of their columns."""
    if not operator.has_key(()):
        operator = single(operator, [])
    scalar = checked(Project(operator, (Item.of(operator.columns[0], name),)))
    while isinstance(operator, Project):
        operator = operator.input
    one = isinstance(operator, Aggregate) and not operator.by
    kind = JoinKind.INNER if one else JoinKind.LEFT
    return Rows(checked(Join(rows.operator, scalar, kind)), rows.names), reference(name)


def _single_row(
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


def _equal_sides(
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
        if not comparable(_type_of(first, rows), _type_of(second, inner)):
            raise NotExpressedError("a comparison of different types")
        safe = isinstance(term, exp.NullSafeEQ)
        outside.append(exp.Paren(this=first.copy()) if safe else first)
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
            f"{name}k{n}", True, isinstance(node, exp.Paren),
        )
        for n, node in enumerate(outside)
    )  # fmt: skip
    if not right.has_key({each.right_column for each in equalities}):
        raise NotExpressedError("a scalar subquery that may have several rows")
    return Rows(checked(Join(rows.operator, right, JoinKind.LEFT, equalities)), rows.names)


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
    equalities, rest = condition(rows, inner, terms)
    if kind is JoinKind.SEMI or _never_null(equal, rows, inner):
        operator = joined(rows.operator, inner.operator, kind, (*equalities, *equal), rest)
    elif not terms and len(equal) == 1:
        operator = _outside(rows.operator, inner.operator, equal[0])
    else:
        # NOT IN is not true for a row if a comparison with any value is unknown.
        test = " AND ".join(f"{each.left} = {each.right}" for each in equal)
        unknown = f"({test}) IS DISTINCT FROM false"
        operator = joined(rows.operator, inner.operator, kind, equalities, (*rest, unknown))
    return Rows(operator, rows.names)


def _never_null(equal: Iterable[Equality], rows: Rows, inner: Rows) -> bool:
    """Whether no side of an equality can be null."""
    left, right = rows.operator.not_null, inner.operator.not_null
    return all(each.left_column in left and each.right_column in right for each in equal)


def _outside(rows: Operator, inner: Operator, equal: Equality) -> Operator:
    """The rows with a value that is not in `inner`: it has no null; any value, if it is empty."""
    alike = Equality(f"(({equal.left}) IS NULL)", f'{RIGHT}."_k0"', "", "_k0", True)
    without = joined(rows, inner, JoinKind.ANTI, (equal,))
    return joined(without, _marks(inner, equal, "_k0"), JoinKind.ANTI, (alike,))


def _marks(inner: Operator, equal: Equality, name: str) -> Operator:
    """For which values IN is unknown without a match: nulls (true) if `inner` has any row, other
    values (false) if it has a null."""
    null = checked(Filter(inner, f"({over_input(equal.right)}) IS NULL"))
    some, nulls = (
        checked(Project(operator, (Item(name, value, "", frozenset()),)))
        for operator, value in ((inner, "true"), (null, "false"))
    )
    return checked(SetOperation(some, nulls, SetKind.UNION, True))


def _same(rows: Rows, inner: Rows, value: exp.Expr, found: exp.Expr) -> Equality:
    """The equality of a value of `rows` and one of `inner`, whose types can be compared."""
    if not comparable(_type_of(value, rows), _type_of(found, inner)):
        raise NotExpressedError("IN of another type")
    sides = fragment(value, ((rows, LEFT),)), fragment(found, ((inner, RIGHT),))
    return Equality(*sides, plain_column(value, rows), plain_column(found, inner), True)


def _type_of(node: exp.Expr, rows: Rows) -> str:
    """The DuckDB type of an expression over rows."""
    return checked(Project(rows.operator, (item("value", node, rows),))).types["value"]
