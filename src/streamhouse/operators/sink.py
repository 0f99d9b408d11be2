"""The sink: the result with the key under which its rows are kept, or appended without one."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from streamhouse.operators.operator import INPUT, WEIGHT, Change, Emits, Kept, Key, Unary
from streamhouse.sql.expressions.binder import quote
from streamhouse.sql.views.stored_view import HIDDEN_KEY


@dataclass(frozen=True)
class Sink(Unary):
    """The rows of its input, kept in a table under `key`; without a key they are appended to it.

    `unique`: no two rows have the same key; else the last one counts, in the order of all columns.
    `hashed`, if it is not None: the key is `HIDDEN_KEY`, a column that the sink adds. It is a hash
    of these columns, or, if `numbered`, of all columns, with a number for equal rows. `plain`: the
    texts of their values contain no comma, so the key is these texts, which take half the time of
    a hash.
    """

    key: tuple[str, ...]
    unique: bool = True
    hashed: tuple[str, ...] | None = None
    numbered: bool = False
    plain: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        return (() if self.hashed is None else (HIDDEN_KEY,)) + self.input.columns

    @cached_property
    def keys(self) -> frozenset[Key]:
        return self.input.keys | ({frozenset(self.key)} if self.key else frozenset())

    @cached_property
    def not_null(self) -> frozenset[str]:
        return self.input.not_null | {*self.key}

    def _emits(self, inputs: Sequence[Emits]) -> Emits:
        return inputs[0] if self.unique else super()._emits(inputs)

    @property
    def partitions(self) -> tuple[tuple[str, ...], ...]:
        columns = self.input.columns if self.hashed is not None else self.key
        return (tuple(f"{INPUT}.{quote(name)}" for name in columns),)

    @property
    def keeps(self) -> tuple[Kept, ...]:
        return () if self._passes else super().keeps

    @property
    def _passes(self) -> bool:
        """Whether each row is written as it is, whatever the others are."""
        return self.unique and not self.numbered

    def whole(self, inputs: Sequence[str]) -> str:
        if self.hashed is not None:
            return self._hashed_rows(inputs[0])
        if self.unique:
            return f"SELECT * FROM {inputs[0]}"
        names = [quote(name) for name in self.columns]
        key = ", ".join(map(quote, self.key))
        order = ", ".join(f"{name} DESC NULLS LAST" for name in names)
        return (
            f"SELECT {', '.join(names)} FROM {inputs[0]} "
            f"QUALIFY row_number() OVER (PARTITION BY {key} ORDER BY {order}) = 1"
        )

    def _hashed_rows(self, relation: str, more: str = "") -> str:
        assert self.hashed is not None
        names = ", ".join(map(quote, self.input.columns))
        keyed = self.input.columns if self.numbered else self.hashed
        texts = [f"CAST({quote(name)} AS VARCHAR)" for name in keyed]
        if self.plain:
            hashed = " || ',' || ".join(f"coalesce({text}, '-')" for text in texts)
        else:
            parts = [f"coalesce(length({text}) || ':' || {text}, '-')" for text in texts]
            hashed = f"md5({' || '.join(parts)})" if parts else "md5('')"
        inner = f'SELECT {hashed} AS "__hash", * FROM {relation} AS "made"'
        by = f'PARTITION BY "__hash" ORDER BY {names}'
        number = f" || '-' || (row_number() OVER ({by}))" if self.numbered else ""
        return (
            f'SELECT "__hash"{number} AS "{HIDDEN_KEY}", {names}{more} FROM ({inner}) AS "hashed"'
        )

    def delta(self, changes: Sequence[Change], result: str = "") -> str:
        if not self._passes:
            return super().delta(changes)
        relation = changes[0].delta
        if self.hashed is None:
            return f"SELECT * FROM {relation}"
        return self._hashed_rows(relation, f", {WEIGHT}")

    def describe(self) -> str:
        if not self.key:
            return "sink that appends"
        if self.hashed is None:
            return f"sink by {', '.join(self.key)}{'' if self.unique else ', the last row of each'}"
        of = "all columns, numbered" if self.numbered else ", ".join(self.hashed) or "nothing"
        return f"sink by a hidden {'key' if self.plain else 'hash'} of {of}"
