"""ORDER BY … LIMIT … OFFSET."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from streamhouse.operators.operator import (
    INPUT,
    RESULT,
    WEIGHT,
    Change,
    Kept,
    Key,
    Unary,
    plain,
)  # fmt: skip
from streamhouse.sql.expressions.binder import quote


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
    def reduced(self) -> bool:
        return self.most is not None or super().reduced

    @property
    def partitions(self) -> tuple[tuple[str, ...], ...] | None:
        return ((),)

    @property
    def _keeps_result(self) -> bool:
        """Whether a change of rows that are not in the result needs no other rows."""
        return self.most is not None and not (self.skipped or self.in_order or self.timed)

    @property
    def keeps(self) -> tuple[Kept, ...]:
        if not self._keeps_result:
            return super().keeps
        return (Kept(RESULT, ()), Kept(0, (), rare=True))

    def lookups(self, number: int, changes: Sequence[Change], found: Sequence[str]) -> str:
        if number and self._keeps_result:
            return self._lost(changes[0].delta, found[0])
        return super().lookups(number, changes, found)

    def delta(self, changes: Sequence[Change], result: str = "") -> str:
        if not self._keeps_result:
            return super().delta(changes)
        change, lost = changes[0], "EXISTS (SELECT 1 FROM _lost)"
        added = ", ".join(f"_n.{quote(name)}" for name in self.columns)
        return (
            f"WITH _lost AS ({self._lost(change.delta, result)}), "
            f"_first AS (SELECT {self._names} FROM {change.new} WHERE {lost} "
            f"UNION ALL SELECT {self._names} FROM {result} WHERE NOT {lost} "
            f"UNION ALL SELECT {added} FROM {change.delta} AS _n, range({WEIGHT}) "
            f"WHERE {WEIGHT} > 0 AND NOT {lost}) "
            f"SELECT {self._names}, 1 AS {WEIGHT} FROM ({self.whole(['_first'])}) "
            f"UNION ALL SELECT {self._names}, -1 AS {WEIGHT} FROM {result}"
        )

    @property
    def _names(self) -> str:
        return ", ".join(map(quote, self.columns))

    def _lost(self, delta: str, result: str) -> str:
        """A row, if the result loses one, so that other rows of the input may take its place."""
        same = " AND ".join(
            f"_n.{quote(name)} IS NOT DISTINCT FROM _r.{quote(name)}" for name in self.columns
        )
        return (
            f"SELECT 1 AS _k FROM {delta} AS _n WHERE {WEIGHT} < 0 "
            f"AND EXISTS (SELECT 1 FROM {result} AS _r WHERE {same})"
        )

    def whole(self, inputs: Sequence[str]) -> str:
        order = f" ORDER BY {', '.join(self.order)}" if self.order else ""
        most = "" if self.most is None else f" LIMIT {self.most}"
        skipped = f" OFFSET {self.skipped}" if self.skipped else ""
        return f"SELECT * FROM {inputs[0]} AS {INPUT}{order}{most}{skipped}"

    def describe(self) -> str:
        order = f" by {', '.join(self.order)}" if self.order else ""
        skipped = f", skip {self.skipped}" if self.skipped else ""
        return plain(f"limit {self.most}{skipped}{order}")
