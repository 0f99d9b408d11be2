"""A part of a query that no other operator expresses: computed as a whole, or by partitions."""

from collections.abc import Sequence
from dataclasses import dataclass

from streamhouse.operators.operator import INPUT, Key, Operator
from streamhouse.sql.expressions.binder import quote


@dataclass(frozen=True)
class QueryBlock(Operator):
    """SQL over the relations `names`, one for each input; `reason`: why it is one.

    Its keys and the columns that are never null are given, as far as they are known. `by` are the
    columns of its one input that divide its rows, if there are partitions.
    """

    sql: str
    names: tuple[str, ...]
    inputs: tuple[Operator, ...] = ()
    columns: tuple[str, ...] = ()
    reason: str = ""
    keys: frozenset[Key] = frozenset()
    not_null: frozenset[str] = frozenset()
    by: tuple[str, ...] | None = None

    @property
    def expressions(self) -> tuple[str, ...]:
        return (self.sql,)

    @property
    def loses(self) -> str:
        if self.by is not None:
            return super().loses
        return f"the result of a subquery changes when rows are added: {self.reason}"

    @property
    def ordered(self) -> str:
        return self.reason if self.by is None else ""

    @property
    def partitions(self) -> tuple[tuple[str, ...], ...] | None:
        return None if self.by is None else (tuple(f"{INPUT}.{quote(name)}" for name in self.by),)

    @property
    def recomputed(self) -> str:
        return self.ordered or super().recomputed

    def whole(self, inputs: Sequence[str]) -> str:
        parts = (
            f"{quote(name)} AS (SELECT * FROM {relation})"
            for name, relation in zip(self.names, inputs, strict=True)
        )
        relations = f"WITH {', '.join(parts)} " if self.names else ""
        columns = ", ".join(map(quote, self.columns))
        return f"{relations}SELECT * FROM ({self.sql}) AS _b ({columns})"

    def describe(self) -> str:
        if self.by is None:
            return f"query: {self.sql}"
        return f"{self.reason} in rows by {', '.join(self.by) or 'nothing'}"
