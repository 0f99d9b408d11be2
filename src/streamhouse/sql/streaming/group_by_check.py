"""Checks a continuous GROUP BY: its target must merge the partial results of the batches."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from sqlglot import exp

from streamhouse.errors import SqlError
from streamhouse.sql import functions, node_errors
from streamhouse.sql.options.merge_functions import merge_function
from streamhouse.sql.plan import TableInfo
from streamhouse.sql.resolution.insert_target import ColumnMapping, aggregate
from streamhouse.sql.text import Script

if TYPE_CHECKING:
    from streamhouse.sql.streaming.query_blocks import QueryBlock

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
    script: Script, block: QueryBlock, target: TableInfo | None, mappings: list[ColumnMapping]
) -> bool:
    """Check that the target can merge partial results; False if the query does not aggregate.

    The target must be an aggregation table whose primary key is exactly the GROUP BY. Raises
    `UnsupportedSqlError` that names the table declaration to use.
    """
    aggregates = [node for item in block.items for node in item.find_all(exp.AggFunc)]
    if not aggregates and not block.group:
        return False
    node = aggregates[0] if aggregates else block.group[0]
    if target is None:
        raise node_errors.unsupported(
            script,
            node,
            "a continuous aggregation needs a table that stores its results: INSERT INTO a "
            "table with 'merge-engine' = 'aggregation', or SET 'execution.runtime-mode' = 'batch'",
        )
    if not target.capabilities.merges:
        raise node_errors.unsupported(
            script,
            node,
            f"{_dotted(target)} (connector '{target.connector}') cannot merge partial sums; INSERT "
            "INTO a Paimon table with 'merge-engine' = 'aggregation', and read that one",
        )
    if not target.primary_key or target.options.get("merge-engine") != "aggregation":
        raise node_errors.unsupported(script, node, _declaration(script, block, target, mappings))
    groups = {_text(item) for item in block.group if not is_constant(item)}
    where = block.group[0] if block.group else node
    key_groups: set[str] = set()
    for mapping in mappings:
        if mapping.column.name not in target.primary_key:
            continue
        parts = (
            None if mapping.index is None else _groups_of_key(block.items[mapping.index], groups)
        )
        if parts is None:
            raise _not_the_key(script, where, block, target, mappings)
        key_groups |= parts
    if key_groups != groups:
        raise _not_the_key(script, where, block, target, mappings, groups - key_groups)
    for mapping in mappings:
        if mapping.column.name not in target.primary_key:
            _check_merge(script, block, target, mapping, groups)
    return True


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


def _not_the_key(
    script: Script,
    node: exp.Expr,
    block: QueryBlock,
    target: TableInfo,
    mappings: list[ColumnMapping],
    wrong: Collection[str] = (),
) -> SqlError:
    """The error for a GROUP BY that is not the target's primary key; `wrong`: surplus groups."""
    message = (
        f"GROUP BY must be exactly the primary key of {_dotted(target)}: "
        f"{', '.join(target.primary_key)}; declare another key, or change GROUP BY"
    )
    for mapping in mappings:
        if mapping.index is None or mapping.column.name in target.primary_key:
            continue
        item = block.items[mapping.index].unnest()
        if isinstance(item, exp.Column) and _text(item) in wrong:
            message += f": LAST_VALUE({item.name}) fills '{mapping.column.name}' without it"
            break
    return node_errors.unsupported(script, node, message)


def _check_merge(
    script: Script,
    block: QueryBlock,
    target: TableInfo,
    mapping: ColumnMapping,
    groups: Collection[str],
) -> None:
    if mapping.index is None:
        return
    item = block.items[mapping.index].unnest()
    name, inner = mapping.column.name, aggregate(item)
    key, configured = f"fields.{name}.aggregate-function", merge_function(target.options, name)
    allowed = _MERGES.get(type(inner), ())
    if isinstance(inner, exp.AggFunc) and inner.find(exp.Distinct):
        allowed = ()
    if not allowed and _groups_used(item, groups, current_times=True) is not None:
        if configured in _KEEP_ONE_VALUE:
            return
        raise node_errors.unsupported(
            script,
            item,
            f"column '{name}' of {_dotted(target)} merges by {configured}, but the query returns "
            f"one value per group; declare '{key}' = 'last_value'",
        )
    if not allowed:
        raise node_errors.unsupported(
            script,
            item,
            f"column '{name}': a continuous GROUP BY takes only SUM, COUNT, MIN, MAX, "
            "FIRST_VALUE and LAST_VALUE, each as its own column; for an average, store "
            "SUM and COUNT, and divide when reading",
        )
    if configured not in allowed:
        raise node_errors.unsupported(
            script,
            item,
            f"column '{name}' of {_dotted(target)} merges by {configured}; "
            f"for this aggregate declare '{key}' = '{allowed[0]}'",
        )


def _declaration(
    script: Script, block: QueryBlock, target: TableInfo, mappings: list[ColumnMapping]
) -> str:
    options = ["'merge-engine' = 'aggregation'"]
    for mapping in mappings:
        item = block.items[mapping.index].unnest() if mapping.index is not None else None
        merges = _MERGES.get(type(aggregate(item))) if item is not None else None
        if merges:
            options.append(f"'fields.{mapping.column.name}.aggregate-function' = '{merges[0]}'")
    return (
        f"GROUP BY on a stream needs a target that merges the sums: declare {_dotted(target)} with "
        f"a PRIMARY KEY of the grouping columns and WITH ({', '.join(options)})"
    )


def _dotted(target: TableInfo) -> str:
    return "table " + ".".join(target.name)
