"""Columns of generated rows: the interface, and ROW, ARRAY and MAP of other columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from streamhouse.connectors.datagen.disorder import share
from streamhouse.connectors.datagen.random_streams import RowNumbers, unit_interval
from streamhouse.errors import OptionError
from streamhouse.sql.plan import Column


class ColumnValues(Protocol):
    """Generates a column, or a part of one."""

    @property
    def type(self) -> pa.DataType: ...

    def values(self, rows: RowNumbers) -> pa.Array:
        """One value for each row."""


@dataclass(frozen=True)
class Row:
    """A ROW of other columns."""

    type: pa.StructType
    fields: tuple[ColumnValues, ...]

    def values(self, rows: RowNumbers) -> pa.Array:
        arrays = [field.values(rows) for field in self.fields]
        return pa.StructArray.from_arrays(arrays, fields=list(self.type))


@dataclass(frozen=True)
class Array:
    """An ARRAY of `length` elements."""

    type: pa.ListType
    element: ColumnValues
    length: int

    def values(self, rows: RowNumbers) -> pa.Array:
        offsets = pa.array(np.arange(len(rows) + 1, dtype=np.int32) * self.length)
        elements = self.element.values(rows.elements(self.length))
        return pa.ListArray.from_arrays(offsets, elements, type=self.type)


@dataclass(frozen=True)
class Map:
    """A MAP of at most `length` entries: those of an equal key are one."""

    type: pa.MapType
    key: ColumnValues
    value: ColumnValues
    length: int

    def values(self, rows: RowNumbers) -> pa.Array:
        entries = rows.elements(self.length)
        of_row = np.repeat(np.arange(len(rows)), self.length)
        table = pa.table(
            {
                "row": of_row,
                "key": self.key.values(entries),
                "at": np.arange(len(of_row)),
            }
        )
        first = table.group_by(["row", "key"], use_threads=False).aggregate([("at", "min")])
        kept = np.sort(first.column("at_min").to_numpy())
        counts = np.bincount(of_row[kept], minlength=len(rows))
        offsets = pa.array(np.concatenate([[0], np.cumsum(counts)]).astype(np.int32))
        keys = table.column("key").combine_chunks().take(pa.array(kept))
        values = self.value.values(entries).take(pa.array(kept))
        return pa.MapArray.from_arrays(offsets, keys, values, type=self.type)


@dataclass(frozen=True)
class Nullable:
    """A column of which some values are null; `rate`: their share."""

    column: ColumnValues
    name: str
    rate: float

    @property
    def type(self) -> pa.DataType:
        return self.column.type

    def values(self, rows: RowNumbers) -> pa.Array:
        values = self.column.values(rows)
        absent = unit_interval(rows.bits(self.name, "null")) < self.rate
        places = pa.array(np.arange(len(rows)), mask=absent)
        return values.take(places)


def with_nulls(
    values: ColumnValues, column: Column, name: str, key: str, text: str
) -> ColumnValues:
    """The values with nulls at the rate `text` of the option `key`; `name` seeds which are null.

    Raises `OptionError` for a rate of a column that is NOT NULL.
    """
    rate = share(key, text)
    if rate == 0:
        return values
    check_nullable(column, key)
    return Nullable(values, name, rate)


def check_nullable(column: Column, key: str) -> None:
    """Raise `OptionError` if the option `key` would make nulls in a column that is NOT NULL."""
    if not column.nullable:
        raise OptionError(
            f"option '{key}': column '{column.name}' is NOT NULL; leave this option out"
        )
