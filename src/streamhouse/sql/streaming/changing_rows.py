"""Queries over rows that change: a retraction must find what its insert has written.

A row is added at one time and retracted at another. What is computed from the time (or joined at
it) then differs: a filter that let the row in drops its retraction, a sum subtracts another value
than it added. Such a row would stay for ever, so the time is refused there (decision 234). In a
plain column it is allowed: the target finds the row by its key.

A lookup joins the rows of a dimension as they are now. So the row that a `-U` or `-D` takes back
may have had a match that is gone, or have passed a WHERE over the dimension that fails now. If the
target has the source's key, the row is known without the lookup. Retractions then pass INNER
lookups, WHERE conditions over lookups, and never wait for a match; conditions over the source alone
still apply, as they give the same result at any time (decision 235).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqlglot import exp

from streamhouse.errors import SqlError
from streamhouse.sql import functions, node_errors
from streamhouse.sql.functions.expression_builders import cast
from streamhouse.sql.functions.macros import filled
from streamhouse.sql.options.merge_functions import (
    MERGING_ENGINES,
    group_sequence_fields,
    ignores_retractions,
    merge_function,
    removes_records,
    sequence_fields,
)
from streamhouse.sql.plan import Column, TableInfo
from streamhouse.sql.resolution.insert_target import ColumnMapping
from streamhouse.sql.select_parts import conjuncts
from streamhouse.sql.streaming import key_moves
from streamhouse.sql.streaming.generated_sql import Stream
from streamhouse.sql.streaming.query_blocks import SelectBlock
from streamhouse.sql.streaming.retraction import retracts
from streamhouse.sql.text import span
from streamhouse.sql.types import base, duck_type

_ZEROS = {
    "STRING": "", "VARCHAR": "", "CHAR": "", "BYTES": "", "VARBINARY": "", "BINARY": "",
    "BOOLEAN": "false", "DATE": "1970-01-01", "TIME": "00:00:00",
    **dict.fromkeys(("TIMESTAMP", "TIMESTAMP_LTZ"), "1970-01-01 00:00:00"),
    **dict.fromkeys(("TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL"), "0"),
}  # fmt: skip
_TAKEN_BACK = ("sum", "product", "count", "collect", "merge_map", "nested_update")
"""Merge functions that take a retracted value out of the merged one."""


def check_times(
    stream: Stream, target: TableInfo | None, mappings: Sequence[ColumnMapping]
) -> None:
    """Raise `NotStreamedError` for a time that a retraction would compute anew."""
    if not stream.changelog:
        return
    for block, item, where in [*_conditions(stream.top), *_values(stream.top, target, mappings)]:
        for found in block.inputs(item):
            if found.time:
                node = next((n for n in (found.node, item) if span(n)), block.select)
                reason = f"the current time {where}, over rows that change"
                raise node_errors.not_streamed(stream.script, node, reason)


def _conditions(top: SelectBlock) -> Iterator[tuple[SelectBlock, exp.Expr, str]]:
    for block in top.innermost_first():
        if block.where is not None:
            yield block, block.where, "in WHERE"
        for lookup in block.lookups:
            yield block, lookup.on, "in ON"
        for item in block.group:
            yield block, item, "in GROUP BY"


def _values(
    top: SelectBlock, target: TableInfo | None, mappings: Sequence[ColumnMapping]
) -> Iterator[tuple[SelectBlock, exp.Expr, str]]:
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


def check_lookups(stream: Stream, target: TableInfo, mappings: Sequence[ColumnMapping]) -> None:
    """Raise `UnsupportedSqlError` if a lookup decides which row of the target a retraction means.

    That is a column of the target's key, or one that orders the rows of a key.
    """
    ordering = {*sequence_fields(target.options), *group_sequence_fields(target.options)}
    for mapping in mappings:
        name = mapping.column.name
        if mapping.index is None or name not in {*target.primary_key, *ordering}:
            continue
        item = stream.top.items[mapping.index]
        if any(found.lookup for found in stream.top.inputs(item)):
            role = "part of the key" if name in target.primary_key else "a sequence field"
            raise _refusal(stream, item, f"column '{name}' of {'.'.join(target.name)} is {role}")


def _refusal(stream: Stream, item: exp.Expr, what: str) -> SqlError:
    return node_errors.unsupported(
        stream.script,
        item,
        f"{what} and comes from a lookup, but rows of {'.'.join(stream.source.name)} change: after "
        "a change of the lookup's table, the former row could not be found and would stay; select "
        "a column of the source here, and the lookup's column outside the key and sequence",
    )


def applied(
    stream: Stream, target: TableInfo, mappings: Sequence[ColumnMapping], items: list[exp.Expr]
) -> list[exp.Expr]:
    """Let retractions pass what depends on a lookup, if the target can delete by the source's key.

    `items` are the projections for the target's columns; returns those to use instead. Sets
    `SelectBlock.kept`.
    """
    top = stream.top
    if not stream.lookups or not stream.source.primary_key or not _deletes(target):
        return items
    if not key_moves.keeps_source_key(top, stream.source, target, mappings):
        return items
    for block in top.innermost_first():
        passes = _let_pass(block)
        if block is not top:
            block.items = [
                item if block.reads_source_only(item) else _guarded(block, item, passes)
                for item in block.items
            ]
    return [
        item
        if mapping.index is None or top.reads_source_only(top.items[mapping.index])
        else _guarded(top, item, passes, mapping.column)
        for item, mapping in zip(items, mappings, strict=True)
    ]


def _deletes(target: TableInfo) -> bool:
    """Whether a retraction with the key alone removes the row (or what the query wrote of it)."""
    options = target.options
    if not target.primary_key or options.get("ignore-delete", "").lower() == "true":
        return False
    engine = options.get("merge-engine", "deduplicate")
    if engine == "partial-update":
        return removes_records(options) or bool(group_sequence_fields(options))
    return engine == "deduplicate"


def _let_pass(block: SelectBlock) -> exp.Expr | None:
    """Set the block's WHERE for LEFT lookups: it drops the same rows, except retractions.

    Returns the condition that retractions need not fulfil; None if there is none.
    """
    parts = conjuncts(block.where)
    always = [part for part in parts if block.reads_source_only(part)]
    changing = [part for part in parts if not block.reads_source_only(part)]
    changing += [
        filled("NOT key IS NULL", key=exp.column(lookup.keys[0], lookup.alias, quoted=True))
        for lookup in block.lookups
        if not lookup.left
    ]
    passes = _all(changing) if changing else None
    if passes is not None:
        always.append(exp.Or(this=retracts(block.alias), expression=passes))
    block.kept = _all(always) if always else exp.true()
    return passes


def _all(parts: Sequence[exp.Expr]) -> exp.Expr:
    return exp.Paren(this=exp.and_(*(exp.Paren(this=part.copy()) for part in parts), copy=False))


def _guarded(
    block: SelectBlock, item: exp.Expr, passes: exp.Expr | None, column: Column | None = None
) -> exp.Expr:
    """An expression, null where the row does not pass: to compute it could fail.

    For the target's `column`, if that is NOT NULL, a retraction has zero or an empty value instead.
    """
    value = item if passes is None else exp.Case().when(passes.copy(), item.copy())
    zero = None if column is None or column.nullable else _ZEROS.get(base(column.type))
    if zero is None or column is None:
        return value
    zeros = [cast(exp.Literal.string(zero), duck_type(column.type))]
    either = exp.Coalesce(this=value.copy(), expressions=zeros)
    return exp.Case().when(retracts(block.alias), either).else_(value.copy())
