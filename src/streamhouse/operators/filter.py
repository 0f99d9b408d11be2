"""Filter: WHERE, HAVING, and what is left of ON."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from streamhouse.operators.operator import INPUT, Linear, plain


@dataclass(frozen=True)
class Filter(Linear):
    """Passes the rows for which a condition is true; the columns `rejects` are not null in them."""

    condition: str
    rejects: frozenset[str] = frozenset()

    @cached_property
    def not_null(self) -> frozenset[str]:
        return self.input.not_null | self.rejects

    @property
    def expressions(self) -> tuple[str, ...]:
        return (self.condition,)

    def whole(self, inputs: Sequence[str]) -> str:
        return f"SELECT * FROM {inputs[0]} AS {INPUT} WHERE {self.condition}"

    def _passed(self, delta: str) -> str:
        return self.whole([delta])

    @property
    def is_net(self) -> bool:
        return not self.timed

    def describe(self) -> str:
        return plain(f"filter {self.condition}")
