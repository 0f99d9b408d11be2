"""UNNEST of a collection of each row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from streamhouse.operators.operator import INPUT, WEIGHT, Change, Emits, Kept, Operator, plain
from streamhouse.sql.expressions.binder import quote


@dataclass(frozen=True)
class Unnest(Operator):
    """Joins each row with the elements of a collection, as the columns `names`.

    `table` is the SQL of the elements, a table function over `INPUT`; `left`: a row without
    elements is kept, with nulls.
    """

    input: Operator
    table: str
    names: tuple[str, ...]
    left: bool = False

    @property
    def inputs(self) -> tuple[Operator, ...]:
        return (self.input,)

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.input.columns, *self.names)

    @cached_property
    def not_null(self) -> frozenset[str]:
        return self.input.not_null

    @property
    def expressions(self) -> tuple[str, ...]:
        return (self.table,)

    def _emits(self, inputs: Sequence[Emits]) -> Emits:
        return inputs[0]

    @property
    def keeps(self) -> tuple[Kept, ...]:
        return ()

    @property
    def recomputed(self) -> str:
        return "the time passes" if self.timed else ""

    def _joined(self, relation: str) -> str:
        names = ", ".join(map(quote, self.names))
        join, on = ("LEFT JOIN", " ON true") if self.left else ("CROSS JOIN", "")
        return f"{relation} AS {INPUT} {join} {self.table} AS _u ({names}){on}"

    def whole(self, inputs: Sequence[str]) -> str:
        return f"SELECT * FROM {self._joined(inputs[0])}"

    def delta(self, inputs: Sequence[Change]) -> str:
        columns = ", ".join(map(quote, self.columns))
        return f"SELECT {columns}, {WEIGHT} FROM {self._joined(inputs[0].delta)}"

    def describe(self) -> str:
        return plain(f"unnest {self.table} as {', '.join(self.names)}")
