"""Filter conditions in the Rust core's form: `{"method": …, "field": …, "literals": […]}`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

Filter = Mapping[str, Any]
"""A comparison of one column, or a combination of several `children`."""


def all_of(conditions: Sequence[Filter]) -> Filter | None:
    """The condition that all of these hold; None without any."""
    if len(conditions) > 1:
        return {"method": "and", "children": list(conditions)}
    return conditions[0] if conditions else None


def only_on(condition: Filter | None, allowed: Callable[[str], bool]) -> Filter | None:
    """The part of a condition on `allowed` columns only, which passes the same rows or more."""
    if condition is None:
        return None
    if condition["method"] == "and":
        children = [only_on(child, allowed) for child in condition["children"]]
        return all_of([child for child in children if child is not None])
    return condition if all(map(allowed, _columns(condition))) else None


def matching(batch: pa.RecordBatch, condition: Filter) -> pa.RecordBatch:
    """Remove rows that do not meet a condition in the core's form, if the batch has its columns.

    Only `equal` and `in` are applied; the caller checks other comparisons, as it always does.
    """
    if condition["method"] == "and":
        for child in condition["children"]:
            batch = matching(batch, child)
    elif condition["method"] in ("equal", "in") and condition["field"] in batch.schema.names:
        column = batch.column(condition["field"])
        values = pa.array(condition["literals"], column.type)
        batch = batch.filter(pc.is_in(column, value_set=values))
    return batch


def _columns(condition: Filter) -> Iterator[str]:
    if "field" in condition:
        yield condition["field"]
    for child in condition.get("children", ()):
        yield from _columns(child)
