"""The time in queries over rows that change: refused where a retraction must repeat its insert.

A row is added at one time and retracted at another. What is computed from the time (or joined at
it) then differs: a filter that let the row in drops its retraction, a sum subtracts another value
than it added. Such a row would stay for ever (decision 234). In a plain column the time is allowed:
the target finds the row by its key, and a retraction's other values do not count.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqlglot import exp

from streamhouse.sql import functions, node_errors
from streamhouse.sql.options.merge_functions import (
    MERGING_ENGINES,
    group_sequence_fields,
    ignores_retractions,
    merge_function,
    sequence_fields,
)
from streamhouse.sql.plan import TableInfo
from streamhouse.sql.resolution.insert_target import ColumnMapping
from streamhouse.sql.streaming.generated_sql import Stream
from streamhouse.sql.streaming.inputs import inputs
from streamhouse.sql.streaming.query_blocks import QueryBlock
from streamhouse.sql.text import span

_TAKEN_BACK = ("sum", "product", "count", "collect", "merge_map", "nested_update")
"""Merge functions that take a retracted value out of the merged one."""


def check(stream: Stream, target: TableInfo | None, mappings: Sequence[ColumnMapping]) -> None:
    """Raise `UnsupportedSqlError` for a time that a retraction would compute anew."""
    if not stream.changelog:
        return
    for block, item, where in [*_conditions(stream.top), *_values(stream.top, target, mappings)]:
        for found in inputs(block, item):
            if found.time:
                node = next((n for n in (found.node, item) if span(n)), block.select)
                raise node_errors.unsupported(
                    stream.script,
                    node,
                    f"the current time {where}: rows of {'.'.join(stream.source.name)} change, and "
                    "a row would be retracted by another time than it was added by, so it would "
                    "stay; use a time that is stored in the row, or apply the current time when "
                    "reading the target (in a view or a bounded query)",
                )


def _conditions(top: QueryBlock) -> Iterator[tuple[QueryBlock, exp.Expr, str]]:
    for block in top.innermost_first():
        if block.where is not None:
            yield block, block.where, "in WHERE"
        for lookup in block.lookups:
            yield block, lookup.on, "in ON"
        for item in block.group:
            yield block, item, "in GROUP BY"


def _values(
    top: QueryBlock, target: TableInfo | None, mappings: Sequence[ColumnMapping]
) -> Iterator[tuple[QueryBlock, exp.Expr, str]]:
    """The projections of which a retraction must have the same value as its insert."""
    if target is None:
        return
    ordering = {*sequence_fields(target.options), *group_sequence_fields(target.options)}
    for mapping in mappings:
        name = mapping.column.name
        if mapping.index is None:
            continue
        item = top.items[mapping.index]
        function = merge_function(target.options, name)
        if not target.primary_key:
            yield top, item, f"in '{name}' of a target without a primary key"
        elif name in target.primary_key:
            yield top, item, f"in '{name}', part of the target's key"
        elif name in ordering:
            if not _grows(item):
                yield top, item, f"in the sequence field '{name}'"
        elif (
            target.options.get("merge-engine") in MERGING_ENGINES
            and function in _TAKEN_BACK
            and not ignores_retractions(target.options, name)
        ):
            yield top, item, f"in '{name}', which merges by {function}"


def _grows(item: exp.Expr) -> bool:
    """Whether a projection is the current time itself, which orders changes as they come."""
    inner = item.unnest()
    while isinstance(inner, exp.Cast):
        inner = inner.this.unnest()
    return functions.current_time_name(inner) not in (None, "LOCALTIME")
