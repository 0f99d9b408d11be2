"""Draws a tree of operators as lines of text, for EXPLAIN."""

import re
from collections.abc import Iterator, Mapping

from streamhouse.operators.aggregate import Aggregate
from streamhouse.operators.filter import Filter
from streamhouse.operators.join import Join
from streamhouse.operators.limit import Limit
from streamhouse.operators.operator import RESULT, Binary, Kept, Operator, plain, walk
from streamhouse.operators.over import PartitionSteps, WindowFunction
from streamhouse.operators.project import Project
from streamhouse.operators.trees.compiled_tree import obstacle, shared


def drawn(root: Operator) -> list[str]:
    """A line for each operator of a tree: what it is, its key, what it emits, and what it keeps, or
    why it is recomputed; inputs below the operators that read them."""
    return list(_lines(shared(root), "", ""))


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
    columns = operator.shortest_key
    key = "" if columns is None else f"key {', '.join(columns) or 'none: one row'}; "
    reason = operator.recomputed or obstacle(operator)
    if reason:
        return f" [{key}emits {operator.emits}; recomputed: {reason}]"
    kept_rows = sorted(operator.keeps, key=lambda each: each.input)
    kept = " and ".join(_kept(operator, each) for each in kept_rows)
    return f" [{key}emits {operator.emits}{f'; keeps {kept}' if kept else ''}]"


def _kept(operator: Operator, kept: Kept) -> str:
    """The rows that an operator keeps, in words."""
    if kept.input == RESULT:
        rows, source = "its result", operator
    else:
        several = isinstance(operator, Binary)
        rows = f"its {('left', 'right')[kept.input]} input" if several else "its input"
        source = operator.inputs[kept.input]
    if kept.by:
        return f"{rows} by {', '.join(map(plain, kept.by))}"
    if kept.where:
        return f"{rows}, read for rows that the time changes"
    if kept.rare:
        return f"{rows}, read when a row of the result leaves"
    return rows if source.has_key(()) else f"all rows of {rows}"


def whole_reason(root: Operator) -> str:
    """Why each refresh recomputes the whole result of a tree; empty if changes are enough."""
    for each in walk(root):
        reason = each.recomputed or obstacle(each)
        if reason:
            return f"{described(each)}: {reason}"
        sources = {RESULT: each, **dict(enumerate(each.inputs))}
        # A join without an equality reads one side, if the other one changes.
        kept_rows = () if isinstance(each, Join) else each.keeps
        read = (sources[kept.input] for kept in kept_rows if kept.whole)
        if any(not source.has_key(()) and not source.reduced for source in read):
            return f"{described(each)}: a change of any row may concern all others"
    return ""


def _expressions(operator: Operator) -> Mapping[str, str]:
    """The expressions of the columns of an operator that have no name in the query."""
    match operator:
        case Aggregate():
            return {item.name: plain(item.sql) for item in (*operator.by, *operator.aggregates)}
        case WindowFunction():
            return {**_expressions(operator.input), operator.item.name: plain(operator.item.sql)}
        case PartitionSteps():
            return _expressions(operator.steps[-1])
        case Filter() | Limit():
            return _expressions(operator.input)
        case Project() if operator.keeps_values:
            return _expressions(operator.input)
        case Join():
            return {**_expressions(operator.left), **_expressions(operator.right)}
    return {}
