"""Projection: columns computed from each row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from streamhouse.operators.item import Item, listed, mapped_keys, never_null
from streamhouse.operators.operator import INPUT, WEIGHT, Change, Emits, Kept, Key, Operator, plain


@dataclass(frozen=True)
class Project(Operator):
    """Computes `items` from each row of its input."""

    input: Operator
    items: tuple[Item, ...]

    @property
    def inputs(self) -> tuple[Operator, ...]:
        return (self.input,)

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(item.name for item in self.items)

    @cached_property
    def keys(self) -> frozenset[Key]:
        return mapped_keys(self.items, self.input.keys)

    @cached_property
    def not_null(self) -> frozenset[str]:
        return never_null(self.items, self.input.not_null)

    @property
    def expressions(self) -> tuple[str, ...]:
        return tuple(item.sql for item in self.items)

    def _emits(self, inputs: Sequence[Emits]) -> Emits:
        return inputs[0]

    @property
    def keeps(self) -> tuple[Kept, ...]:
        return ()

    @property
    def recomputed(self) -> str:
        return "the time passes" if self.timed else ""

    @property
    def keeps_values(self) -> bool:
        """Whether its columns are those of its input, perhaps with other names and wider types."""
        return all(item.column for item in self.items)

    def whole(self, inputs: Sequence[str]) -> str:
        return f"SELECT {listed(self.items)} FROM {inputs[0]} AS {INPUT}"

    def delta(self, inputs: Sequence[Change]) -> str:
        return f"SELECT {listed(self.items)}, {WEIGHT} FROM {inputs[0].delta} AS {INPUT}"

    def describe(self) -> str:
        computed = (
            item.name if item.column == item.name else f"{plain(item.sql)} AS {item.name}"
            for item in self.items
        )
        return f"project {', '.join(computed)}"
