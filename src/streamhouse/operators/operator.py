"""The contract of all operators of continuous queries.

The algebra: a relation is a bag of rows. Its change from an old to a new state is a bag of rows
with a weight, the column `WEIGHT`: 1 for each row that enters, -1 for each that leaves. For every
operator, `whole` of the new inputs is `whole` of the old ones plus `delta`. Operators differ in how
they compute it:

- linear ones (`Filter`, `Project`, `Unnest`, UNION ALL) from the changes alone;
- an inner join from the changes of one side and the rows of the other: Δl ⋈ r_new + l_old ⋈ Δr;
- others by `partitions`: no row of one partition affects the result of another, so the change is
  the new result of the touched partitions minus their old one;
- the rest have none: the query is recomputed, and `recomputed` says why.

What `delta` reads besides changes is what an operator `keeps`.
"""

from __future__ import annotations

import enum
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from streamhouse.sql.expressions import binder

INPUT, LEFT, RIGHT = "_i", "_l", "_r"
"""The aliases of an operator's input, or of its two inputs, in its SQL expressions."""
WEIGHT = "_weight"
"""The column of changes that is 1 for rows that enter and -1 for rows that leave."""

_TIME = "the time passes"

Key: TypeAlias = frozenset[str]
"""Columns that no two rows have alike, null being a value; empty: there is at most one row."""


class Emits(enum.IntEnum):
    """What changes of an operator's result can be, from the least to the most general."""

    NOTHING = 0  # its inputs never change
    INSERTS = 1  # rows only enter
    CHANGES = 2  # rows enter and leave

    def __str__(self) -> str:
        return ("nothing", "inserts only", "inserts, updates and deletes")[self]


@dataclass(frozen=True)
class Change:
    """The names of relations for one input: its change, and its rows before and after it."""

    delta: str
    old: str
    new: str


@dataclass(frozen=True)
class Kept:
    """Rows of an input that a delta form looks up: `by` are SQL expressions; empty: all rows."""

    input: int
    by: tuple[str, ...]


@dataclass(frozen=True)
class Operator(ABC):
    """An operator of a continuous query: a frozen record over its input operators."""

    @property
    def inputs(self) -> tuple[Operator, ...]:
        """The operators whose results it reads."""
        return ()

    @property
    @abstractmethod
    def columns(self) -> tuple[str, ...]:
        """The names of its columns, which are unique."""

    @cached_property
    def types(self) -> dict[str, str]:
        """The DuckDB type of each column; `BindError` if DuckDB cannot bind the operator."""
        relations = {f"in_{n}": each.types for n, each in enumerate(self.inputs)}
        kinds = [str(kind) for _, kind in binder.describe(self.whole(list(relations)), relations)]
        return dict(zip(self.columns, kinds, strict=True))

    @cached_property
    def keys(self) -> frozenset[Key]:
        """Its unique keys: only those that hold for any rows of its tables.

        A wrong key silently loses rows of a view, so an operator states none in doubt.
        """
        return frozenset()

    @cached_property
    def not_null(self) -> frozenset[str]:
        """Columns that are never null."""
        return frozenset()

    @property
    def aliases(self) -> tuple[str, ...]:
        """The aliases of its inputs in its expressions."""
        return (INPUT,)

    @property
    def expressions(self) -> tuple[str, ...]:
        """Its own SQL expressions."""
        return ()

    @property
    def timed(self) -> bool:
        """Whether its own expressions depend on the time of the batch."""
        return any("getvariable(" in sql.lower() for sql in self.expressions)

    @property
    def ordered(self) -> bool:
        """Whether its result depends on the order in which its input's rows arrive."""
        return False

    @cached_property
    def emits(self) -> Emits:
        """What the changes of its result are, given what its inputs emit."""
        return Emits.CHANGES if self.timed else self._emits([each.emits for each in self.inputs])

    def _emits(self, inputs: Sequence[Emits]) -> Emits:
        """`emits`, if time does not matter; by default rows leave as soon as an input changes."""
        return Emits.CHANGES if any(inputs) else Emits.NOTHING

    @property
    def partitions(self) -> tuple[tuple[str, ...], ...] | None:
        """For each input, SQL expressions over its rows; None if there are no partitions.

        Rows of different values (nulls being equal) never affect the same row of the result.
        """
        return None

    @property
    def keeps(self) -> tuple[Kept, ...]:
        """The rows of its inputs that `delta` looks up."""
        return tuple(Kept(n, by) for n, by in enumerate(self.partitions or ()))

    @property
    def recomputed(self) -> str:
        """Why there is no delta form; empty if there is one."""
        if self.timed:
            return _TIME
        return "" if self.partitions is not None else "it has no delta form yet"

    @abstractmethod
    def whole(self, inputs: Sequence[str]) -> str:
        """The SQL of all rows of its result; `inputs` are relations: names or (SELECT …)."""

    def delta(self, inputs: Sequence[Change]) -> str:
        """The SQL of the change of its result, with `WEIGHT` last; see `recomputed`."""
        assert self.partitions is not None, self.recomputed
        sides = list(zip(inputs, self.aliases, self.partitions, strict=True))
        touched = " UNION ".join(
            f"SELECT DISTINCT {_keys(by)} FROM {part.delta} AS {alias}" for part, alias, by in sides
        )
        new = self.whole([_touched(part.new, alias, by) for part, alias, by in sides])
        old = self.whole([_touched(part.old, alias, by) for part, alias, by in sides])
        return (
            f"WITH _touched AS ({touched}) SELECT *, 1 AS {WEIGHT} FROM ({new}) "
            f"UNION ALL SELECT *, -1 AS {WEIGHT} FROM ({old})"
        )

    @property
    def loses(self) -> str:
        """Why rows can leave its result, in words; see `retraction`."""
        if self.timed:
            return "the current time changes"
        return f"{self.describe()} changes when rows are added"

    @abstractmethod
    def describe(self) -> str:
        """The operator in a few words, for EXPLAIN and errors."""


@dataclass(frozen=True)
class Unary(Operator):
    """An operator with one input; by default it passes on the columns and what holds for them."""

    input: Operator

    @property
    def inputs(self) -> tuple[Operator, ...]:
        return (self.input,)

    @property
    def columns(self) -> tuple[str, ...]:
        return self.input.columns

    @cached_property
    def keys(self) -> frozenset[Key]:
        return self.input.keys

    @cached_property
    def not_null(self) -> frozenset[str]:
        return self.input.not_null


@dataclass(frozen=True)
class Binary(Operator):
    """An operator with two inputs."""

    left: Operator
    right: Operator

    @property
    def inputs(self) -> tuple[Operator, ...]:
        return (self.left, self.right)

    @property
    def aliases(self) -> tuple[str, ...]:
        return (LEFT, RIGHT)


@dataclass(frozen=True)
class Linear(Unary):
    """An operator that computes each row on its own, so its change needs no other rows."""

    def _emits(self, inputs: Sequence[Emits]) -> Emits:
        return inputs[0]

    @property
    def keeps(self) -> tuple[Kept, ...]:
        return ()

    @property
    def recomputed(self) -> str:
        return _TIME if self.timed else ""


def plain(sql: str) -> str:
    """An operator's SQL for people: columns without quotes and aliases."""
    return re.sub(r'"?\b_[ilr]"?\."((?:[^"]|"")+)"', r"\1", sql)


def walk(root: Operator) -> Iterator[Operator]:
    """Each operator of a tree once, inputs first."""
    done: set[int] = set()

    def visit(operator: Operator) -> Iterator[Operator]:
        if id(operator) not in done:
            done.add(id(operator))
            for each in operator.inputs:
                yield from visit(each)
            yield operator

    yield from visit(root)


def retraction(root: Operator) -> Operator | None:
    """The first operator because of which rows of a result can leave; None if it only grows."""
    changing = (each for each in walk(root) if each.emits > Emits.INSERTS)
    return next(changing, None) if root.emits > Emits.INSERTS else None


def _keys(by: Sequence[str]) -> str:
    return ", ".join(f"{sql} AS _k{n}" for n, sql in enumerate(by)) or "1 AS _k"


def _touched(relation: str, alias: str, by: Sequence[str]) -> str:
    """The rows of a relation in touched partitions."""
    same = " AND ".join(f"{sql} IS NOT DISTINCT FROM _t._k{n}" for n, sql in enumerate(by))
    exists = f"SELECT 1 FROM _touched AS _t WHERE {same or 'true'}"
    return f"(SELECT {alias}.* FROM {relation} AS {alias} WHERE EXISTS ({exists}))"
