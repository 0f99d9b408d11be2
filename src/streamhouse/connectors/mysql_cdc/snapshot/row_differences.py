"""Undoes changes of a table without a key: the difference between two multisets of rows."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.connectors.mysql_cdc.binlog.rows.batch_decoder import ChangedRows
from streamhouse.mysql.values.dates import DateReading, ZeroDates
from streamhouse.mysql.values.result_rows import Columns
from streamhouse.mysql.values.types import MySqlColumn, from_texts

_BEFORE = pa.array(["-U", "-D"])
_Row: TypeAlias = tuple[Any, ...]


class RowDifferences:
    """How many more or fewer times each row existed before some changes than after them.

    Usage: `add` the changes, call `complete`, pass the rows after the changes through `without`,
    and append `missing`: these are the rows before. Rows are equal if all `columns` have exactly
    the same values. `zero_dates`: how to read zero dates.
    """

    def __init__(
        self, columns: Sequence[MySqlColumn], zero_dates: ZeroDates = "CONVERT_TO_NULL"
    ) -> None:
        self._columns, self._reading = columns, DateReading(zero_dates)
        self._counts: dict[_Row, int] = {}
        self._surplus: dict[_Row, int] = {}
        self._values: list[pa.Array] | None = None

    def add(self, changes: Iterable[ChangedRows]) -> None:
        """Add changes, in any order."""
        counts = self._counts
        for rows in changes:
            befores = pc.is_in(rows.kinds, value_set=_BEFORE).to_pylist()
            columns = [_comparable(column).to_pylist() for column in rows.columns]
            for before, row in zip(befores, zip(*columns, strict=True), strict=True):
                count = counts.get(row, 0) + (1 if before else -1)
                if count:
                    counts[row] = count
                else:
                    del counts[row]

    def complete(self) -> None:
        """End the changes; call `without` and `missing` after this."""
        self._surplus = {row: -count for row, count in self._counts.items() if count < 0}
        self._counts = {row: count for row, count in self._counts.items() if count > 0}

    @property
    def surplus(self) -> int:
        """How many rows `without` still has to remove; 0 after all rows have passed through it."""
        return sum(self._surplus.values())

    def without(self, rows: Columns) -> Columns:
        """The rows of a SELECT, without rows that the changes have added."""
        if not self._surplus:
            return rows
        pairs = zip(self._columns, rows, strict=True)
        columns = [_comparable(from_texts(column, raw, self._reading)) for column, raw in pairs]
        if self._values is None:
            own = zip(*self._surplus, strict=True)
            self._values = [
                pa.array(values, column.type) for values, column in zip(own, columns, strict=True)
            ]
        found = [
            pc.is_in(column, value_set=values)
            for column, values in zip(columns, self._values, strict=True)
        ]
        kept = np.ones(len(rows[0]), np.bool_)
        # Each column has a value of a row to remove, but perhaps of different rows.
        (indexes,) = np.nonzero(functools.reduce(pc.and_, found).to_numpy(zero_copy_only=False))
        if not len(indexes):
            return rows
        some = [column.take(pa.array(indexes)).to_pylist() for column in columns]
        for index, row in zip(indexes, zip(*some, strict=True), strict=True):
            left = self._surplus.get(row, 0)
            if left:
                kept[index] = False
                if left == 1:
                    del self._surplus[row]
                else:
                    self._surplus[row] = left - 1
        return [column.filter(pa.array(kept)) for column in rows]

    def missing(self) -> list[pa.Array]:
        """The plain arrays of the rows that the changes have removed."""
        rows = [row for row, count in self._counts.items() for _ in range(count)]
        if not rows:
            return []
        columns = zip(*rows, strict=True)
        return [
            _plain(values, column.plain)
            for values, column in zip(columns, self._columns, strict=True)
        ]


def _comparable(plain: pa.Array) -> pa.Array:
    """A plain array in a type in which `==` compares exact values."""
    kind = plain.type
    if pa.types.is_float64(kind):
        return plain.view(pa.int64())  # -0.0 is not 0.0
    if pa.types.is_timestamp(kind):
        return plain.cast(pa.int64())
    return plain.cast(pa.int32()) if pa.types.is_date32(kind) else plain


def _plain(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_float64(kind):
        return pa.array(values, pa.int64()).view(kind)
    if pa.types.is_timestamp(kind):
        return pa.array(values, pa.int64()).cast(kind)
    if pa.types.is_date32(kind):
        return pa.array(values, pa.int32()).cast(kind)
    try:
        return pa.array(values, kind)
    except pa.ArrowInvalid:
        return pa.array(values)  # A decimal that has been widened.
