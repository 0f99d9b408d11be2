"""Checks a continuous GROUP BY: its target must merge the partial results of the batches."""

from collections.abc import Collection

from sqlglot import exp

from streamhouse.errors import NotStreamedError
from streamhouse.sql.functions.expression_builders import current_time_name
from streamhouse.sql.resolution.insert_target import aggregate
from streamhouse.sql.streaming.generated_sql import bound, rows
from streamhouse.sql.streaming.stream_select import (
    OutputColumn,
    StreamSelect,
    is_constant,
    plain_text,
)
from streamhouse.sql.types import base, scale

# The merge functions of an aggregation table that combine partial results of each aggregate.
_MERGES: dict[type[exp.Expr], tuple[str, ...]] = {
    exp.Sum: ("sum",),
    exp.Count: ("sum",),
    exp.Min: ("min",),
    exp.Max: ("max",),
    exp.LastValue: ("last_value", "last_non_null_value"),
    exp.FirstValue: ("first_value",),
}
# Merge functions that keep one value, so a group's value may be written any number of times.
_KEEP_ONE_VALUE = (
    "last_value", "last_non_null_value", "first_value", "first_non_null_value", "min", "max",
)  # fmt: skip


def check(top: StreamSelect) -> bool:
    """Check that the target can merge partial results; False if the query does not aggregate.

    The target must be an aggregation table whose primary key is exactly the GROUP BY, with a merge
    function for each aggregate. Else raises `NotStreamedError`.
    """
    if not top.aggregates:
        return False
    target = top.target
    merges = target is not None and target.capabilities.merges and target.primary_key
    if target is None or not merges or target.options.get("merge-engine") != "aggregation":
        reason = "an aggregation whose target has no 'merge-engine' = 'aggregation'"
        raise NotStreamedError(reason)
    groups = {plain_text(item) for item in top.group if not is_constant(item)}
    # No key is NULL, or depends on the time of the batch.
    keys = [
        None if each.item is None or isinstance(each.item.unnest(), exp.Null)
        else _groups_used(each.item, groups, current_times=False)
        for each in top.outputs if each.in_key
    ]  # fmt: skip
    if None in keys or groups != set().union(*(parts or () for parts in keys)):
        key = ", ".join(target.primary_key)
        raise NotStreamedError(f"a GROUP BY that is not the primary key of its target, {key}")
    for each, item in top.given:
        if not each.in_key:
            _check_merge(each, item.unnest(), groups)
    return True


def _groups_used(item: exp.Expr, groups: Collection[str], current_times: bool) -> set[str] | None:
    """The grouping expressions that a value is computed from; None if it needs anything else.

    `current_times`: it may also use the time of the batch.
    """
    inner = item.unnest()
    text = inner.sql()
    if text in groups:
        return {text}
    if isinstance(inner, exp.Column | exp.AggFunc):
        return None
    if current_time_name(inner) is not None and not current_times:
        return None
    used_groups: set[str] = set()
    for child in inner.iter_expressions():
        parts = _groups_used(child, groups, current_times)
        if parts is None:
            return None
        used_groups |= parts
    return used_groups


def _check_merge(each: OutputColumn, item: exp.Expr, groups: Collection[str]) -> None:
    inner = aggregate(item)
    allowed = _MERGES.get(type(inner), ())
    if isinstance(inner, exp.AggFunc) and inner.find(exp.Distinct):
        raise NotStreamedError("an aggregate of DISTINCT values")
    if not allowed and _groups_used(item, groups, current_times=True) is not None:
        allowed = _KEEP_ONE_VALUE
    if each.function not in allowed:
        needed = f"not by {allowed[0]}" if allowed else "which does not compute its expression"
        raise NotStreamedError(f"column '{each.name}' merges by {each.function}, {needed}")


def check_scales(top: StreamSelect) -> None:
    """Raise `NotStreamedError` for a SUM with a larger scale than its DECIMAL column.

    Each micro-batch writes the sum of its own rows, and the table adds it to the stored value. If
    each partial sum were rounded, the total would depend on how the rows were split into batches.
    """
    sums = {
        each.name: (each.column.type, aggregate(item))
        for each, item in top.given
        if base(each.column.type) == "DECIMAL" and isinstance(aggregate(item), exp.Sum)
    }
    if not sums:
        return
    partial = rows(top, [item for _, item in sums.values()], list(sums), signed=True)
    for name, kind in bound(top, partial):
        stored = sums[name][0]
        exact = base(kind) == "DECIMAL" and scale(kind) <= scale(stored)
        if not exact and base(kind) in ("DECIMAL", "FLOAT", "DOUBLE"):
            raise NotStreamedError(f"a sum of type {kind}, stored as {stored}")
