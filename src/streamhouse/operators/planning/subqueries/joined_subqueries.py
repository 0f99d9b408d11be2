"""Subqueries of conditions and expressions, as joins.

IN and EXISTS become semi joins, NOT IN and NOT EXISTS anti joins, and a scalar subquery that reads
no column of the query around it a left join with its one row.
"""

from collections.abc import Callable

from sqlglot import exp

from streamhouse.operators.filter import Filter
from streamhouse.operators.join import Equality, Join, JoinKind
from streamhouse.operators.operator import RIGHT, Operator
from streamhouse.operators.planning.accumulation import distinct
from streamhouse.operators.planning.from_clause import FromClause, Sources
from streamhouse.operators.planning.joins import combined
from streamhouse.operators.planning.rows import (
    NotExpressedError,
    Rows,
    checked,
    fragment,
    free_columns,
    over,
    reference,
    sides_of,
)  # fmt: skip
from streamhouse.operators.planning.select_list import aggregates_in
from streamhouse.operators.planning.subqueries.correlation import Within, for_all, single
from streamhouse.operators.planning.subqueries.membership import marks, membership, never_null, same
from streamhouse.operators.planning.subqueries.scalars import (
    beside,
    equal_sides,
    keyed,
    looked_up,
    per_group,
    single_row,
)  # fmt: skip
from streamhouse.operators.project import Item, Project
from streamhouse.sql.batch.row_comparisons import by_exists, tested
from streamhouse.sql.select_parts import conjuncts

_PLAIN = ("expressions", "from_", "joins", "where", "distinct")
"""What a correlated subquery may have."""


class Subqueries:
    """Turns the subqueries of one SELECT into joins.

    `query` builds the tree of a subquery, `within` that of one that reads columns around it.
    """

    def __init__(
        self, sources: Sources, query: Callable[[exp.Expr], Operator], within: Within
    ) -> None:
        self._sources, self._query, self._within = sources, query, within

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
        return membership(kind, rows, inner, terms, values, found)

    def _inner(
        self, query: exp.Expr, rows: Rows, equal: bool = False
    ) -> tuple[Rows, list[exp.Expr], list[exp.Expr]]:
        """The rows of a subquery, its conditions that read columns of `rows`, and its columns.

        `equal`: the conditions are equalities.
        """
        if not free_columns(query, rows):
            own = Rows(self._query(query))
            return own, [], list(map(reference, own.operator.columns))
        try:
            query = _select(query)
            inner, terms = self._correlated(query, rows)
            if equal:
                equal_sides(rows, inner, terms)
            return inner, terms, [each.unalias() for each in query.selects]
        except NotExpressedError:
            return for_all(query, rows, next(self._sources.numbers), self._within)

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
        from_ = FromClause(self._sources, self._query, own, self._within, self.with_scalars)
        inner = from_.rows(query)
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
        outside, inside = equal_sides(rows, inner, terms)
        known = value is None
        if value is not None:
            if len(found) != 1 or isinstance(value.unnest(), exp.Tuple) or value.find(exp.Query):
                raise NotExpressedError("IN of several columns within an expression")
            equal = same(rows, inner, value, found[0])
            known = never_null([equal], rows, inner)
            outside, inside = [*outside, value], [*inside, found[0]]
        if not known and terms:
            raise NotExpressedError("IN of a correlated subquery within an expression")
        if not inside:  # All rows match, or none.
            outside, inside = [exp.true()], [exp.true()]
        match = Item(f"{name}m", "true", "", frozenset())
        found_keys = distinct(keyed(inner, inside, name))
        items = (*map(Item.of, found_keys.columns), match)
        matched = looked_up(rows, checked(Project(found_keys, items)), outside, name)
        is_matched = exp.Not(this=exp.Is(this=reference(match.name), expression=exp.Null()))
        if known:
            return matched, exp.Paren(this=is_matched)
        unknown = distinct(marks(inner.operator, equal, f"{name}n"))
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
            return beside(rows, self._query(query), name)
        joined = per_group if aggregates_in(query) else single_row
        try:
            query = _select(query)
            inner, terms = self._correlated(query, rows, aggregates=True)
            return joined(rows, inner, terms, query.selects[0], name)
        except NotExpressedError:
            inner, terms, found = for_all(query, rows, next(self._sources.numbers), self._within)
            by = [each.expression.name for each in terms]
            return single_row(rows, Rows(single(inner.operator, by)), terms, found[0], name)


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
