"""Leaves out the columns of joins and projections that no operator above reads.

Kept rows get smaller by it, and equal ones among them one row with a count.
"""

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import fields, replace
from typing import Any

from streamhouse.operators.aggregate import Aggregate
from streamhouse.operators.filter import Filter
from streamhouse.operators.join import Join
from streamhouse.operators.operator import INPUT, Operator, walk
from streamhouse.operators.project import Project
from streamhouse.sql.expressions.binder import BindError

_COLUMN = re.compile(r'"?\b(_[ilr])"?\."((?:[^"]|"")+)"')


def pruned(root: Operator) -> Operator:
    """The tree with the same result in which joins and projections have fewer columns.

    What an expression reads is found in its SQL. A tree that cannot be bound then stays as it is.
    """
    operators = list(walk(root))
    needed: dict[int, set[str]] = defaultdict(set)
    needed[id(root)] = set(root.columns)
    for each in reversed(operators):
        for child, columns in zip(each.inputs, _read(each, needed[id(each)]), strict=True):
            needed[id(child)].update(columns)
    made: dict[int, Operator] = {}
    for each in operators:
        inputs = [made[id(below)] for below in each.inputs]
        made[id(each)] = _narrowed(with_inputs(each, inputs), needed[id(each)])
    found = made[id(root)]
    try:
        for each in walk(found):
            _ = each.types
    except BindError:
        return root
    return found


def _read(operator: Operator, needed: set[str]) -> Iterable[Iterable[str]]:
    """The columns of each input that an operator reads for the `needed` ones of its own."""
    match operator:
        case Filter():
            return [needed | _columns(INPUT, [operator.condition])]
        case Project():
            items = [item.sql for item in operator.items if item.name in needed]
            return [_columns(INPUT, items or [operator.items[0].sql])]
        case Join() if not operator.kind.one_sided:
            return [
                needed.intersection(side.columns) | _columns(alias, operator.expressions)
                for side, alias in zip(operator.inputs, operator.aliases, strict=True)
            ]
        case Aggregate():
            steps = [step.argument for step in operator.steps]
            read = _columns(INPUT, [*operator.expressions, *steps])
            return [read, *(each.columns for each in operator.values)]
    return [each.columns for each in operator.inputs]


def _columns(alias: str, expressions: Iterable[str]) -> set[str]:
    found = (match for sql in expressions for match in _COLUMN.finditer(sql))
    return {match[2].replace('""', '"') for match in found if match[1] == alias}


def with_inputs(operator: Operator, inputs: Iterable[Operator]) -> Operator:
    """The operator over other inputs."""
    changed, left = dict[str, Any](), iter(inputs)
    for field in fields(operator):
        value = getattr(operator, field.name)
        if isinstance(value, Operator):
            changed[field.name] = next(left)
        elif isinstance(value, tuple) and value and isinstance(value[0], Operator):
            changed[field.name] = tuple(next(left) for _ in value)
    return replace(operator, **changed) if changed else operator


def _narrowed(operator: Operator, needed: set[str]) -> Operator:
    match operator:
        case Project():
            items = tuple(item for item in operator.items if item.name in needed)
            return replace(operator, items=items or operator.items[:1])
        case Join() if not operator.kind.one_sided:
            left_out = frozenset(operator.columns) - needed
            if left_out < frozenset(operator.columns):
                return replace(operator, left_out=left_out)
    return operator
