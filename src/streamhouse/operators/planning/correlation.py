"""Subqueries that read columns of the query around them, for all its rows at once.

The different values of these columns are the first relation of the subquery. Its operators keep
them: they are columns of its groups, its partitions and its result. A join by them, nulls being
equal, gives the rows of the subquery for each row of the query around it.
"""

from sqlglot import exp

from streamhouse.operators.join import Equality, Join, JoinKind
from streamhouse.operators.operator import LEFT, RIGHT, Operator
from streamhouse.operators.planning.accumulation import Call, aggregated, distinct
from streamhouse.operators.planning.rows import (
    NotExpressedError,
    Rows,
    Sources,
    checked,
    free_columns,
    reference,
)  # fmt: skip
from streamhouse.operators.planning.select_list import aggregates_in, is_aggregate
from streamhouse.operators.project import Item, Project
from streamhouse.sql.expressions.binder import generate, quote


def for_all(
    query: exp.Expr, outer: Rows, sources: Sources
) -> tuple[Rows, list[exp.Expr], list[exp.Expr]]:
    """The rows of a subquery for all rows of `outer`, the conditions that relate them, and its
    columns."""
    query, number = query.copy(), next(sources.numbers)
    read = free_columns(query, outer)
    around = {id(node) for node, _ in read}
    for call in filter(is_aggregate, query.find_all(exp.Func)):
        columns = {id(each) for each in call.find_all(exp.Column)}
        if columns and columns <= around:
            raise NotExpressedError("an aggregate of the query around a subquery")
    named = {column: f"_s{number}.{column}" for _, column in read}
    items = tuple(Item.of(column, name) for column, name in named.items())
    domain = distinct(checked(Project(outer.operator, items)))
    terms: dict[str, exp.Expr] = {}
    for node, column in read:
        given = reference(named[column])
        terms[column] = exp.NullSafeEQ(this=node.copy(), expression=given.copy())
        node.replace(given)
    inner = sources.operator(query, Rows(domain))
    return Rows(inner), list(terms.values()), list(map(reference, inner.columns[: -len(named)]))


def single(operator: Operator, by: list[str]) -> Operator:
    """The one row for each value of the columns `by`; an error if there are several."""
    if operator.has_key(by):
        return operator
    items, values = tuple(map(Item.of, by)), [c for c in operator.columns if c not in by]
    count = exp.Count(this=exp.Star())
    calls: list[Call] = [(Item("_rows", "COUNT(*)", "", frozenset()), count)]
    for name in values:
        value = exp.Min(this=reference(name))
        calls.append((Item(name, generate(value)), value))
    groups = aggregated(Rows(operator), items, calls, False)
    message = "a scalar subquery returns more than one row"
    found = (
        Item(name, f"CASE WHEN _rows > 1 THEN error('{message}') ELSE {Item.of(name).sql} END")
        for name in values
    )
    return checked(Project(groups, (*items, *found)))


def with_all(domain: Rows, rows: Rows, nodes: list[exp.Expr]) -> tuple[Rows, list[exp.Expr]]:
    """The rows with one more for each value of the domain that has none, which no aggregate of the
    expressions counts: there is a group for each value."""
    given, mark = domain.operator.columns, "_is"
    items = (*map(Item.of, rows.operator.columns), Item(mark, "true"))
    kept = tuple(Item.of(name, f"_d.{name}") for name in given)
    equal = tuple(
        Equality(f"{LEFT}.{quote(f'_d.{name}')}", f"{RIGHT}.{quote(name)}", nulls=True)
        for name in given
    )
    left, right = Project(domain.operator, kept), Project(rows.operator, items)
    joined = checked(Join(left, right, JoinKind.LEFT, equal))
    back = {f"_d.{name}": name for name in given}
    columns = [name for name in joined.columns if name not in given]
    all_ = checked(Project(joined, tuple(Item.of(name, back.get(name, name)) for name in columns)))
    found = []
    for node in nodes:
        root = exp.Paren(this=node.copy())
        for call in aggregates_in(root):
            test: exp.Expr = reference(mark)
            inner = call
            if isinstance(call, exp.Filter):
                test, inner = exp.and_(test, call.expression.this.copy()), call.this
            where = exp.Where(this=test)
            call.replace(exp.Filter(this=inner.copy(), expression=where))
        found.append(root.this)
    return Rows(all_, rows.names), found
