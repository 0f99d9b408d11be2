"""Tables where a `-D` removes the record of its key (`remove-record-on-delete`); decision 121.

Both cores begin the next record of the key with the values that the `-D` carries, and forget the
removal when they merge it with later rows and without the files before it. So `-D` is written
without values, later rows go into other files (`paimon.separate_files`), and compactions of such
tables take all files of a bucket.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.errors import TableError
from streamhouse.paimon.table import Table
from streamhouse.source import ROW_KIND

_ENGINES = ("aggregation", "partial-update")
Rows = TypeVar("Rows", pa.Table, pa.RecordBatch)


def removes_records(table: Table) -> bool:
    """Whether a `-D` removes the record of its key, whatever has been merged into it."""
    engine = table.options.get("merge-engine")
    option = f"{engine}.remove-record-on-delete"
    return engine in _ENGINES and table.options.get(option, "").lower() == "true"


def without_values(table: Table, rows: Rows) -> Rows:
    """The rows with nulls, or zeros where a column takes no null, beside key and sequence."""
    kept = {*table.primary_key, *table.partition_keys, ROW_KIND}
    kept |= set(table.options.get("sequence.field", "").split(","))
    for place, field in enumerate(rows.schema):
        if field.name not in kept:
            nullable = table.arrow_schema.field(field.name).nullable
            value = pa.nulls(rows.num_rows, field.type)
            if not nullable:
                value = pa.repeat(_zero(field.type), rows.num_rows)
            rows = rows.set_column(place, field.name, value)
    return rows


def removals_without_values(table: Table, batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch whose `-D` carry no values; its other rows as they are, in their order."""
    if ROW_KIND not in batch.schema.names:
        return batch
    removed = pc.equal(batch.column(ROW_KIND), "-D")
    if not pc.any(removed).as_py():
        return batch
    empty = without_values(table, batch)
    columns = [
        _chosen(removed, none, value)
        for none, value in zip(empty.columns, batch.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _chosen(mask: pa.Array, one: pa.Array, other: pa.Array) -> pa.Array:
    """`if_else`, which Arrow does not have for every nested type."""
    if one is other:
        return other
    places = np.arange(len(mask)) + np.where(mask.to_numpy(zero_copy_only=False), 0, len(mask))
    return pa.concat_arrays([one, other]).take(pa.array(places))


def _zero(kind: pa.DataType) -> pa.Scalar:
    values: tuple[object, ...] = (0, "", b"", False, [], {})
    for value in values:
        try:
            return pa.scalar(value, kind)
        except (pa.ArrowException, TypeError, ValueError):
            continue
    raise TableError(f"a row with a NOT NULL column of type {kind} cannot be deleted")
