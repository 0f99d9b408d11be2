"""A part of a query that no other operator expresses: it is computed as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from streamhouse.operators.operator import Operator
from streamhouse.sql.expressions.binder import quote


@dataclass(frozen=True)
class QueryBlock(Operator):
    """SQL over the relations `names`, one for each input; `reason`: why it is one."""

    sql: str
    names: tuple[str, ...]
    sources: tuple[Operator, ...]
    output: tuple[str, ...]
    reason: str

    @property
    def inputs(self) -> tuple[Operator, ...]:
        return self.sources

    @property
    def columns(self) -> tuple[str, ...]:
        return self.output

    @property
    def expressions(self) -> tuple[str, ...]:
        return (self.sql,)

    @property
    def ordered(self) -> bool:
        return True

    @property
    def recomputed(self) -> str:
        return self.reason

    def whole(self, inputs: Sequence[str]) -> str:
        parts = (
            f"{quote(name)} AS (SELECT * FROM {relation})"
            for name, relation in zip(self.names, inputs, strict=True)
        )
        relations = f"WITH {', '.join(parts)} " if self.names else ""
        columns = ", ".join(map(quote, self.output))
        return f"{relations}SELECT * FROM ({self.sql}) AS _b ({columns})"

    def describe(self) -> str:
        return f"query: {self.sql}"
