"""Builds the Arrow tables that procedures return."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

_TYPES = {str: pa.string(), int: pa.int64(), bool: pa.bool_(), float: pa.float64()}


def rows(columns: Mapping[str, type], values: Sequence[Sequence[Any]]) -> pa.Table:
    """Rows of named columns, each of type str, int, float or bool; any value may be None."""
    schema = pa.schema([(name, _TYPES[kind]) for name, kind in columns.items()])
    arrays = [
        pa.array([row[place] for row in values], field.type) for place, field in enumerate(schema)
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def row(**values: Any) -> pa.Table:
    """One row; the columns' types are those of the values, text for None."""
    kinds = {name: str if value is None else type(value) for name, value in values.items()}
    return rows(kinds, [list(values.values())])
