"""Projection: columns computed from each row."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

from streamhouse.operators.operator import INPUT, WEIGHT, Emits, Key, Linear, plain
from streamhouse.sql.expressions.binder import quote


@dataclass(frozen=True)
class Item:
    """A column with its SQL expression over the input.

    `column` is the input column from whose different values it has different values; empty if there
    is none. It is never null if the input columns `not_null_if` never are; None: it may be null.
    """

    name: str
    sql: str
    column: str = ""
    not_null_if: Key | None = None

    @classmethod
    def of(cls, column: str, name: str = "", alias: str = INPUT) -> Self:
        """A plain column of the input."""
        return cls(name or column, f"{alias}.{quote(column)}", column, frozenset([column]))

    @property
    def aliased(self) -> str:
        return f"{self.sql} AS {quote(self.name)}"


def listed(items: Iterable[Item]) -> str:
    """The items of a SELECT."""
    return ", ".join(item.aliased for item in items)


def mapped_keys(items: Iterable[Item], keys: Iterable[Key]) -> frozenset[Key]:
    """The keys whose columns all have an item, with the names of these."""
    names: dict[str, str] = {}
    for item in items:
        if item.column:
            names.setdefault(item.column, item.name)
    return frozenset(frozenset(names[c] for c in key) for key in keys if key <= names.keys())


def never_null(items: Iterable[Item], not_null: frozenset[str]) -> frozenset[str]:
    """The names of the items that are never null."""
    return frozenset(
        item.name for item in items if item.not_null_if is not None and item.not_null_if <= not_null
    )


@dataclass(frozen=True)
class Project(Linear):
    """Computes `items` from each row of its input."""

    items: tuple[Item, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(item.name for item in self.items)

    @cached_property
    def keys(self) -> frozenset[Key]:
        return mapped_keys(self.items, self.input.keys)

    @cached_property
    def not_null(self) -> frozenset[str]:
        return never_null(self.items, self.input.not_null)

    @property
    def expressions(self) -> tuple[str, ...]:
        return tuple(item.sql for item in self.items)

    @property
    def keeps_values(self) -> bool:
        """Whether its columns are those of its input, perhaps with other names and wider types."""
        return all(item.column for item in self.items)

    def whole(self, inputs: Sequence[str]) -> str:
        return f"SELECT {listed(self.items)} FROM {inputs[0]} AS {INPUT}"

    def _passed(self, delta: str) -> str:
        return f"SELECT {listed(self.items)}, {WEIGHT} FROM {delta} AS {INPUT}"

    @property
    def is_net(self) -> bool:
        # A change of columns that are left out is none.
        read = {item.column for item in self.items}
        all_enter = self.input.emits <= Emits.INSERTS
        return not self.timed and (all_enter or read.issuperset(self.input.columns))

    def describe(self) -> str:
        computed = (
            item.name if item.column == item.name else f"{plain(item.sql)} AS {item.name}"
            for item in self.items
        )
        return f"project {', '.join(computed)}"
