"""UNNEST of a collection of each row."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from streamhouse.operators.operator import INPUT, WEIGHT, Key, Linear, plain
from streamhouse.sql.expressions.binder import quote


@dataclass(frozen=True)
class Unnest(Linear):
    """Joins each row with the elements of a collection, as the columns `names`.

    `table` is the SQL of the elements, a table function over `INPUT`; `left`: a row without
    elements is kept, with nulls. `series`: the elements of a row differ, and none is null.
    """

    table: str
    names: tuple[str, ...]
    left: bool = False
    series: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.input.columns, *self.names)

    @property
    def expressions(self) -> tuple[str, ...]:
        return (self.table,)

    @cached_property
    def keys(self) -> frozenset[Key]:
        return frozenset(key | {*self.names} for key in self.input.keys if self.series)

    @cached_property
    def not_null(self) -> frozenset[str]:
        return self.input.not_null | ({*self.names} if self.series else set())

    @property
    def _aged(self) -> str:
        return "true"

    def _joined(self, relation: str) -> str:
        names = ", ".join(map(quote, self.names))
        join, on = ("LEFT JOIN", " ON true") if self.left else ("CROSS JOIN", "")
        return f"{relation} AS {INPUT} {join} {self.table} AS _u ({names}){on}"

    def whole(self, inputs: Sequence[str]) -> str:
        return f"SELECT * FROM {self._joined(inputs[0])}"

    def _passed(self, delta: str) -> str:
        columns = ", ".join(map(quote, self.columns))
        return f"SELECT {columns}, {WEIGHT} FROM {self._joined(delta)}"

    def describe(self) -> str:
        return plain(f"unnest {self.table} as {', '.join(self.names)}")
