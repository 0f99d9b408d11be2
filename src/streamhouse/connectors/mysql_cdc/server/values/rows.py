"""Converts rows to Arrow batches of the source's schema and the row kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from streamhouse.connectors.mysql_cdc.server.values.date_targets import convert_dates
from streamhouse.connectors.mysql_cdc.server.values.dates import DateReading, ZeroDates, text_keys
from streamhouse.connectors.mysql_cdc.server.values.key_targets import (
    check_booleans,
    check_key,
    keeps_apart,
)
from streamhouse.connectors.mysql_cdc.server.values.types import (
    MySqlColumn,
    convert,
    from_texts,
    from_values,
)
from streamhouse.source import ROW_KIND

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
        texts = self.text_keys
        return [
            DateReading(self.zero_dates, column.name in self.key, column.name in texts)
            for column, _ in self.columns
        ]

    @property
    def text_keys(self) -> frozenset[str]:
        """The names of the key's columns that are written as texts."""
        return text_keys(self.key, {column.name: target for column, target in self.columns})

    def snapshot(self, columns: Sequence[pa.Array]) -> pa.RecordBatch:
        """Rows of a SELECT as inserts, from binary arrays of its columns."""
        plain = [
            from_texts(column, columns[i], self._readings[i])
            for i, (column, _) in enumerate(self.columns)
        ]
        return self._batch(self._converted(plain), pa.repeat(_INSERT, len(columns[0])))

    def changes(self, kinds: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> pa.RecordBatch:
        """Rows of the binlog, with their kinds."""
        values = list(zip(*rows, strict=True))
        plain = [
            from_values(column, values[i], self._readings[i])
            for i, (column, _) in enumerate(self.columns)
        ]
        return self._batch(self._converted(plain), pa.array(kinds, pa.string()))

    def changed(self, kinds: pa.Array, plain: Sequence[pa.Array]) -> pa.RecordBatch:
        """Rows of the binlog, with their kinds, from plain arrays of their columns."""
        return self._batch(self._converted(plain[: len(self.columns)]), kinds)

    @cached_property
    def _checked(self) -> list[bool]:
        """Whether values of each column are checked, as their type could make keys equal."""
        return [
            column.name in self.key
            and not reading.as_text
            and not pa.types.is_boolean(target)
            and not keeps_apart(column, target, self.zone)
            for (column, target), reading in zip(self.columns, self._readings, strict=True)
        ]

    def _converted(self, plain: Sequence[pa.Array]) -> list[pa.Array]:
        arrays = []
        for (column, target), array, reading, checked in zip(
            self.columns, plain, self._readings, self._checked, strict=True
        ):
            if pa.types.is_boolean(target) and column.name in self.key:
                check_booleans(column, array)
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
