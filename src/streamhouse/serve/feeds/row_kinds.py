"""Adds the column `rowkind` to rows, and casts rows to newer schemas."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from streamhouse.source import ROW_KIND


def as_inserts(table: pa.Table) -> pa.Table:
    """The table with a leading `rowkind` column of `+I`."""
    return table.add_column(0, ROW_KIND, pa.repeat("+I", table.num_rows))


def select_as_inserts(batch: pa.RecordBatch, columns: Sequence[str]) -> pa.RecordBatch:
    """The batch's columns with a leading `rowkind` column of `+I`."""
    arrays = [pa.repeat("+I", batch.num_rows), *(batch.column(name) for name in columns)]
    return pa.record_batch(arrays, names=[ROW_KIND, *columns])


def cast_to_schema(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The table cast to a newer schema; added columns are null."""
    columns = [
        table.column(field.name).cast(field.type)
        if field.name in table.schema.names
        else pa.nulls(table.num_rows, field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)
