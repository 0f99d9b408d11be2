"""Filter conditions in the Rust core's form: `{"method": …, "field": …, "literals": […]}`.

Spark's filters, and sets of keys, become conditions where both mean the same.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from pyspark.sql import datasource as spark

Filter = Mapping[str, Any]
"""A comparison of one column, or a combination of several `children`."""


def all_of(conditions: Iterable[Filter | None]) -> Filter | None:
    """The condition that all of these hold, but for those that are None; None without any."""
    children = [condition for condition in conditions if condition is not None]
    if len(children) > 1:
        return {"method": "and", "children": children}
    return children[0] if children else None


def only_on(condition: Filter | None, allowed: Callable[[str], bool]) -> Filter | None:
    """The part of a condition on `allowed` columns only, which passes the same rows or more."""
    if condition is None:
        return None
    if condition["method"] == "and":
        return all_of(only_on(child, allowed) for child in condition["children"])
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


# By class name: statements use this module, too, and need not import PySpark.
_COMPARISONS = {
    "EqualTo": "equal",
    "GreaterThan": "greaterThan",
    "GreaterThanOrEqual": "greaterOrEqual",
    "LessThan": "lessThan",
    "LessThanOrEqual": "lessOrEqual",
    "StringStartsWith": "startsWith",
    "StringEndsWith": "endsWith",
    "StringContains": "contains",
}
_FLOAT_SAFE = ("equal", "lessThan", "lessOrEqual", "in")
"""Comparisons that are safe for floats: Spark sorts NaN last, and file statistics ignore it."""


def push(filters: Iterable[spark.Filter], schema: pa.Schema) -> Filter | None:
    """One condition for all the filters that can be pushed down, None if none can.

    It may pass too many rows, never too few: Spark must apply all its filters again.
    """
    return all_of(_condition(spark_filter, schema) for spark_filter in filters)


def keys_filter(fields: Iterable[pa.Field], keys: pa.Table) -> Filter | None:
    """A filter that all rows with one of the keys pass; `fields` are those of the key's columns.

    Other rows may pass it, too: each column is compared with its own values in `keys`. None if no
    column can be pushed down.
    """
    return all_of(
        compared("in", field, keys.column(field.name).unique().to_pylist()) for field in fields
    )


def _condition(spark_filter: spark.Filter, schema: pa.Schema) -> dict[str, Any] | None:
    path: tuple[str, ...] = getattr(spark_filter, "attribute", ())
    if len(path) != 1 or schema.get_field_index(path[0]) < 0:
        return None
    field = schema.field(path[0])
    name = type(spark_filter).__name__
    if name in ("IsNull", "IsNotNull"):
        return {
            "method": "isNull" if name == "IsNull" else "isNotNull",
            "field": field.name,
        }
    if name == "In":
        return compared("in", field, list(getattr(spark_filter, "value", ())))
    method = _COMPARISONS.get(name)
    return (
        None if method is None else compared(method, field, [getattr(spark_filter, "value", None)])
    )


def compared(method: str, field: pa.Field, values: list[Any]) -> dict[str, Any] | None:
    """A comparison of a column in the core's form; None if the core would compare differently."""
    fits = next((check for is_type, check in _FITS if is_type(field.type)), None)
    if fits is None or not values or not all(fits(field.type, value) for value in values):
        return None
    if pa.types.is_floating(field.type) and method not in _FLOAT_SAFE:
        return None
    return {"method": method, "field": field.name, "literals": values}


def _integer_fits(data_type: pa.DataType, value: Any) -> bool:
    limit = 1 << (data_type.bit_width - 1)
    return type(value) is int and -limit <= value < limit


def _float_fits(data_type: pa.DataType, value: Any) -> bool:
    return isinstance(value, float) and math.isfinite(value) and value != 0.0


def _timestamp_fits(data_type: pa.TimestampType, value: Any) -> bool:
    """Whether the literal keeps its value in the column's precision.

    True for whole seconds, and for whole milliseconds if the column's unit is milliseconds.
    """
    if not isinstance(value, datetime.datetime) or (value.tzinfo is None) != (data_type.tz is None):
        return False
    return value.microsecond == 0 or (data_type.unit == "ms" and value.microsecond % 1000 == 0)


_FITS: list[tuple[Callable[[pa.DataType], bool], Callable[[Any, Any], bool]]] = [
    (pa.types.is_integer, _integer_fits),
    (pa.types.is_floating, _float_fits),
    (pa.types.is_string, lambda _, value: isinstance(value, str)),
    (pa.types.is_boolean, lambda _, value: isinstance(value, bool)),
    (pa.types.is_date, lambda _, value: type(value) is datetime.date),
    (pa.types.is_timestamp, _timestamp_fits),
]
