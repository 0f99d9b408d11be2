"""The contract of all operators of continuous queries.

The algebra: a relation is a bag of rows. Its change from an old to a new state is a bag of rows
with a weight, the column `WEIGHT`: 1 for each row that enters, -1 for each that leaves. For every
operator, `whole` of the new inputs is `whole` of the old ones plus `delta`. Operators differ in how
they compute it:

- linear ones (`Filter`, `Project`, `Unnest`, UNION ALL) from the changes alone;
- an inner join from the changes of one side and the rows of the other: Δl ⋈ r_new + l_old ⋈ Δr,
  in which weights are multiplied;
- others by `partitions`: no row of one partition affects the result of another, so the change is
  the new result of the touched partitions minus their old one;
- the rest are one partition, which any change touches: `recomputed` says why.

What `delta` reads besides changes is what an operator `keeps`. It reads only rows of the keys that
`lookups` returns, so an executor fetches no others.

The time is an input, too: old rows are computed with the variable `OLD_NOW`, new ones with `now`.
"""

from __future__ import annotations

import enum
import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import TypeAlias

from sqlglot import exp

from streamhouse.sql.expressions import binder

INPUT, LEFT, RIGHT = "_i", "_l", "_r"
"""The aliases of an operator's input, or of its two inputs, in its SQL expressions."""
WEIGHT = "_weight"
"""The column of changes: 1 for rows that enter, -1 for rows that leave; more for equal rows."""
RESULT = -1
"""In the place of an input's number: the operator's own result."""
OLD_NOW = "old_now"
"""The DuckDB variable of the time of the old rows, as `now` is that of the new rows."""

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
    """The names of relations for one input: its change, and its rows before and after it.

    `old` has at least the rows whose keys were looked up, and `new` those and the change. No row
    of `delta` enters and leaves at once. `keys` are those that were looked up, if this is `rare`:
    then `new` has no other rows.
    """

    delta: str
    old: str = ""
    new: str = ""
    keys: str = ""


@dataclass(frozen=True)
class Leading:
    """Of the rows of each key only `most` matter: those with the greatest values of a column.

    With `least` they are those with the least values. Rows without a value do not count.
    """

    column: str
    least: bool = False
    most: int = 1

    @classmethod
    def ordered(cls, term: exp.Expr, most: int, not_null: Collection[str]) -> Leading | None:
        """The first rows by a term of ORDER BY, if it is a column whose nulls come last."""
        name, first = term.this.name, term.args.get("nulls_first")
        if not isinstance(term.this, exp.Column) or (first and name not in not_null):
            return None
        return cls(name, not term.args.get("desc"), most)

    @property
    def extremes(self) -> tuple[str, str]:
        """The aggregate functions of the first value, and of the last."""
        return ("min", "max") if self.least else ("max", "min")

    def leads(self, value: str, other: str) -> str:
        """The condition that a value comes before another one, which may be null."""
        sign = "<" if self.least else ">"
        return f"{value} IS NOT NULL AND ({other} IS NULL OR {value} {sign} {other})"


@dataclass(frozen=True)
class Kept:
    """Rows that a delta form looks up: of an input, or of the operator's own `RESULT`.

    `by` are SQL expressions over these rows, with the input's alias (`INPUT` for the result). If it
    is empty, all rows are looked up at once, of these only the ones for which `where` is true. An
    input occurs once in an operator's `keeps`. `rare`: few changes look any rows up. `weighted`:
    the rows are read with their `WEIGHT`, and the weights of equal rows need not be summed. Of the
    rows of a key those suffice that are `leading`; others may be missing, or have wrong weights.
    """

    input: int
    by: tuple[str, ...]
    where: str = ""
    rare: bool = False
    weighted: bool = False
    leading: Leading | None = None

    @property
    def whole(self) -> bool:
        """Whether changes look up all rows."""
        return not (self.by or self.where or self.rare)


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

    def has_key(self, columns: Collection[str]) -> bool:
        """Whether no two rows have the same values in these columns."""
        return any(key.issubset(columns) for key in self.keys)

    @property
    def shortest_key(self) -> tuple[str, ...] | None:
        """The key with the fewest columns, in the order of their names; None without a key."""
        keys = (tuple(sorted(key)) for key in self.keys)
        return min(keys, key=lambda key: (len(key), key), default=None)

    @cached_property
    def not_null(self) -> frozenset[str]:
        """Columns that are never null."""
        return frozenset()

    @property
    def aliases(self) -> tuple[str, ...]:
        """The aliases of its inputs in its expressions."""
        return (INPUT,) * len(self.inputs)

    @property
    def expressions(self) -> tuple[str, ...]:
        """Its own SQL expressions."""
        return ()

    @property
    def timed(self) -> bool:
        """Whether its own expressions depend on the time of the batch."""
        return any("getvariable('now')" in sql.lower() for sql in self.expressions)

    @property
    def ordered(self) -> str:
        """Why its result depends on the order in which its input's rows arrive; empty if it does
        not."""
        return ""

    @property
    def reduced(self) -> bool:
        """Whether its rows are expected to be far fewer than those of its tables."""
        return bool(self.inputs) and all(each.reduced for each in self.inputs)

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
        return None if self.inputs else ()

    @property
    def keeps(self) -> tuple[Kept, ...]:
        """The rows that `delta` looks up, in the order in which it does."""
        return tuple(Kept(n, by) for n, by in enumerate(self._partitions))

    @property
    def _partitions(self) -> tuple[tuple[str, ...], ...]:
        """`partitions`, or one that holds all rows: if there are none, or time touches them all."""
        if self.partitions is None or self.timed:
            return tuple(() for _ in self.inputs)
        return self.partitions

    def lookups(self, number: int, changes: Sequence[Change], found: Sequence[str]) -> str:
        """The SQL of the keys, `_k0`, `_k1`, …, to look up for `keeps[number]`.

        It reads the inputs' `Change.delta` and the relations of rows `found` by the lookups before.
        If `by` is empty, all rows are looked up if it returns any row. Of operators that keep rows
        that are `weighted`, a change whose `delta` is empty has none, and no keys are looked up for
        it.
        """
        return self._touched_keys(changes)

    def _touched_keys(self, changes: Sequence[Change]) -> str:
        if self.timed:
            return "SELECT 1 AS _k"
        sides = zip(changes, self.aliases, self._partitions, strict=True)
        if not self.inputs:
            return "SELECT 1 AS _k WHERE false"
        return " UNION ALL ".join(
            f"SELECT {keys(by)} FROM {part.delta} AS {alias}" for part, alias, by in sides
        )

    @property
    def recomputed(self) -> str:
        """Why any change touches the whole result; empty if it does not."""
        if self.timed:
            return "the time passes"
        if self.ordered or self.partitions is not None:
            return self.ordered
        return "any row of its input may concern all others"

    @abstractmethod
    def whole(self, inputs: Sequence[str]) -> str:
        """The SQL of all rows of its result; `inputs` are relations: names or (SELECT …)."""

    def delta(self, changes: Sequence[Change], result: str = "") -> str:
        """The SQL of the change of its result, with `WEIGHT` last.

        `result`: the relation of its looked-up old rows, if it keeps `RESULT`.
        """
        sides = list(zip(changes, self.aliases, self._partitions, strict=True))
        new = self.whole([touched(part.new, alias, by) for part, alias, by in sides])
        old = self.whole([touched(part.old, alias, by) for part, alias, by in sides])
        return (
            f"WITH _touched AS ({self._touched_keys(changes)}) "
            f"SELECT *, 1 AS {WEIGHT} FROM ({new}) "
            f"UNION ALL SELECT *, -1 AS {WEIGHT} FROM ({before(old)})"
        )

    @property
    def is_net(self) -> bool:
        """Whether no row of `delta` enters and leaves at once, given that of its inputs.

        Of an operator that looks up rows with their weights: if one input changes, and the rows
        that the change meets have positive weights.
        """
        return False

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
        return (Kept(0, (), self._aged),) if self.timed else ()

    @property
    def _aged(self) -> str:
        """The condition that the time may have changed what is computed from a row."""
        timed = (sql for sql in self.expressions if before(sql) != sql)
        return " OR ".join(f"({sql}) IS DISTINCT FROM ({before(sql)})" for sql in timed)

    @property
    def recomputed(self) -> str:
        return ""

    def delta(self, changes: Sequence[Change], result: str = "") -> str:
        passed = self._passed(changes[0].delta)
        if not self.timed:
            return passed
        columns, whole = ", ".join(map(binder.quote, self.columns)), self.whole(["_aged"])
        return (
            f"WITH _aged AS (SELECT {INPUT}.* FROM {changes[0].old} AS {INPUT} WHERE {self._aged}) "
            f"{passed} UNION ALL SELECT {columns}, 1 AS {WEIGHT} FROM ({whole}) "
            f"UNION ALL SELECT {columns}, -1 AS {WEIGHT} FROM ({before(whole)})"
        )

    @abstractmethod
    def _passed(self, delta: str) -> str:
        """The SQL of the change of its result for a change of its input."""


def column(sql: str) -> str:
    """The column of an input that an operator's SQL is; empty for another expression."""
    found = re.fullmatch(r'"?_[ilr]"?\."((?:[^"]|"")+)"', sql)
    return found[1].replace('""', '"') if found else ""


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


def whole_sql(root: Operator, known: Mapping[int, str] = MappingProxyType({})) -> str:
    """The SQL of a tree's result; `known` are the relations of operators' results, by their id."""
    names, parts = dict(known), list[str]()

    def visit(operator: Operator) -> str:
        if id(operator) not in names:
            sql = operator.whole([visit(each) for each in operator.inputs])
            names[id(operator)] = f"_op_{len(parts)}"
            parts.append(f"{names[id(operator)]} AS ({sql})")
        return names[id(operator)]

    name = visit(root)
    with_ = f"WITH {', '.join(parts)} " if parts else ""
    return f"{with_}SELECT * FROM {name}"


def retraction(root: Operator) -> Operator | None:
    """The first operator because of which rows of a result can leave; None if it only grows."""
    changing = (each for each in walk(root) if each.emits > Emits.INSERTS)
    return next(changing, None) if root.emits > Emits.INSERTS else None


def keys(by: Sequence[str]) -> str:
    """The columns of keys: `_k0`, `_k1`, …"""
    return ", ".join(f"{sql} AS _k{n}" for n, sql in enumerate(by)) or "1 AS _k"


def same_keys(by: Sequence[str], relation: str) -> str:
    """The condition that a row has the keys of a row of a relation; nulls are equal."""
    return " AND ".join(f"{sql} IS NOT DISTINCT FROM {relation}._k{n}" for n, sql in enumerate(by))


def before(sql: str) -> str:
    """An operator's SQL as of the time of the old rows."""
    return re.sub(r"getvariable\('now'\)", f"getvariable('{OLD_NOW}')", sql, flags=re.IGNORECASE)


def touched(relation: str, alias: str, by: Sequence[str]) -> str:
    """The rows of a relation in the partitions whose keys are in `_touched`."""
    exists = f"SELECT 1 FROM _touched AS _t WHERE {same_keys(by, '_t') or 'true'}"
    return f"(SELECT {alias}.* FROM {relation} AS {alias} WHERE EXISTS ({exists}))"
