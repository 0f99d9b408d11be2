"""ORDER BY … LIMIT … OFFSET, Top-N and deduplication: the first rows of each partition."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from sqlglot import exp, parse_one

from streamhouse.operators.operator import (
    INPUT,
    RESULT,
    WEIGHT,
    Change,
    Emits,
    Kept,
    Key,
    Leading,
    Unary,
    keys,
    plain,
    same_keys,
)  # fmt: skip
from streamhouse.operators.over import WindowFunction
from streamhouse.sql.expressions.binder import quote


@dataclass(frozen=True)
class FirstRows(Unary):
    """The rows of each partition that no more than some others precede.

    The new ones are among the old ones and those that enter. Other rows of the input take their
    places only in partitions that lose one of the old ones.
    """

    @property
    @abstractmethod
    def _follows(self) -> bool:
        """Whether the new result follows from the old one in this way."""

    @property
    @abstractmethod
    def _leading(self) -> Leading | None:
        """The input's rows of a partition that suffice for those of the result."""

    @property
    def reduced(self) -> bool:
        return True

    @property
    def keeps(self) -> tuple[Kept, ...]:
        if not self._follows:
            return super().keeps
        (by,) = self._partitions
        found = (Kept(RESULT, by), Kept(0, by, rare=True, leading=self._leading))
        return found[:1] if self.input.emits <= Emits.INSERTS else found

    def lookups(self, number: int, changes: Sequence[Change], found: Sequence[str]) -> str:
        if number and self._follows:
            return self._lost(changes[0].delta, found[0])
        return super().lookups(number, changes, found)

    def delta(self, changes: Sequence[Change], result: str = "") -> str:
        if not self._follows:
            return super().delta(changes)
        change, (by,) = changes[0], self._partitions
        names = ", ".join(f"{INPUT}.{quote(name)}" for name in self.input.columns)
        lost, again, others = "", "", "true"
        if len(self.keeps) > 1:
            lost = f"_touched AS (SELECT * FROM {change.keys}), "
            again = f"SELECT * FROM {change.new} UNION ALL "
            same = same_keys(by, "_t") or "true"
            others = f"NOT EXISTS (SELECT 1 FROM _touched AS _t WHERE {same})"
        columns = ", ".join(map(quote, self.columns))
        return (
            f"WITH {lost}_first AS ({again}SELECT {names} FROM {result} AS {INPUT} WHERE {others} "
            f"UNION ALL SELECT {names} FROM {change.delta} AS {INPUT}, range({WEIGHT}) "
            f"WHERE {WEIGHT} > 0 AND {others}) "
            f"SELECT {columns}, 1 AS {WEIGHT} FROM ({self.whole(['_first'])}) "
            f"UNION ALL SELECT {columns}, -1 AS {WEIGHT} FROM {result}"
        )

    def _lost(self, delta: str, result: str) -> str:
        """The keys of the partitions whose result loses a row."""
        (by,) = self._partitions
        same = " AND ".join(
            f"{INPUT}.{quote(name)} IS NOT DISTINCT FROM _r.{quote(name)}"
            for name in self.input.columns
        )
        return (
            f"SELECT DISTINCT {keys(by)} FROM {delta} AS {INPUT} WHERE {WEIGHT} < 0 "
            f"AND EXISTS (SELECT 1 FROM {result} AS _r WHERE {same})"
        )


@dataclass(frozen=True)
class Limit(FirstRows):
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
    def ordered(self) -> str:
        reason = "LIMIT depends on the order of rows that are alike in ORDER BY"
        return reason if self.in_order else ""

    @property
    def reduced(self) -> bool:
        return self.most is not None or self.input.reduced

    @property
    def partitions(self) -> tuple[tuple[str, ...], ...] | None:
        return ((),)

    @property
    def _follows(self) -> bool:
        return self.most is not None and not (self.skipped or self.in_order or self.timed)

    @cached_property
    def _leading(self) -> Leading | None:
        if self.most is None or not self.order:
            return None
        term = parse_one(self.order[0], dialect="duckdb", into=exp.Ordered)
        return Leading.ordered(term, self.most, self.input.not_null)

    def whole(self, inputs: Sequence[str]) -> str:
        order = f" ORDER BY {', '.join(self.order)}" if self.order else ""
        most = "" if self.most is None else f" LIMIT {self.most}"
        skipped = f" OFFSET {self.skipped}" if self.skipped else ""
        return f"SELECT * FROM {inputs[0]} AS {INPUT}{order}{most}{skipped}"

    def describe(self) -> str:
        order = f" by {', '.join(self.order)}" if self.order else ""
        skipped = f", skip {self.skipped}" if self.skipped else ""
        return plain(f"limit {self.most}{skipped}{order}")


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
