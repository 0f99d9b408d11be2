"""DISTINCT: each row once."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from streamhouse.operators.operator import INPUT, Emits, Key, Unary
from streamhouse.sql.expressions.binder import quote


@dataclass(frozen=True)
class Distinct(Unary):
    """The rows of its input, each once."""

    @cached_property
    def keys(self) -> frozenset[Key]:
        return self.input.keys | {frozenset(self.columns)}

    def _emits(self, inputs: Sequence[Emits]) -> Emits:
        return inputs[0] if inputs[0] <= Emits.INSERTS else Emits.CHANGES

    @property
    def partitions(self) -> tuple[tuple[str, ...], ...]:
        return (tuple(f"{INPUT}.{quote(name)}" for name in self.columns),)

    def whole(self, inputs: Sequence[str]) -> str:
        return f"SELECT DISTINCT * FROM {inputs[0]} AS {INPUT}"

    def describe(self) -> str:
        return "distinct"
