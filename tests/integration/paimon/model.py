"""A table as plain Python: what each merge engine makes of rows, and each change of its schema."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

Values: TypeAlias = dict[int, Any]
"""A row: field ids to values, the key's too; an id that is missing is null."""
Written: TypeAlias = tuple[str, dict[str, Any]]
"""A row kind, and a row by the names of its columns."""


PARTITIONS = ("a", "b", "c")


@dataclass
class Field:
    """A column; `merge` is its function in an aggregation table.

    One that is `fixed` stays as it is: the key, the partition, the sequence. `constant` is a value
    of it that a statement may use.
    """

    id: int
    name: str
    type: str
    merge: str = "last_non_null_value"
    fixed: bool = False
    constant: Any = None


@dataclass
class State:
    """Rows at one snapshot: those to be seen, and what only a compaction will bring to light."""

    rows: dict[Any, Values] = field(default_factory=dict)
    waiting: list[tuple[str, Values]] = field(default_factory=list)
    count: int = 0


class Model:
    """One table. `deferred` tables show rows only when they have been compacted.

    `partition` is the id of a column whose values are partitions, which then is part of the key;
    `sequence` is that of the column whose greatest value wins.
    """

    def __init__(
        self,
        engine: str,
        fields: Sequence[Field],
        deferred: bool = False,
        partition: int | None = None,
        sequence: int | None = None,
    ) -> None:
        self.engine = engine
        self.partition, self.sequence = partition, sequence
        self.key = (0,) if partition is None else (0, partition)
        self.fields = list(fields)
        self.deferred = deferred
        self.state = State()
        self.next_id = len(fields)

    def names(self) -> list[str]:
        return [one.name for one in self.fields]

    def field(self, name: str) -> Field:
        return next(one for one in self.fields if one.name == name)

    def write(self, rows: Sequence[Written]) -> None:
        ids = {one.name: one.id for one in self.fields}
        for kind, row in rows:
            values = {ids[name]: value for name, value in row.items()}
            if self.deferred:
                self.state.waiting.append((kind, values))
            else:
                self._take(kind, values)

    def compacted(self) -> None:
        """A full compaction brings the waiting rows to light."""
        for kind, values in self.state.waiting:
            self._take(kind, values)
        self.state.waiting = []

    def overwrite(self, rows: Sequence[dict[str, Any]], partitions: set[Any] | None) -> None:
        """Rows take the place of all others; of those in `partitions`, if there are such."""
        state = self.state
        if self.partition is not None:
            name = next(one.name for one in self.fields if one.id == self.partition)
            gone = {row[name] for row in rows} if partitions is None else partitions
            state.rows = {k: r for k, r in state.rows.items() if r[self.partition] not in gone}
            state.waiting = [one for one in state.waiting if one[1][self.partition] not in gone]
        else:
            state.rows, state.waiting = {}, []
        self.write([("+I", row) for row in rows])
        # The statement has its rows compacted.
        self.compacted()

    def _take(self, kind: str, values: Values) -> None:
        state = self.state
        key = tuple(values[one] for one in self.key)
        old = state.rows.get(key)
        if self.engine == "append":
            state.count += 1
            state.rows[state.count] = values
        elif self.engine == "first-row":
            state.rows.setdefault(key, values)
        elif self.engine == "deduplicate":
            late = self.sequence is not None and old is not None
            if late and old is not None and old[self.sequence or 0] > values[self.sequence or 0]:
                return
            if kind == "-D":
                state.rows.pop(key, None)
            else:
                state.rows[key] = values
        elif self.engine == "partial-update":
            given = {number: value for number, value in values.items() if value is not None}
            state.rows[key] = {**(old or {}), **given}
        else:
            state.rows[key] = self._merged(kind, old or {}, values)

    def _merged(self, kind: str, old: Values, new: Values) -> Values:
        merged: Values = {}
        for one in self.fields:
            before, after = old.get(one.id), new.get(one.id)
            merged[one.id] = self._value(kind, one, before, after)
        # A column that was dropped is merged no more.
        return merged

    def _value(self, kind: str, one: Field, old: Any, new: Any) -> Any:
        if one.id == 0:
            return new
        if new is None:
            return old
        if kind == "-D":
            if one.merge == "sum":
                return -new if old is None else old - new
            return old if one.merge == "max" else None
        if old is None or one.merge == "last_non_null_value":
            return new
        return old + new if one.merge == "sum" else max(old, new)

    def rows(self, state: State | None = None) -> list[tuple[Any, ...]]:
        """The rows to be read, in the columns of now, sorted."""
        found = (self.state if state is None else state).rows.values()
        return ordered(
            tuple(displayed(one, row.get(one.id)) for one in self.fields) for row in found
        )

    def snapshot(self) -> State:
        return copy.deepcopy(self.state)


def displayed(one: Field, value: Any) -> Any:
    """A value in a column's type of now."""
    if value is None:
        return None
    return {"STRING": str, "DOUBLE": float}.get(one.type, int)(value)


def ordered(rows: Any) -> list[tuple[Any, ...]]:
    return sorted(rows, key=lambda row: tuple((value is None, str(value)) for value in row))
