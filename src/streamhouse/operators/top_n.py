"""Top-N and deduplication: the rows of each partition whose rank is at most N."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from sqlglot import exp, parse_one

from streamhouse.operators.limit import FirstRows
from streamhouse.operators.operator import Key, Leading, plain
from streamhouse.operators.over import WindowFunction
from streamhouse.sql.expressions.binder import quote


@dataclass(frozen=True)
class TopN(FirstRows, WindowFunction):
    """The rows whose rank, the column of the window function, is at most `most`."""

    most: int = 1

    @cached_property
    def keys(self) -> frozenset[Key]:
        if self.rank != "ROW_NUMBER" or not all(item.column for item in self.by):
            return self.input.keys
        partition = frozenset(item.column for item in self.by)
        number = frozenset[str]() if self.most <= 1 else frozenset([self.item.name])
        return self.input.keys | {partition | number}

    @property
    def _follows(self) -> bool:
        return not (self.in_order or self.timed)

    @cached_property
    def _leading(self) -> Leading | None:
        window = parse_one(self.item.sql, dialect="duckdb").find(exp.Window)
        order = None if window is None else window.args.get("order")
        # More rows than `most` may have a dense rank that is small enough.
        if order is None or self.rank == "DENSE_RANK":
            return None
        return Leading.ordered(order.expressions[0], self.most, self.input.not_null)

    def whole(self, inputs: Sequence[str]) -> str:
        rank = quote(self.item.name)
        return f"SELECT * FROM ({super().whole(inputs)}) WHERE {rank} <= {self.most}"

    def describe(self) -> str:
        return plain(f"top {self.most}: {self.item.sql}")
