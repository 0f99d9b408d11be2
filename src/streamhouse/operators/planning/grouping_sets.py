"""GROUPING SETS, ROLLUP and CUBE: the union of an aggregation for each set."""

from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from itertools import combinations, product

from sqlglot import exp

from streamhouse.operators.operator import Operator
from streamhouse.operators.planning.rows import NotExpressedError, checked
from streamhouse.operators.project import Item, Project
from streamhouse.operators.set_operation import SetKind, SetOperation

_KINDS = (exp.Rollup, exp.Cube, exp.GroupingSets)
_MOST = 128
Nodes = tuple[exp.Expr, ...]
"""The expressions of one grouping set."""


def grouping_sets(group: exp.Group) -> list[Nodes]:
    """The sets of a GROUP BY; a plain one has one."""
    clauses: list[exp.Expr] = [*group.expressions]
    for name in ("rollup", "cube", "grouping_sets"):
        clauses += group.args.get(name) or ()
    found = [_joined(sets) for sets in product(*map(_sets, clauses))]
    if len(found) > _MOST:
        raise NotExpressedError(f"more than {_MOST} grouping sets")
    return found


def _sets(clause: exp.Expr) -> list[Nodes]:
    parts = [_nodes(each) for each in clause.expressions] if isinstance(clause, _KINDS) else []
    match clause:
        case exp.Rollup():
            return [_joined(parts[:n]) for n in range(len(parts), -1, -1)]
        case exp.Cube():
            sizes = range(len(parts), -1, -1)
            return [_joined(some) for n in sizes for some in combinations(parts, n)]
        case exp.GroupingSets():
            return [found for each in clause.expressions for found in _sets(each)]
    return [_nodes(clause)]


def _nodes(node: exp.Expr) -> Nodes:
    if isinstance(node, _KINDS):
        return ()
    return tuple(node.expressions) if isinstance(node, exp.Tuple) else (node.unnest(),)


def _joined(parts: Iterable[Nodes]) -> Nodes:
    return tuple(node for part in parts for node in part)


def union(
    sets: Sequence[Sequence[Item]],
    by: Sequence[Item],
    called: Sequence[Item],
    aggregated: Callable[[Sequence[Item]], Operator],
    grouping: Callable[[Item, Sequence[Item]], int | None],
) -> Operator:
    """The columns `by`, NULL where a set lacks them, and `called`, for the groups of each set.

    `grouping` gives the value of a call that only tells which columns a set lacks.
    """
    parts = [aggregated(each) for each in sets]
    types = {name: kind for part in parts for name, kind in part.types.items()}
    rows = []
    for part, own in zip(parts, sets, strict=True):
        items = [
            Item.of(e.name) if e in own else Item(e.name, f"CAST(NULL AS {types[e.name]})")
            for e in by
        ]
        for call in called:
            value = grouping(call, own)
            items.append(Item.of(call.name) if value is None else _constant(call.name, value))
        rows.append(checked(Project(part, tuple(items))))
    return reduce(lambda a, b: checked(SetOperation(a, b, SetKind.UNION, True)), rows)


def _constant(name: str, value: int) -> Item:
    return Item(name, f"CAST({value} AS BIGINT)", "", frozenset())
