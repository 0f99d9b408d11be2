"""Checks a continuous GROUP BY: its target must merge the partial results of the batches."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from sqlglot import exp

from streamhouse.sql import functions, node_errors
from streamhouse.sql.options.merge_functions import merge_function
from streamhouse.sql.plan import TableInfo
from streamhouse.sql.resolution.insert_target import ColumnMapping, aggregate
from streamhouse.sql.text import Script

if TYPE_CHECKING:
    from streamhouse.sql.streaming.query_blocks import SelectBlock

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


def check(
    script: Script, block: SelectBlock, target: TableInfo | None, mappings: list[ColumnMapping]
) -> bool:
    """Check that the target can merge partial results; False if the query does not aggregate.

    The target must be an aggregation table whose primary key is exactly the GROUP BY, with a merge
    function for each aggregate. Else raises `NotStreamedError`.
    """
    aggregates = [node for item in block.items for node in item.find_all(exp.AggFunc)]
    if not aggregates and not block.group:
        return False
    node = block.group[0] if block.group else aggregates[0]
    if target is None or not _merges(target):
        reason = "an aggregation whose target has no 'merge-engine' = 'aggregation'"
        raise node_errors.not_streamed(script, node, reason)
    groups = {_text(item) for item in block.group if not is_constant(item)}
    key_groups = [
        None if mapping.index is None else _groups_of_key(block.items[mapping.index], groups)
        for mapping in mappings
        if mapping.column.name in target.primary_key
    ]
    if None in key_groups or groups != set().union(*(parts or () for parts in key_groups)):
        key = ", ".join(target.primary_key)
        reason = f"a GROUP BY that is not the primary key of its target, {key}"
        raise node_errors.not_streamed(script, node, reason)
    for mapping in mappings:
        if mapping.column.name not in target.primary_key:
            _check_merge(script, block, target, mapping, groups)
    return True


def _merges(target: TableInfo) -> bool:
    engine = target.options.get("merge-engine")
    return target.capabilities.merges and bool(target.primary_key) and engine == "aggregation"


def is_constant(item: exp.Expr) -> bool:
    """Whether an expression has one value for all rows of all batches; NULL does not count."""
    return item.find(exp.Column, exp.AggFunc, exp.Anonymous, exp.Null) is None


def _text(item: exp.Expr) -> str:
    return item.unnest().sql()


def _groups_of_key(item: exp.Expr, groups: Collection[str]) -> set[str] | None:
    """As `_groups_used` for a key column: no NULL, and no dependence on the time of the batch."""
    if isinstance(item.unnest(), exp.Null):
        return None
    return _groups_used(item, groups, current_times=False)


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
    if functions.current_time_name(inner) is not None and not current_times:
        return None
    used_groups: set[str] = set()
    for child in inner.iter_expressions():
        parts = _groups_used(child, groups, current_times)
        if parts is None:
            return None
        used_groups |= parts
    return used_groups


def _check_merge(
    script: Script,
    block: SelectBlock,
    target: TableInfo,
    mapping: ColumnMapping,
    groups: Collection[str],
) -> None:
    if mapping.index is None:
        return
    item = block.items[mapping.index].unnest()
    name, inner = mapping.column.name, aggregate(item)
    configured = merge_function(target.options, name)
    allowed = _MERGES.get(type(inner), ())
    if isinstance(inner, exp.AggFunc) and inner.find(exp.Distinct):
        raise node_errors.not_streamed(script, item, "an aggregate of DISTINCT values")
    if not allowed and _groups_used(item, groups, current_times=True) is not None:
        allowed = _KEEP_ONE_VALUE
    if configured not in allowed:
        needed = f"not by {allowed[0]}" if allowed else "which does not compute its expression"
        reason = f"column '{name}' merges by {configured}, {needed}"
        raise node_errors.not_streamed(script, item, reason)
