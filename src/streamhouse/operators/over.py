"""OVER: columns computed from the rows of each row's partition."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from streamhouse.operators.operator import INPUT, Key, Unary, plain
from streamhouse.operators.project import Item, never_null

_TIES = "OVER depends on the order of rows that are alike in its ORDER BY"


@dataclass(frozen=True)
class WindowFunction(Unary):
    """Computes the column of a window function, and adds it to the input's.

    `by` are the expressions of PARTITION BY, `rank` the function if it ranks: `ROW_NUMBER`, `RANK`,
    `DENSE_RANK`. `in_order`: the column depends on the order of rows that ORDER BY leaves open.
    """

    item: Item
    by: tuple[Item, ...] = ()
    rank: str = ""
    in_order: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.input.columns, self.item.name)

    @cached_property
    def not_null(self) -> frozenset[str]:
        return self.input.not_null | never_null([self.item], self.input.not_null)

    @property
    def expressions(self) -> tuple[str, ...]:
        return (self.item.sql,)

    @property
    def loses(self) -> str:
        return f"{self.item.sql.partition('(')[0]} OVER changes when rows are added"

    @property
    def ordered(self) -> str:
        return _TIES if self.in_order else ""

    @property
    def partitions(self) -> tuple[tuple[str, ...], ...] | None:
        return (tuple(item.sql for item in self.by),)

    def whole(self, inputs: Sequence[str]) -> str:
        return f"SELECT {INPUT}.*, {self.item.aliased} FROM {inputs[0]} AS {INPUT}"


@dataclass(frozen=True)
class Over(WindowFunction):
    """All rows of its input, with the column of a window function."""

    def describe(self) -> str:
        return plain(f"over: {self.item.sql}")


@dataclass(frozen=True)
class PartitionSteps(Unary):
    """Operators of which each reads the one before it, and none rows of another partition.

    Their input is kept once. The first of the `steps` reads it, and says what the partitions are.
    """

    steps: tuple[Unary, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return self.steps[-1].columns

    @cached_property
    def keys(self) -> frozenset[Key]:
        return self.steps[-1].keys

    @cached_property
    def not_null(self) -> frozenset[str]:
        return self.steps[-1].not_null

    @property
    def expressions(self) -> tuple[str, ...]:
        return tuple(sql for step in self.steps for sql in step.expressions)

    @property
    def loses(self) -> str:
        return self.steps[0].loses

    @property
    def partitions(self) -> tuple[tuple[str, ...], ...] | None:
        return self.steps[0].partitions

    def whole(self, inputs: Sequence[str]) -> str:
        relation = inputs[0]
        for step in self.steps:
            relation = f"({step.whole([relation])})"
        return relation[1:-1]

    def describe(self) -> str:
        computed = (step.item.sql for step in self.steps if isinstance(step, Over))
        return plain(f"over: {', '.join(computed)}")
