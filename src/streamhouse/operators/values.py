"""Rows of literals, or the one row of a SELECT without FROM."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from streamhouse.operators.operator import WEIGHT, Change, Key, Operator
from streamhouse.sql.expressions.binder import quote


@dataclass(frozen=True)
class Values(Operator):
    """Rows of SQL expressions; rows without columns have a column `_row`."""

    names: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return self.names or ("_row",)

    @cached_property
    def keys(self) -> frozenset[Key]:
        return frozenset([Key()]) if len(self.rows) <= 1 else frozenset()

    @property
    def expressions(self) -> tuple[str, ...]:
        return tuple(sql for row in self.rows for sql in row)

    def whole(self, inputs: Sequence[str]) -> str:
        rows = ", ".join(f"({', '.join(row) or '1'})" for row in self.rows)
        names = ", ".join(map(quote, self.columns))
        return f"SELECT * FROM (VALUES {rows}) AS _v ({names})"

    def delta(self, changes: Sequence[Change], result: str = "") -> str:
        if self.timed:
            return super().delta(changes)
        return f"SELECT *, 1 AS {WEIGHT} FROM ({self.whole([])}) WHERE false"

    def describe(self) -> str:
        return f"values: {len(self.rows)} row(s)"
