"""Top-N and deduplication: the rows of each partition whose rank is at most N."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from streamhouse.operators.operator import Key, Operator, plain
from streamhouse.operators.over import Over
from streamhouse.sql.expressions.binder import quote


@dataclass(frozen=True)
class TopN(Operator):
    """The rows whose rank, the column of `ranked`, is at most `most`."""

    ranked: Over
    most: int

    @property
    def inputs(self) -> tuple[Operator, ...]:
        return self.ranked.inputs

    @property
    def columns(self) -> tuple[str, ...]:
        return self.ranked.columns

    @cached_property
    def keys(self) -> frozenset[Key]:
        keys = self.ranked.keys
        if self.ranked.rank != "ROW_NUMBER" or not all(item.column for item in self.ranked.by):
            return keys
        partition = frozenset(item.column for item in self.ranked.by)
        number = frozenset[str]() if self.most <= 1 else frozenset([self.ranked.item.name])
        return keys | {partition | number}

    @cached_property
    def not_null(self) -> frozenset[str]:
        return self.ranked.not_null

    @property
    def expressions(self) -> tuple[str, ...]:
        return self.ranked.expressions

    @property
    def loses(self) -> str:
        return self.ranked.loses

    @property
    def ordered(self) -> bool:
        return True

    @property
    def partitions(self) -> tuple[tuple[str, ...], ...] | None:
        return self.ranked.partitions

    @property
    def recomputed(self) -> str:
        return self.ranked.recomputed

    def whole(self, inputs: Sequence[str]) -> str:
        rank = quote(self.ranked.item.name)
        return f"SELECT * FROM ({self.ranked.whole(inputs)}) WHERE {rank} <= {self.most}"

    def describe(self) -> str:
        return plain(f"top {self.most}: {self.ranked.item.sql}")
