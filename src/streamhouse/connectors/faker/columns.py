"""The values of a column: an expression cast to the column's type; a ROW, ARRAY or MAP of such."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.connectors.datagen.random_streams import unit_interval
from streamhouse.connectors.faker.directives import compute
from streamhouse.connectors.faker.expression import Directive
from streamhouse.connectors.faker.rows import RowNumbers
from streamhouse.errors import OptionError


class ColumnValues(Protocol):
    """Generates a column, or a part of one."""

    @property
    def type(self) -> pa.DataType: ...

    def values(self, rows: RowNumbers) -> pa.Array:
        """One value for each row."""


@dataclass(frozen=True)
class Scalar:
    """An expression; `key`: its option. `length`: the most characters, None: any number."""

    type: pa.DataType
    key: str
    parts: tuple[str | Directive, ...]
    length: int | None
    locale: str

    def values(self, rows: RowNumbers) -> pa.Array:
        try:
            found = self._evaluated(rows)
            return _cast(found, self.type, self.length)
        except (ValueError, pa.ArrowException) as error:
            reason = str(error).splitlines()[0]
            if isinstance(error, pa.ArrowException):
                reason = f"its values do not fit the column's type: {reason}"
            raise OptionError(f"option '{self.key}': {reason}") from None

    def _evaluated(self, rows: RowNumbers) -> pa.Array:
        values = [
            compute(part, rows, f"{self.key}.{number}", self.locale)
            if isinstance(part, Directive)
            else pa.scalar(part)
            for number, part in enumerate(self.parts)
        ]
        if len(values) == 1 and isinstance(values[0], pa.Array):
            return values[0]
        texts = [one.cast(pa.string()) for one in values]
        if not any(isinstance(one, pa.Array) for one in texts):
            return pa.repeat("".join(one.as_py() for one in texts), len(rows))
        return pc.binary_join_element_wise(*texts, pa.scalar(""))


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


def _cast(values: pa.Array, kind: pa.DataType, length: int | None) -> pa.Array:
    if pa.types.is_string(kind):
        texts = values.cast(pa.string())
        return texts if length is None else pc.utf8_slice_codeunits(texts, 0, length)
    if values.type == kind:
        return values
    if pa.types.is_decimal(kind) and not pa.types.is_integer(values.type):
        rounded = pc.round(values.cast(pa.float64()), ndigits=kind.scale)
        return rounded.cast(kind)
    if pa.types.is_decimal(kind):
        return values.cast(pa.decimal128(38, 0)).cast(kind)
    if pa.types.is_binary(kind):
        return values.cast(pa.string()).cast(kind)
    if pa.types.is_timestamp(values.type):
        return _time(values, kind)
    if pa.types.is_timestamp(kind) and pa.types.is_string(values.type):
        return _time(values.cast(pa.timestamp("us")), kind)
    if pa.types.is_floating(values.type) and pa.types.is_integer(kind):
        return values.cast(kind, safe=False)
    return values.cast(kind)


def _time(values: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return values.cast(pa.timestamp(kind.unit), safe=False).cast(pa.int64()).cast(kind)
    return values.cast(kind, safe=False)
