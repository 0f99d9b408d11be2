"""UNION, INTERSECT and EXCEPT, with and without ALL."""

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from streamhouse.operators.operator import LEFT, RIGHT, Binary, Change, Emits, Kept, Key
from streamhouse.sql.expressions.binder import quote


class SetKind(enum.StrEnum):
    """Which rows of two inputs a set operation returns."""

    UNION = "UNION"
    INTERSECT = "INTERSECT"
    EXCEPT = "EXCEPT"


@dataclass(frozen=True)
class SetOperation(Binary):
    """Combines the rows of two inputs by the positions of their columns; `all`: as bags."""

    kind: SetKind
    all: bool

    @property
    def columns(self) -> tuple[str, ...]:
        return self.left.columns

    @cached_property
    def keys(self) -> frozenset[Key]:
        left = frozenset[Key]() if self.kind is SetKind.UNION else self.left.keys
        # A conversion to the other side's type may make values alike.
        same = {name for name in self.columns if self.types[name] == self.left.types[name]}
        keys = frozenset(key for key in left if key <= same)
        return keys if self.all else keys | {frozenset(self.columns)}

    @cached_property
    def not_null(self) -> frozenset[str]:
        if self.kind is not SetKind.UNION:
            return self.left.not_null
        pairs = zip(self.columns, self.right.columns, strict=True)
        left, right = self.left.not_null, self.right.not_null
        return frozenset(a for a, b in pairs if a in left and b in right)

    @property
    def _appends(self) -> bool:
        return self.kind is SetKind.UNION and self.all

    def _emits(self, inputs: Sequence[Emits]) -> Emits:
        most = max(inputs)
        shrinks = self.kind is SetKind.EXCEPT and inputs[1] is not Emits.NOTHING
        return Emits.CHANGES if shrinks or most > Emits.INSERTS else most

    @property
    def loses(self) -> str:
        return f"{self.kind} loses a row when its right side gets it"

    @property
    def partitions(self) -> tuple[tuple[str, ...], ...]:
        # DuckDB converts the columns of both inputs to the types of the result.
        return tuple(
            tuple(
                f"CAST({alias}.{quote(name)} AS {kind})"
                for name, kind in zip(side.columns, self.types.values(), strict=True)
            )
            for alias, side in ((LEFT, self.left), (RIGHT, self.right))
        )

    @property
    def keeps(self) -> tuple[Kept, ...]:
        return () if self._appends else super().keeps

    def whole(self, inputs: Sequence[str]) -> str:
        word = f"{self.kind}{' ALL' if self.all else ''}"
        return f"(SELECT * FROM {inputs[0]}) {word} (SELECT * FROM {inputs[1]})"

    def delta(self, changes: Sequence[Change], result: str = "") -> str:
        if not self._appends:
            return super().delta(changes)
        return self.whole([part.delta for part in changes])

    def describe(self) -> str:
        return f"{self.kind.lower()}{' all' if self.all else ''}"
