"""ORDER BY … LIMIT … OFFSET."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from streamhouse.operators.operator import INPUT, Key, Unary, plain


@dataclass(frozen=True)
class Limit(Unary):
    """The first `most` rows after `skipped` ones, in the order of the SQL expressions `order`.

    `in_order`: which rows these are depends on the order of rows that `order` leaves open.
    """

    most: int | None
    skipped: int = 0
    order: tuple[str, ...] = ()
    in_order: bool = False

    @cached_property
    def keys(self) -> frozenset[Key]:
        single = [] if self.most is None or self.most > 1 else [Key()]
        return self.input.keys | frozenset(single)

    @property
    def expressions(self) -> tuple[str, ...]:
        return self.order

    @property
    def loses(self) -> str:
        return "LIMIT loses rows when others take their places"

    @property
    def ordered(self) -> bool:
        return self.in_order

    @property
    def recomputed(self) -> str:
        reason = "LIMIT depends on the order of rows that are alike in ORDER BY"
        return super().recomputed or (reason if self.in_order else "")

    @property
    def partitions(self) -> tuple[tuple[str, ...], ...] | None:
        return ((),)

    def whole(self, inputs: Sequence[str]) -> str:
        order = f" ORDER BY {', '.join(self.order)}" if self.order else ""
        most = "" if self.most is None else f" LIMIT {self.most}"
        skipped = f" OFFSET {self.skipped}" if self.skipped else ""
        return f"SELECT * FROM {inputs[0]} AS {INPUT}{order}{most}{skipped}"

    def describe(self) -> str:
        order = f" by {', '.join(self.order)}" if self.order else ""
        skipped = f", skip {self.skipped}" if self.skipped else ""
        return plain(f"limit {self.most}{skipped}{order}")
