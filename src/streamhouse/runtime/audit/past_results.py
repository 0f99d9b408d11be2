"""What a query gives for all rows that it has read, to compare it with another plan of itself."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa

from streamhouse.paimon.schema import evolution
from streamhouse.runtime.audit.recompute import Recomputation
from streamhouse.runtime.audit.recorded_batches import RecordedBatches
from streamhouse.runtime.query_spec import QuerySpec
from streamhouse.source import ROW_KIND, Offset

_CLOSE = 1e-9
"""Relative: the order of addition differs."""


def same_results(one: QuerySpec, other: QuerySpec, end: Offset) -> bool:
    """Whether two plans of a query give the same rows, in any order, up to an offset.

    Reads the source as it was at that offset, and the lookup tables as the batch joined them, with
    the types of each plan. Raises `StreamhouseError` if they are gone, or a column is.
    """
    return _same(_rows(one, end), _rows(other, end))


def _rows(spec: QuerySpec, end: Offset) -> pa.Table:
    rows = Recomputation(RecordedBatches(spec.target, (), {})).at_once(spec, end)
    if spec.sink is not None:
        return rows
    planned = spec.target.planned().read_schema(row_kind=ROW_KIND in rows.column_names)
    rows = rows.rename_columns(planned.names).cast(planned)
    return evolution.with_current_columns(rows, spec.target.open(), spec.target.schema_id)


def _same(a: pa.Table, b: pa.Table) -> bool:
    if a.num_rows != b.num_rows or a.num_columns != b.num_columns:
        return False
    if a.equals(b):
        return True
    rows = [sorted(map(tuple, map(dict.values, t.to_pylist())), key=_order) for t in (a, b)]
    return all(
        _equal(value, other)
        for pair in zip(*rows, strict=True)
        for value, other in zip(*pair, strict=True)
    )


def _order(row: tuple[Any, ...]) -> str:
    return repr([f"{value:.6g}" if isinstance(value, float) else value for value in row])


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return math.isclose(a, b, rel_tol=_CLOSE) or (math.isnan(a) and math.isnan(b))
    return bool(type(a) is type(b) and a == b)
