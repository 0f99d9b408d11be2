"""Lets window functions over the same partitions be one operator, which keeps its input once."""

from collections import Counter
from collections.abc import Sequence

from streamhouse.operators.filter import Filter
from streamhouse.operators.operator import Operator, Unary, walk
from streamhouse.operators.over import Over, PartitionSteps
from streamhouse.operators.planning.pruning import over_others
from streamhouse.operators.project import Project
from streamhouse.operators.trees.arrangement import is_real


def shared(root: Operator) -> Operator:
    """The tree with the same result in which such window functions are `PartitionSteps`."""
    operators = list(walk(root))
    readers = Counter(id(each) for operator in operators for each in operator.inputs)
    several = {id(each) for each in operators if readers[id(each)] > 1}
    made: dict[int, Operator] = {}
    for each in operators:
        found = over_others(each, made)
        if isinstance(found, Over):
            found = _joined(found, {id(made[number]) for number in several if number in made})
        made[id(each)] = found
    return made[id(root)]


def _joined(over: Over, several: set[int]) -> Operator:
    """A window function together with those below it that it can be computed with."""
    steps, below = [over], over.input
    between: list[Unary] = []
    while isinstance(below, Project | Filter) and id(below) not in several:
        between.insert(0, below)
        below = below.input
    if not isinstance(below, Over | PartitionSteps) or id(below) in several:
        return over
    lower = below.steps if isinstance(below, PartitionSteps) else (below,)
    found = PartitionSteps(below.input, (*lower, *between, *steps))
    return found if _are_within(lower[0], found.steps) and _is_safe(found) else over


def _are_within(first: Unary, steps: Sequence[Unary]) -> bool:
    """Whether the partitions of the last step are within those of the first one."""
    last = steps[-1]
    assert isinstance(first, Over) and isinstance(last, Over)
    own = {item.column for item in last.by}
    for step in reversed(steps[:-1]):
        if isinstance(step, Project):
            sources = {item.name: item.column for item in step.items}
            own = {sources.get(name, "") for name in own}
    whole = {item.column for item in first.by}
    return "" not in whole and whole <= own and bool(whole or not own)


def _is_safe(found: PartitionSteps) -> bool:
    """Whether the steps depend on rows only, and rows that are passed on can be found again."""
    if any(step.timed or step.ordered for step in found.steps):
        return False
    return bool(found.keys) or not any(map(is_real, found.types.values()))
