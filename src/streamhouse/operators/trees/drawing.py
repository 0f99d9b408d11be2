"""Draws a tree of operators as lines of text, for EXPLAIN."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from streamhouse.operators.aggregate import Aggregate
from streamhouse.operators.filter import Filter
from streamhouse.operators.join import Join
from streamhouse.operators.limit import Limit
from streamhouse.operators.operator import Operator, plain
from streamhouse.operators.over import WindowFunction
from streamhouse.operators.project import Project


def drawn(root: Operator) -> list[str]:
    """A line for each operator of a tree: what it is, its key, what it emits, and why it has no
    delta form; inputs below the operators that read them."""
    return list(_lines(root, "", ""))


def _lines(operator: Operator, first: str, rest: str) -> Iterator[str]:
    while isinstance(operator, Project) and operator.keeps_values:
        operator = operator.input
    yield f"{first}{described(operator)}{_facts(operator)}"
    for number, each in enumerate(operator.inputs, 1):
        last = number == len(operator.inputs)
        branch, below = ("└─ ", "   ") if last else ("├─ ", "│  ")
        yield from _lines(each, rest + branch, rest + below)


def described(operator: Operator) -> str:
    """What an operator is, with the expressions of columns that have no name in the query."""
    known = {name: text for each in operator.inputs for name, text in _expressions(each).items()}
    return re.sub(r"\b_[agw]\d+\b", lambda name: known.get(name[0], name[0]), operator.describe())


def _facts(operator: Operator) -> str:
    keys = sorted(operator.keys, key=lambda key: (len(key), sorted(key)))
    key = f"key {', '.join(sorted(keys[0])) or 'none: one row'}; " if keys else ""
    reason = f"; no delta form: {operator.recomputed}" if operator.recomputed else ""
    return f" [{key}emits {operator.emits}{reason}]"


def _expressions(operator: Operator) -> Mapping[str, str]:
    """The expressions of the columns of an operator that have no name in the query."""
    match operator:
        case Aggregate():
            return {item.name: plain(item.sql) for item in (*operator.by, *operator.aggregates)}
        case WindowFunction():
            return {**_expressions(operator.input), operator.item.name: plain(operator.item.sql)}
        case Filter() | Limit():
            return _expressions(operator.input)
        case Project() if operator.keeps_values:
            return _expressions(operator.input)
        case Join():
            return {**_expressions(operator.left), **_expressions(operator.right)}
    return {}
