"""Joins of two inputs: inner, outer, semi and anti, with equalities and a residual condition."""

import enum
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from streamhouse.operators.operator import (
    LEFT,
    RIGHT,
    WEIGHT,
    Binary,
    Change,
    Emits,
    Kept,
    Key,
    keys,
    plain,
)  # fmt: skip
from streamhouse.sql.expressions import binder
from streamhouse.sql.expressions.binder import BindError, quote


class JoinKind(enum.StrEnum):
    """How the rows of two inputs are combined."""

    INNER = "INNER"
    LEFT = "LEFT"
    FULL = "FULL"
    SEMI = "SEMI"
    ANTI = "ANTI"

    @property
    def one_sided(self) -> bool:
        """Whether the result has the columns of the left input only."""
        return self in (JoinKind.SEMI, JoinKind.ANTI)


@dataclass(frozen=True)
class Equality:
    """`left` = `right`: SQL expressions over `LEFT` and `RIGHT`.

    `left_column` and `right_column` name the columns that they are; empty for other expressions.
    `exact`: a value of one side equals one value of the other at most. `nulls`: nulls are equal.
    `added`: the query does not have it, but it is true where the join's condition is.
    """

    left: str
    right: str
    left_column: str = ""
    right_column: str = ""
    exact: bool = False
    nulls: bool = False
    added: bool = False

    @property
    def sql(self) -> str:
        """The condition."""
        return f"{self.left} {'IS NOT DISTINCT FROM' if self.nulls else '='} {self.right}"


@dataclass(frozen=True)
class Join(Binary):
    """Joins the rows for which all `equalities` hold, and `residual`, over `LEFT` and `RIGHT`.

    Without equalities and residual it is a cross join. The columns of the inputs differ in name;
    the result does not have those that are `left_out`. `single`: a left row has one match at most.
    """

    kind: JoinKind
    equalities: tuple[Equality, ...] = ()
    residual: str = ""
    single: bool = False
    left_out: frozenset[str] = frozenset()

    @property
    def columns(self) -> tuple[str, ...]:
        columns = self.left.columns + (() if self.kind.one_sided else self.right.columns)
        return tuple(name for name in columns if name not in self.left_out)

    @cached_property
    def keys(self) -> frozenset[Key]:
        return frozenset(key for key in self._all_keys() if not key & self.left_out)

    def _all_keys(self) -> frozenset[Key]:
        left, right, kind = self.left, self.right, self.kind
        if kind.one_sided:
            return left.keys
        # A left row has one value of these columns.
        added = {each.right_column for each in self.equalities if each.added}
        pairs = frozenset(a | (b - added) for a in left.keys for b in right.keys)
        if kind is JoinKind.FULL:
            # A null may come from the row or from the missing match.
            return frozenset(key for key in pairs if key and key <= left.not_null | right.not_null)
        found = set(pairs)
        equal = [each for each in self.equalities if each.exact]
        if self.single or right.has_key({each.right_column for each in equal}):
            found |= left.keys
        if kind is not JoinKind.LEFT and left.has_key({each.left_column for each in equal}):
            found |= right.keys
        return frozenset(found)

    @cached_property
    def not_null(self) -> frozenset[str]:
        left, right, kind = self.left.not_null, self.right.not_null, self.kind
        equal = [each for each in self.equalities if not each.nulls]
        if kind in (JoinKind.INNER, JoinKind.SEMI):
            left |= {each.left_column for each in equal} - {""}
            right |= {each.right_column for each in equal} - {""}
        if kind is JoinKind.FULL:
            left = frozenset()
        if kind in (JoinKind.LEFT, JoinKind.FULL) or kind.one_sided:
            right = frozenset()
        return (left | right) - self.left_out

    @property
    def expressions(self) -> tuple[str, ...]:
        sides = (each for equal in self.equalities for each in (equal.left, equal.right))
        return (*sides, self.residual)

    def _emits(self, inputs: Sequence[Emits]) -> Emits:
        left, right = inputs
        grows = {
            JoinKind.LEFT: not right,
            JoinKind.FULL: not left and not right,
            JoinKind.ANTI: not right,
        }.get(self.kind, True)
        both = max(left, right)
        return both if both is Emits.NOTHING or (grows and both is Emits.INSERTS) else Emits.CHANGES

    @property
    def loses(self) -> str:
        if self.kind is JoinKind.ANTI:
            return "a row leaves when a subquery of NOT IN or NOT EXISTS gets its match"
        if any(re.fullmatch(r"_s\d+m", name) for name in self.right.columns):
            return "IN or EXISTS of a subquery changes when the subquery gets a row"
        return f"{self.kind} JOIN replaces a row without a match when there is one"

    @cached_property
    def _compared(self) -> list[tuple[str, str]]:
        """Both sides of the equalities, in the type in which DuckDB compares them."""
        sides = {"l": self.left.types, "r": self.right.types}
        found = []
        for left, right in ((each.left, each.right) for each in self.equalities):
            sql = f"SELECT {left}, {right}{{}} FROM l AS {LEFT}, r AS {RIGHT}"
            kinds = [str(kind) for _, kind in binder.describe(sql.format(""), sides)]
            if kinds[0] == kinds[1]:
                found.append((left, right))
                continue
            try:
                common = binder.describe(sql.format(f", coalesce({left}, {right})"), sides)[2][1]
            except BindError:
                continue  # Such as text and a number: their equal values may differ in either type.
            found.append((f"CAST({left} AS {common})", f"CAST({right} AS {common})"))
        return found

    @property
    def partitions(self) -> tuple[tuple[str, ...], ...] | None:
        pairs = self._compared
        return (tuple(a for a, _ in pairs), tuple(b for _, b in pairs)) if pairs else None

    @property
    def keeps(self) -> tuple[Kept, ...]:
        left, right = (replace(each, weighted=self._weighted) for each in super().keeps)
        return (right, left)

    @property
    def _weighted(self) -> bool:
        """Whether a row is joined whatever the others are, and no condition may fail for rows that
        have left."""
        return self.kind is JoinKind.INNER and not (self.residual or self.timed)

    @property
    def is_net(self) -> bool:
        # Then a row of the result tells the rows that were joined.
        pairs = [(each.left_column, each.right_column) for each in self.equalities if each.exact]
        told = {a for pair in pairs for a, b in (pair, pair[::-1]) if b not in self.left_out}
        return self._weighted and self.left_out <= told

    @property
    def recomputed(self) -> str:
        return super().recomputed if self.timed else ""

    @property
    def condition(self) -> str:
        """The whole condition over `LEFT` and `RIGHT`; empty for a cross join."""
        terms = [each.sql for each in self.equalities]
        return " AND ".join([*terms, *([f"({self.residual})"] if self.residual else [])])

    def whole(self, inputs: Sequence[str]) -> str:
        sql = self._joined(self.kind, *inputs)
        return (
            f"SELECT {', '.join(map(quote, self.columns))} FROM ({sql})" if self.left_out else sql
        )

    def _joined(self, kind: JoinKind, left: str, right: str) -> str:
        if kind.one_sided:
            return self._matched(0, left, right, kind is JoinKind.SEMI)
        on = self.condition or "true"
        return f"SELECT * FROM {left} AS {LEFT} {kind} JOIN {right} AS {RIGHT} ON {on}"

    def _matched(self, side: int, rows: str, others: str, matched: bool = True) -> str:
        """The SQL of the rows of a side that have, or do not have, a match among others."""
        own, other = self.aliases[side], self.aliases[1 - side]
        exists = f"SELECT 1 FROM {others} AS {other} WHERE {self.condition or 'true'}"
        word = "EXISTS" if matched else "NOT EXISTS"
        return f"SELECT {own}.* FROM {rows} AS {own} WHERE {word} ({exists})"

    def lookups(self, number: int, changes: Sequence[Change], found: Sequence[str]) -> str:
        """Right rows that left changes meet, or whose changes tell matched left rows; then left
        rows that right changes meet, or whose changes tell matched right rows."""
        alone = self.kind is JoinKind.FULL or (number == 0 and self.kind is not JoinKind.INNER)
        if self.timed or alone:
            return super().lookups(number, changes, found)
        if not changes[number].delta:
            return ""
        by, alias = self._partitions[number], self.aliases[number]
        return f"SELECT {keys(by)} FROM {changes[number].delta} AS {alias}"

    def delta(self, changes: Sequence[Change], result: str = "") -> str:
        """The change of the left side against the new right one, then the old left side against the
        change of the right one; rows without a match are those that a change meets."""
        if self.timed:
            return super().delta(changes)
        (left, right), kind, names = changes, self.kind, ", ".join(map(quote, self.columns))
        if self._weighted:
            names, on = f"{names}, {LEFT}.{WEIGHT} * {RIGHT}.{WEIGHT} AS {WEIGHT}", self.condition
            return " UNION ALL ".join(
                f"SELECT {names} FROM {a} AS {LEFT} JOIN {b} AS {RIGHT} ON {on or 'true'}"
                for a, b in ((left.delta, right.new), (left.old, right.delta))
                if a and b
            )
        full = kind is JoinKind.FULL
        first = self._joined(JoinKind.LEFT if full else kind, left.delta, right.new)
        parts = [f"SELECT {names}, {WEIGHT} FROM ({first})"]
        if not kind.one_sided:
            met = self._joined(JoinKind.INNER, left.old, right.delta)
            parts.append(f"SELECT {names}, {WEIGHT} FROM ({met})")
        if kind is not JoinKind.INNER:
            met = f"({self._matched(0, left.old, right.delta)})"
            for rows, weight in ((right.new, "1"), (right.old, "-1")):
                found = self._matched(0, met, rows, kind is JoinKind.SEMI)
                parts.append(self._alone(0, found, weight))
        if full:
            parts.append(self._alone(1, self._matched(1, right.delta, left.old, False), WEIGHT))
            met = f"({self._matched(1, right.new, left.delta)})"
            for rows, weight in ((left.new, "1"), (left.old, "-1")):
                parts.append(self._alone(1, self._matched(1, met, rows, False), weight))
        return " UNION ALL ".join(parts)

    def _alone(self, side: int, rows: str, weight: str) -> str:
        """The SQL of the change of the result by rows of one side."""
        own = self.inputs[side].columns
        items = (
            quote(name) if name in own else f"CAST(NULL AS {self.types[name]})"
            for name in self.columns
        )
        return f"SELECT {', '.join(items)}, {weight} AS {WEIGHT} FROM ({rows})"

    def describe(self) -> str:
        if not self.condition:
            return "cross join"
        return plain(f"{self.kind.lower()} join on {self.condition}")
