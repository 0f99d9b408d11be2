"""The expressions of a query that may fail for a row, in the order in which they are computed."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from streamhouse.sql.select_parts import (
    branches,
    conjuncts,
    flattened,
    rows_read,
    sources,
    with_expressions,
    without,
)  # fmt: skip

_SAFE = (
    exp.Column, exp.Identifier, exp.Literal, exp.Boolean, exp.Null, exp.Paren, exp.And, exp.Or,
    exp.Not, exp.Predicate, exp.Tuple, exp.Star, exp.Alias, exp.Ordered,
)  # fmt: skip
"""Nodes that fail for no value. (A predicate with a query is not computed as a whole.)"""
_NO_VALUE = (exp.Order, exp.Ordered, exp.WindowSpec, exp.Where, exp.Distinct, exp.Star)
_MOST_SHOWN = 3


@dataclass(frozen=True)
class Suspect:
    """An expression over the rows of `select`, whose own columns do not count.

    `shown` are the names and expressions of the values that identify a row, which `row` calls.
    """

    place: str
    select: exp.Select
    test: exp.Expr
    shown: tuple[tuple[str, exp.Expr], ...]
    row: str = "row"


def suspects(tree: exp.Expr, names: Sequence[str], keys: Sequence[int]) -> Iterator[Suspect]:
    """The suspects of a DuckDB query whose columns are `names`; the `keys` identify its rows."""
    yield from _result(tree, names, keys)
    results = [id(each) for each in branches(tree)]
    for select in reversed(list(tree.find_all(exp.Select, bfs=False))):
        yield from _Block(select, names if id(select) in results else ()).suspects()


def _result(tree: exp.Expr, names: Sequence[str], keys: Sequence[int]) -> Iterator[Suspect]:
    """The columns of the result, with those of the keys as what identifies a row."""
    select = flattened(tree)
    if select is None:
        return
    by_alias = {item.alias: item.unalias() for item in select.expressions}
    items = [
        with_expressions(item.unalias(), by_alias, lateral=True) for item in select.expressions
    ]
    if len(items) < len(names) or any(isinstance(item, exp.Star) for item in items):
        return
    rows = without(select, "order", "limit", "distinct", "offset")
    for at, name in enumerate(names):
        shown = tuple((names[key], items[key]) for key in keys if names[key] != name)
        if shown and _may_fail(items[at]):
            yield Suspect(f"column '{name}'", rows, items[at], shown)


class _Block:
    """One SELECT of the query; `names` are those of its columns, if they are the result's."""

    def __init__(self, select: exp.Select, names: Sequence[str]) -> None:
        self._select, self._names = select, names
        self._rows = rows_read(select)
        self._joins: list[exp.Join] = select.args.get("joins") or []
        self._relations = _relations(select)

    def suspects(self) -> Iterator[Suspect]:
        """Those of joins, WHERE, GROUP BY, what is computed of rows, and then of groups."""
        for at, join in enumerate(self._joins):
            if join.args.get("on") is not None:
                yield from self._joined(at, join)
        clauses = list(self._clauses())
        for place, each in clauses:
            rows = without(self._rows, "where") if place == "WHERE" else self._rows
            for part in _parts(each, self._relations):
                yield Suspect(place, rows, part, _read(part))
            yield from self._correlated(place, each)
        for place, each in clauses:
            yield from self._aggregated(place, each)

    def _clauses(self) -> Iterator[tuple[str, exp.Expr]]:
        """The expressions of each clause but joins, and what errors call it."""
        args = self._select.args
        if args.get("where") is not None:
            yield "WHERE", args["where"].this
        for each in args["group"].expressions if args.get("group") else ():
            yield "GROUP BY", each
        for clause in ("having", "qualify"):
            if args.get(clause) is not None:
                yield clause.upper(), args[clause].this
        for at, item in enumerate(self._select.expressions):
            name = self._names[at] if at < len(self._names) else item.alias_or_name
            inner = not self._names and (not name or name.startswith("EXPR$"))
            yield "a column of a subquery" if inner else f"column '{name}'", item.unalias()
        by_alias = {item.alias: item.unalias() for item in self._select.expressions if item.alias}
        for each in args["order"].expressions if args.get("order") else ():
            yield "ORDER BY", with_expressions(each.this, by_alias, lateral=True)

    def _joined(self, at: int, join: exp.Join) -> Iterator[Suspect]:
        """A condition's parts that read one relation; others on the rows with equal columns."""
        condition = join.args["on"]
        place = f"the condition of the join with '{join.this.alias_or_name}'"
        for name, relation in self._relations.items():
            yield from _alone(place, condition, self._select, name, relation)
        equal = [each for each in conjuncts(condition) if not _may_fail(each)]
        if equal and not condition.find(exp.Select):
            joins = [each.copy() for each in self._joins[: at + 1]]
            joins[-1].set("on", exp.and_(*equal))
            rows = rows_read(self._select, self._select.args["from_"].this, joins)
            for part in _parts(condition, self._relations):
                yield Suspect(place, rows, part, _read(part))

    def _correlated(self, place: str, whole: exp.Expr) -> Iterator[Suspect]:
        """Parts that read one relation of a query around this one."""
        outer = self._select.find_ancestor(exp.Select)
        while isinstance(outer, exp.Select):
            for name, relation in _relations(outer).items():
                if name not in self._relations and relation is not self._select.parent:
                    yield from _alone(place, whole, outer, name, relation)
            outer = outer.find_ancestor(exp.Select)

    def _aggregated(self, place: str, whole: exp.Expr) -> Iterator[Suspect]:
        """An expression over aggregates and window functions, whose values are columns here."""
        if place in ("WHERE", "GROUP BY") or whole.find(exp.Select) or not _may_fail(whole):
            return
        kinds = (exp.Window, exp.AggFunc)
        computed = any(each.find_ancestor(*kinds) is None for each in whole.find_all(*kinds))
        grouped = _grouped(self._select)
        if not computed or (place == "HAVING" and not grouped):
            return
        inner, columns = self._rows.copy(), dict[str, exp.Expr]()
        group = self._select.args.get("group") if grouped else None
        inner.set("group", None if group is None else group.copy())
        having = self._select.args.get("having")
        if having is not None and place != "HAVING":
            inner.set("having", having.copy())

        def named(node: exp.Expr) -> exp.Expr:
            if isinstance(node, (exp.Window, exp.AggFunc, exp.Column)):
                columns.setdefault(node.sql(), node.copy())
                return exp.column(f"a{list(columns).index(node.sql())}", quoted=True)
            return node

        test = whole.copy().transform(named)
        keys = [] if group is None else list(group.expressions)
        known = [(_name(key), key) for key in keys] if grouped else list(_read(whole))
        shown = {f"g{at}": each for at, each in enumerate(known[:_MOST_SHOWN])}
        items = {f"a{at}": each for at, each in enumerate(columns.values())}
        items |= {alias: each for alias, (_, each) in shown.items()}
        inner.set(
            "expressions",
            [exp.alias_(each.copy(), alias, quoted=True) for alias, each in items.items()],
        )
        rows = exp.Select().from_(inner.subquery("groups_"))
        by = tuple((name, exp.column(alias, quoted=True)) for alias, (name, _) in shown.items())
        yield Suspect(place, rows, test, by, "group" if grouped else "row")


def _alone(
    place: str, whole: exp.Expr, select: exp.Select, name: str, relation: exp.Expr
) -> Iterator[Suspect]:
    """The parts of an expression that read no relation but one of a SELECT's."""
    for part in _parts(whole, {name: relation}):
        if part.find(exp.Column):
            yield Suspect(place, rows_read(select, relation), part, _read(part))


def _relations(select: exp.Select) -> dict[str, exp.Expr]:
    return {each.alias_or_name: each for each in sources(select)}


def _parts(whole: exp.Expr, relations: Mapping[str, exp.Expr]) -> Iterator[exp.Expr]:
    """The largest parts of an expression that can be computed from one row of some relations."""
    for each in conjuncts(whole):
        if isinstance(each, (exp.Select, exp.DataType)) or not _may_fail(each):
            continue
        inside = {column.table for column in each.find_all(exp.Column)} <= {"", *relations}
        whole_row = not each.find(exp.Select, exp.AggFunc, exp.Window)
        if inside and whole_row and not isinstance(each, _NO_VALUE):
            yield each
        else:
            for child in each.iter_expressions():
                yield from _parts(child, relations)


def _may_fail(expression: exp.Expr) -> bool:
    return any(not isinstance(node, _SAFE) for node in expression.walk())


def _grouped(select: exp.Select) -> bool:
    having = select.args.get("having")
    own = [*select.expressions, *([] if having is None else [having])]
    aggregates = (each for item in own for each in item.find_all(exp.AggFunc))
    return bool(select.args.get("group")) or any(
        each.find_ancestor(exp.Window, exp.Select) in (None, select) for each in aggregates
    )


def _read(expression: exp.Expr) -> tuple[tuple[str, exp.Expr], ...]:
    """The first columns that an expression reads."""
    columns = {column.sql(): column for column in expression.find_all(exp.Column, bfs=False)}
    return tuple((column.name, column) for column in list(columns.values())[:_MOST_SHOWN])


def _name(key: exp.Expr) -> str:
    return key.alias_or_name or ", ".join(name for name, _ in _read(key)) or "its key"
