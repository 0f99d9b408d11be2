"""Filter: WHERE, HAVING, and what is left of ON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from streamhouse.operators.operator import INPUT, Change, Emits, Kept, Key, Operator, plain


@dataclass(frozen=True)
class Filter(Operator):
    """Passes the rows for which a condition is true; the columns `rejects` are not null in them."""

    input: Operator
    condition: str
    rejects: frozenset[str] = frozenset()

    @property
    def inputs(self) -> tuple[Operator, ...]:
        return (self.input,)

    @property
    def columns(self) -> tuple[str, ...]:
        return self.input.columns

    @cached_property
    def keys(self) -> frozenset[Key]:
        return self.input.keys

    @cached_property
    def not_null(self) -> frozenset[str]:
        return self.input.not_null | self.rejects

    @property
    def expressions(self) -> tuple[str, ...]:
        return (self.condition,)

    def _emits(self, inputs: Sequence[Emits]) -> Emits:
        return inputs[0]

    @property
    def keeps(self) -> tuple[Kept, ...]:
        return ()

    @property
    def recomputed(self) -> str:
        return "the time passes" if self.timed else ""

    def whole(self, inputs: Sequence[str]) -> str:
        return f"SELECT * FROM {inputs[0]} AS {INPUT} WHERE {self.condition}"

    def delta(self, inputs: Sequence[Change]) -> str:
        return self.whole([inputs[0].delta])

    def describe(self) -> str:
        return plain(f"filter {self.condition}")
