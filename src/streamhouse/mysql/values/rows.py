"""Converts rows to Arrow batches of the source's schema and the row kind."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.mysql.values.dates import (
    DateReading,
    ZeroDates,
    first_scalar,
    is_first,
    same_as_zero,
    text_keys,
    texts_of,
    with_digits,
    zero_text,
)
from streamhouse.mysql.values.key_targets import (
    check_instants,
    check_key,
    keeps_apart,
)
from streamhouse.mysql.values.types import MySqlColumn, convert, from_texts, zoned
from streamhouse.source import ROW_KIND


def convert_dates(
    column: MySqlColumn, plain: pa.Array, target: pa.DataType, zone: str, reading: DateReading
) -> pa.Array:
    """Convert a plain array to the type `target`, as `types.convert` does.

    `zone`: the server's. A rounded zero date is 0001-01-01 00:00:00 in any type, and never shifted
    to another zone: in a TIMESTAMP_LTZ it is that time in UTC.
    """
    if reading.as_text:
        return _zoned_texts(column, plain, zone)
    if reading.zero_dates == "ROUND":
        return _rounded(column, plain, target, zone, reading.in_key)
    return convert(column, plain, target, zone)


def _zoned_texts(column: MySqlColumn, texts: pa.Array, zone: str) -> pa.Array:
    """MySQL's texts as the server shows them, with the digits of `column`."""
    if column.family == "date":
        return texts
    if column.family == "datetime":
        return with_digits(texts, column.fraction)
    zero = zero_text(column, 0)
    is_zero = pc.starts_with(texts, zero)
    instants = pc.if_else(is_zero, pa.scalar(None, pa.string()), texts).cast(pa.timestamp("us"))
    plain = instants.cast(pa.int64()).cast(column.plain)
    check_instants(column, plain, zone)
    local = texts_of(zoned(plain, pa.timestamp("us"), zone), column.fraction)
    return pc.if_else(is_zero, zero_text(column, column.fraction), local)


def _rounded(
    column: MySqlColumn, plain: pa.Array, target: pa.DataType, zone: str, in_key: bool
) -> pa.Array:
    first = _first(target, column)
    if plain.type == target or first is None:
        return convert(column, plain, target, zone)
    is_zero = is_first(plain)
    some = pc.any(is_zero).as_py()
    if some:
        # A shift to another zone could leave the years that dates can have.
        plain = pc.if_else(is_zero, pa.scalar(None, plain.type), plain)
    converted = convert(column, plain, target, zone)
    if in_key and pc.any(pc.equal(converted, first)).as_py():
        raise same_as_zero(column, target)
    return pc.if_else(is_zero, first, converted) if some else converted


def _first(target: pa.DataType, column: MySqlColumn) -> pa.Scalar | None:
    """0001-01-01 in a type; None for types that have no dates."""
    if pa.types.is_date(target) or pa.types.is_timestamp(target):
        return first_scalar(target)
    if pa.types.is_string(target):
        kind = pa.date32() if column.family == "date" else pa.timestamp("us")
        return texts_of(pa.array([first_scalar(kind)]), column.fraction)[0]
    return None


_INSERT = pa.scalar("+I")


@dataclass(frozen=True)
class RowWriter:
    """Converts rows, which start with `columns`, to batches.

    `zone`: the time zone for converting between MySQL's DATETIME and instants. `key`: the names of
    the key's columns, whose declared types must keep different values different. `zero_dates`: how
    to read zero dates.
    """

    columns: tuple[tuple[MySqlColumn, pa.DataType], ...]
    zone: str
    key: frozenset[str] = frozenset()
    zero_dates: ZeroDates = "CONVERT_TO_NULL"

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns without the row kind."""
        return pa.schema([pa.field(column.name, target) for column, target in self.columns])

    @cached_property
    def _with_kind(self) -> pa.Schema:
        return self.schema.append(pa.field(ROW_KIND, pa.string()))

    @cached_property
    def _readings(self) -> list[DateReading]:
        """How to read dates of each column."""
        texts = text_keys(self.key, {column.name: target for column, target in self.columns})
        return [
            DateReading(self.zero_dates, column.name in self.key, column.name in texts)
            for column, _ in self.columns
        ]

    def snapshot(self, columns: Sequence[pa.Array]) -> pa.RecordBatch:
        """Rows of a SELECT as inserts, from binary arrays of its columns."""
        plain = [
            from_texts(column, columns[i], self._readings[i])
            for i, (column, _) in enumerate(self.columns)
        ]
        return self._batch(self._converted(plain), pa.repeat(_INSERT, len(columns[0])))

    def changed(self, kinds: pa.Array, plain: Sequence[pa.Array]) -> pa.RecordBatch:
        """Rows of the binlog, with their kinds, from plain arrays of their columns."""
        return self._batch(self._converted(plain[: len(self.columns)]), kinds)

    def inserted(self, plain: Sequence[pa.Array]) -> pa.RecordBatch:
        """Rows of the binlog as inserts, from plain arrays of their columns."""
        return self.changed(pa.repeat(_INSERT, len(plain[0])), plain)

    @cached_property
    def _checked(self) -> list[bool]:
        """Whether values of each column are checked, as their type could make keys equal."""
        return [
            column.name in self.key
            and not reading.as_text
            and not keeps_apart(column, target, self.zone)
            for (column, target), reading in zip(self.columns, self._readings, strict=True)
        ]

    def _converted(self, plain: Sequence[pa.Array]) -> list[pa.Array]:
        arrays = []
        for (column, target), array, reading, checked in zip(
            self.columns, plain, self._readings, self._checked, strict=True
        ):
            if column.has_date:
                converted = convert_dates(column, array, target, self.zone, reading)
            else:
                converted = convert(column, array, target, self.zone)
            if checked:
                check_key(column, array, converted, self.zone, reading)
            arrays.append(converted)
        return arrays

    def _batch(self, arrays: list[pa.Array], kinds: pa.Array) -> pa.RecordBatch:
        return pa.record_batch([*arrays, kinds], schema=self._with_kind)
