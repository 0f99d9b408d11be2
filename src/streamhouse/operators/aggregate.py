"""Aggregation: GROUP BY with aggregate functions, also with several grouping sets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from streamhouse.operators.operator import INPUT, Emits, Key, Unary, plain
from streamhouse.operators.project import Item, listed, never_null


@dataclass(frozen=True)
class Aggregate(Unary):
    """A row for each group: the columns `by`, then those of the aggregates.

    `sets` are the grouping sets as SQL; empty for a plain GROUP BY. Without `by` and `sets` there
    is one group, also of no rows. `in_order`: an aggregate depends on the order of rows.
    """

    by: tuple[Item, ...]
    aggregates: tuple[Item, ...]
    sets: str = ""
    in_order: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(item.name for item in (*self.by, *self.aggregates))

    @cached_property
    def keys(self) -> frozenset[Key]:
        return frozenset() if self.sets else frozenset([frozenset(item.name for item in self.by)])

    @cached_property
    def not_null(self) -> frozenset[str]:
        grouped = () if self.sets else self.by
        return never_null((*grouped, *self.aggregates), self.input.not_null)

    @property
    def expressions(self) -> tuple[str, ...]:
        return tuple(item.sql for item in (*self.by, *self.aggregates))

    def _emits(self, inputs: Sequence[Emits]) -> Emits:
        if self.by and not self.aggregates and not self.sets and inputs[0] is Emits.INSERTS:
            return Emits.INSERTS
        return super()._emits(inputs)

    @property
    def loses(self) -> str:
        called = dict.fromkeys(item.sql.partition("(")[0] for item in self.aggregates)
        return f"{', '.join(called) or 'GROUP BY'} changes when rows are added"

    @property
    def ordered(self) -> bool:
        return self.in_order

    @property
    def partitions(self) -> tuple[tuple[str, ...], ...] | None:
        if self.sets or self.timed or self.in_order:
            return None
        return (tuple(item.sql for item in self.by),)

    @property
    def recomputed(self) -> str:
        if self.timed:
            return super().recomputed
        if self.in_order:
            return "an aggregate depends on the order of rows"
        return "it has several grouping sets" if self.sets else ""

    def whole(self, inputs: Sequence[str]) -> str:
        items = listed((*self.by, *self.aggregates)) or "1 AS _row"
        by = self.sets or ", ".join(item.sql for item in self.by)
        return f"SELECT {items} FROM {inputs[0]} AS {INPUT}{f' GROUP BY {by}' if by else ''}"

    def describe(self) -> str:
        by = self.sets or ", ".join(item.sql for item in self.by)
        called = ", ".join(item.sql for item in self.aggregates)
        return plain(f"aggregate{f' by {by}' if by else ''}{f': {called}' if called else ''}")
