"""Rows that a format has parsed from records, and their columns, converted value by value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from streamhouse.formats.base import BadRecord, Decoded
from streamhouse.types import flink_type


class ValueMismatch(Exception):
    """A value that does not fit its column; the message has no column yet."""


@dataclass
class ParsedRows:
    """The values of each row, such as an object or a list of fields.

    `records` has the index of each row's record; None if it is that of the row. `bad` are the
    records that cannot be decoded, with the first reason of each.
    """

    rows: list[Any]
    records: list[int] | None
    bad: dict[int, str] = field(default_factory=dict)

    def record(self, row: int) -> int:
        """The index of a row's record."""
        return row if self.records is None else self.records[row]

    def report(self, row: int, reason: str) -> None:
        """Note that the record of a row is bad."""
        self.bad.setdefault(self.record(row), reason)

    def converted(
        self, column: pa.Field, values: Sequence[Any], convert: Callable[[int, Any], Any]
    ) -> pa.Array:
        """A column by `convert`, which gets the row and its value; what does not fit is null.

        Such values raise `ValueMismatch`, and their records are reported as bad.
        """
        found: list[Any] = []
        for row, value in enumerate(values):
            try:
                found.append(convert(row, value))
            except ValueMismatch as error:
                self.report(row, f"column '{column.name}': {error}")
                found.append(None)
            except RecursionError:
                self.report(row, f"column '{column.name}' is nested too deeply")
                found.append(None)
        return pa.array(found, column.type)

    def check_nulls(self, column: pa.Field, array: pa.Array, what: str = "null or missing") -> None:
        """Report the records whose value of a NOT NULL column is null."""
        if not column.nullable:
            for row in null_rows(array):
                kind = flink_type(column.type)
                self.report(row, f"column '{column.name}' is {kind} NOT NULL, but {what}")

    def decoded(self, arrays: Sequence[pa.Array], schema: pa.Schema, ignore: bool) -> Decoded:
        """The rows of all records that are not bad; `ignore`: bad records are not reported."""
        rows = pa.RecordBatch.from_arrays(list(arrays), schema=schema)
        if not arrays:
            # As of a Kafka record whose columns are all in its key.
            rows = pa.RecordBatch.from_struct_array(pa.array([{}] * len(self.rows), pa.struct([])))
        records = None if self.records is None else np.array(self.records, np.int64)
        if self.bad:
            of_rows = np.arange(rows.num_rows) if records is None else records
            kept = np.flatnonzero(~np.isin(of_rows, list(self.bad)))
            rows, records = rows.take(pa.array(kept)), of_rows[kept]
        bad = [] if ignore else [BadRecord(*item) for item in sorted(self.bad.items())]
        return Decoded(rows, records, bad)


def null_rows(array: pa.Array) -> list[int]:
    """The rows whose value is null."""
    if not array.null_count:
        return []
    found: list[int] = np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False)).tolist()
    return found
