"""GROUP BY with its grouping sets, aggregates, OVER and LIMIT: the operators after WHERE."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import reduce
from itertools import combinations, count, product

from sqlglot import exp

from streamhouse.operators.limit import Limit
from streamhouse.operators.operator import Operator
from streamhouse.operators.over import Over
from streamhouse.operators.planning.accumulation import Call, aggregated
from streamhouse.operators.planning.rows import (
    NotExpressedError,
    Rows,
    checked,
    fragment,
    item,
    over,
    passing,
    plain_column,
    reference,
)  # fmt: skip
from streamhouse.operators.project import Item, Project
from streamhouse.operators.set_operation import SetKind, SetOperation
from streamhouse.sql import select_parts
from streamhouse.sql.batch import total_order
from streamhouse.sql.expressions.binder import aggregate_names, function_name, is_aggregate_function
from streamhouse.sql.select_parts import group_expressions

_WRAPPERS = (exp.Filter, exp.WithinGroup, exp.IgnoreNulls, exp.RespectNulls)
_RANKS = {"ROW_NUMBER", "RANK", "DENSE_RANK"}
_ANY_ORDER = {
    "sum", "fsum", "avg", "favg", "count", "count_star", "count_if", "countif", "min", "max",
    "bool_and", "bool_or", "grouping", "grouping_id", "approx_count_distinct", "quantile_cont",
    "quantile_disc", "arg_min", "arg_max", "bit_and", "bit_or", "bit_xor", "histogram",
}  # fmt: skip
"""Aggregates whose result does not depend on the order of rows."""
_OF_NO_ROWS = {
    "count", "count_star", "count_if", "countif", "approx_count_distinct", "grouping",
    "grouping_id",
}  # fmt: skip
"""Aggregates that are not NULL if there are no rows."""
_PEERS = {"rank", "dense_rank", "percent_rank", "cume_dist"}
_SETS = (exp.Rollup, exp.Cube, exp.GroupingSets)
_MOST_SETS = 128
_Nodes = tuple[exp.Expr, ...]
"""The expressions of one grouping set."""


def is_aggregate(node: exp.Expr) -> bool:
    """Whether a node is an aggregate, with its FILTER and the like, not of OVER."""
    core = _core(node)
    if isinstance(node.parent, (*_WRAPPERS, exp.Window)) and node.arg_key == "this":
        return False
    return is_aggregate_function(core)


def _core(node: exp.Expr) -> exp.Expr:
    while isinstance(node, _WRAPPERS):
        node = node.this
    return node


def is_null_of_no_rows(node: exp.Expr) -> bool:
    """Whether an expression is an aggregate that is NULL if there are no rows."""
    while type(node) is exp.Cast or isinstance(node, exp.Paren | exp.Filter | exp.WithinGroup):
        node = node.this
    return function_name(node) in aggregate_names() - _OF_NO_ROWS


def aggregates_in(node: exp.Expr) -> list[exp.Expr]:
    """The aggregates of an expression, but for those of its subqueries."""
    own = node.find_ancestor(exp.Query) if not isinstance(node, exp.Query) else node
    found = [each for each in node.find_all(exp.Func, *_WRAPPERS) if is_aggregate(each)]
    return [each for each in found if each.find_ancestor(exp.Query) is own]


def depends_on_order(node: exp.Expr) -> bool:
    """Whether an aggregate depends on the order of rows, as FIRST_VALUE does."""
    core = _core(node)
    return function_name(core) not in _ANY_ORDER and not total_order.is_total(core)


class Grouping:
    """The aggregate of a SELECT: takes the aggregates of expressions, and replaces them.

    The columns `given` are part of each grouping set.
    """

    def __init__(self, rows: Rows, group: exp.Group | None, given: Sequence[exp.Expr] = ()) -> None:
        self._rows, self._group = rows, group
        self._by: list[tuple[exp.Expr, Item]] = []
        self._called: dict[str, Call] = {}
        self._in_order = False
        self._given = list(given)
        for node in (*given, *_expressions(group)):
            name = plain_column(node, rows) or f"_g{len(self._by)}"
            if not any(node == known for known, _ in self._by):
                self._by.append((node, item(name, node, rows)))

    def replaced(self, node: exp.Expr) -> exp.Expr:
        """An expression over the result of the aggregation."""
        root = exp.Paren(this=node.copy())
        self._replace(root.this)
        replaced: exp.Expr = root.this
        return replaced

    def _replace(self, node: exp.Expr) -> None:
        for known, by in self._by:
            if node == known:
                node.replace(reference(by.name))
                return
        if is_aggregate(node):
            node.replace(reference(self._aggregate(node)))
        elif not isinstance(node, exp.Column | exp.Query):
            for child in list(node.iter_expressions()):
                self._replace(child)

    def _aggregate(self, node: exp.Expr) -> str:
        if node.find(exp.Window):
            raise NotExpressedError("OVER within an aggregate")
        sql = fragment(node, over(self._rows))
        if sql not in self._called:
            name = f"_a{len(self._called)}"
            self._called[sql] = item(name, node, self._rows), node.copy()
            self._in_order |= depends_on_order(node)
        return self._called[sql][0].name

    def rows(self) -> Rows:
        """The result of the aggregation, after all calls of `replaced`.

        Only subqueries still call columns of GROUP BY by their names in the query.
        """
        shown = {item.column: item.name for _, item in self._by}
        names = {key: shown[name] for key, name in self._rows.names.items() if name in shown}
        parts = grouping_sets(self._group or exp.Group())
        if len(parts) == 1 and not any(_is_grouping(node) for _, node in self._called.values()):
            return Rows(self._aggregated([item for _, item in self._by]), names)
        if any(node in self._given for nodes in parts for node in nodes):
            raise NotExpressedError("GROUPING SETS of a column around a subquery")
        sets = [self._items([*self._given, *nodes]) for nodes in parts]
        return Rows(self._union(sets), names)

    def _aggregated(self, by: Sequence[Item]) -> Operator:
        calls = [call for call in self._called.values() if not _is_grouping(call[1])]
        return aggregated(self._rows, tuple(by), calls, self._in_order)

    def _union(self, sets: Sequence[Sequence[Item]]) -> Operator:
        """The groups of each set, with NULL for the columns that it lacks."""
        parts = [self._aggregated(each) for each in sets]
        types = {name: kind for part in parts for name, kind in part.types.items()}
        rows = []
        for part, own in zip(parts, sets, strict=True):
            items = [
                Item.of(e.name) if e in own else Item(e.name, f"CAST(NULL AS {types[e.name]})")
                for _, e in self._by
            ]
            for call, node in self._called.values():
                is_grouping = _is_grouping(node)
                items.append(self._grouping(call, node, own) if is_grouping else Item.of(call.name))
            rows.append(checked(Project(part, tuple(items))))
        return reduce(lambda a, b: checked(SetOperation(a, b, SetKind.UNION, True)), rows)

    def _items(self, nodes: Iterable[exp.Expr]) -> list[Item]:
        """The columns of expressions, each once."""
        return list(dict.fromkeys(map(self._item, nodes)))

    def _grouping(self, call: Item, node: exp.Expr, own: Sequence[Item]) -> Item:
        """The value of GROUPING for a set: a bit for each argument, 1 if the set lacks it."""
        arguments = [*([node.this] if isinstance(node.this, exp.Expr) else []), *node.expressions]
        if not all(any(each == known for known, _ in self._by) for each in arguments):
            raise NotExpressedError("GROUPING of another expression")
        bits = ["0" if item in own else "1" for item in map(self._item, arguments)]
        return Item(call.name, f"CAST({int(''.join(bits), 2)} AS BIGINT)", "", frozenset())

    def _item(self, node: exp.Expr) -> Item:
        return next(item for known, item in self._by if known == node)


def _is_grouping(node: exp.Expr) -> bool:
    return function_name(node) in ("grouping", "grouping_id")


def _expressions(group: exp.Group | None) -> list[exp.Expr]:
    """The expressions of GROUP BY, also those of its grouping sets."""
    found = [] if group is None else list(group_expressions(group))
    if any(isinstance(each, exp.Literal) for each in found):
        raise NotExpressedError("GROUP BY of a literal")
    return found


def with_windows(
    rows: Rows, nodes: list[exp.Expr], given: Sequence[exp.Expr] = ()
) -> tuple[Rows, list[exp.Expr]]:
    """The rows with a column for each OVER of the expressions, which are replaced by these.

    Rows that differ in the columns `given` are in different partitions.
    """
    base, operator = rows, rows.operator
    known: dict[str, str] = {}
    replaced = []
    for node in nodes:
        root = exp.Paren(this=node.copy())
        for window in list(root.find_all(exp.Window)):
            if window.find_ancestor(exp.Query, exp.Window):
                raise NotExpressedError("OVER within OVER or within a subquery")
            if window.args.get("alias") or window.find(exp.Query):
                raise NotExpressedError("a named WINDOW")
            parts = [*(each.copy() for each in given), *(window.args.get("partition_by") or ())]
            window.set("partition_by", parts)
            sql = fragment(window, over(base))
            if sql not in known:
                used = set(map(str.lower, operator.columns))
                known[sql] = next(name for n in count() if (name := f"_w{n}") not in used)
                operator = over_rows(operator, known[sql], window, base)
            window.replace(reference(known[sql]))
        replaced.append(root.this)
    return Rows(operator, base.names), replaced


def over_rows(operator: Operator, name: str, window: exp.Window, base: Rows) -> Over:
    partition = window.args.get("partition_by") or ()
    by = tuple(item(f"_p{n}", node, base) for n, node in enumerate(partition))
    rank = function_name(window.this).upper()
    column = item(name, window, base)
    plan = Over(operator, column, by, rank if rank in _RANKS else "")
    known = total_order.is_total(window) or _of_peers(window)
    return plan if known else replace(plan, in_order=True)


def _of_peers(window: exp.Window) -> bool:
    """Whether rows that are alike in ORDER BY have the same value, whatever their order."""
    known = function_name(_core(window.this)) in _PEERS or not depends_on_order(window.this)
    return not total_order.in_rows(window) and known


def grouping_sets(group: exp.Group) -> list[_Nodes]:
    """The sets of a GROUP BY; a plain one has one."""
    clauses: list[exp.Expr] = [*group.expressions]
    for name in ("rollup", "cube", "grouping_sets"):
        clauses += group.args.get(name) or ()
    found = [_joined(sets) for sets in product(*map(_sets, clauses))]
    if len(found) > _MOST_SETS:
        raise NotExpressedError(f"more than {_MOST_SETS} grouping sets")
    return found


def _sets(clause: exp.Expr) -> list[_Nodes]:
    parts = [_nodes(each) for each in clause.expressions] if isinstance(clause, _SETS) else []
    match clause:
        case exp.Rollup():
            return [_joined(parts[:n]) for n in range(len(parts), -1, -1)]
        case exp.Cube():
            sizes = range(len(parts), -1, -1)
            return [_joined(some) for n in sizes for some in combinations(parts, n)]
        case exp.GroupingSets():
            return [found for each in clause.expressions for found in _sets(each)]
    return [_nodes(clause)]


def _nodes(node: exp.Expr) -> _Nodes:
    if isinstance(node, _SETS):
        return ()
    return tuple(node.expressions) if isinstance(node, exp.Tuple) else (node.unnest(),)


def _joined(parts: Iterable[_Nodes]) -> _Nodes:
    return tuple(node for part in parts for node in part)


def limited(
    rows: Rows, tree: exp.Expr, order: list[exp.Ordered], given: list[exp.Expr]
) -> Operator:
    """The first rows of a query, or of each value of the columns `given`."""
    limit, offset = tree.args.get("limit"), tree.args.get("offset")
    if limit is None and offset is None:
        return rows.operator
    most = None
    if isinstance(limit, exp.Fetch):
        most = _count(limit.args.get("count"))
    elif limit is not None:
        most = _count(limit.expression)
    skipped = 0 if offset is None else _count(offset.expression)
    terms = tuple(fragment(term, over(rows)) for term in order)
    in_order = not total_order.is_total(tree)
    first = rows.operator
    if given:
        return _numbered(rows, (skipped, most), order, given, in_order)
    if skipped and most is not None and not in_order:
        # The change of the first rows needs no other rows, and there are few of them.
        first = checked(Limit(first, most + skipped, 0, terms))
    return checked(Limit(first, most, skipped, terms, in_order))


def _count(node: exp.Expr | None) -> int:
    if not isinstance(node, exp.Literal) or not node.is_int:
        raise NotExpressedError("LIMIT of an expression")
    return int(node.name)


def _numbered(
    rows: Rows,
    limits: tuple[int, int | None],
    order: list[exp.Ordered],
    by: Sequence[exp.Expr],
    in_order: bool,
) -> Operator:
    """The rows after the first `limits[0]`, at most `limits[1]`, of each value of columns."""
    skipped, most = limits
    name = "_number"
    number = select_parts.over(exp.RowNumber(), by, order)
    ranked = replace(over_rows(rows.operator, name, number, rows), in_order=in_order)
    bounds = [(exp.LTE, None if most is None else skipped + most), (exp.GT, skipped or None)]
    tests: list[exp.Expr] = [
        kind(this=reference(name), expression=exp.Literal.number(bound))
        for kind, bound in bounds
        if bound is not None
    ]
    found = passing(Rows(checked(ranked)), tests)
    return checked(Project(found.operator, tuple(map(Item.of, rows.operator.columns))))
