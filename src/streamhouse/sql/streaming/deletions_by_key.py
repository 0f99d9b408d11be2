"""Deletions that reach their target although a lookup has changed since (decision 235).

A lookup joins the rows of a dimension as they are now. So the row that a `-U` or `-D` takes back
may have had a match that is gone, or have passed a WHERE over the dimension that fails now. If the
target has the source's key, the row is known without the lookup. Retractions then pass INNER
lookups, WHERE conditions over lookups, and never wait for a match; conditions over the source alone
still apply, as they give the same result at any time.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from streamhouse.errors import SqlError
from streamhouse.sql import node_errors
from streamhouse.sql.functions.expression_builders import cast
from streamhouse.sql.options.merge_functions import group_sequence_fields, sequence_fields
from streamhouse.sql.plan import Column, TableInfo
from streamhouse.sql.resolution.insert_target import ColumnMapping
from streamhouse.sql.streaming import key_moves
from streamhouse.sql.streaming.generated_sql import Stream
from streamhouse.sql.streaming.inputs import inputs, reads_source_only
from streamhouse.sql.streaming.query_blocks import QueryBlock, conjuncts
from streamhouse.sql.streaming.retraction import retracts
from streamhouse.sql.types import base, duck_type

_REMOVE = "partial-update.remove-record-on-delete"
_ZEROS = {
    "STRING": "", "VARCHAR": "", "CHAR": "", "BYTES": "", "VARBINARY": "", "BINARY": "",
    "BOOLEAN": "false", "DATE": "1970-01-01", "TIME": "00:00:00",
    **dict.fromkeys(("TIMESTAMP", "TIMESTAMP_LTZ"), "1970-01-01 00:00:00"),
    **dict.fromkeys(("TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL"), "0"),
}  # fmt: skip


def check(stream: Stream, target: TableInfo, mappings: Sequence[ColumnMapping]) -> None:
    """Raise `UnsupportedSqlError` if a lookup decides which row of the target a retraction means.

    That is a column of the target's key, or one that orders the rows of a key.
    """
    ordering = {*sequence_fields(target.options), *group_sequence_fields(target.options)}
    for mapping in mappings:
        name = mapping.column.name
        if mapping.index is None or name not in {*target.primary_key, *ordering}:
            continue
        item = stream.top.items[mapping.index]
        if any(found.lookup for found in inputs(stream.top, item)):
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
    `QueryBlock.kept`.
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
                item if reads_source_only(block, item) else _guarded(block, item, passes)
                for item in block.items
            ]
    return [
        item
        if mapping.index is None or reads_source_only(top, top.items[mapping.index])
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
        removes = options.get(_REMOVE, "").lower() == "true"
        return removes or bool(group_sequence_fields(options))
    return engine == "deduplicate"


def _let_pass(block: QueryBlock) -> exp.Expr | None:
    """Set the block's WHERE for LEFT lookups: it drops the same rows, except retractions.

    Returns the condition that retractions need not fulfil; None if there is none.
    """
    parts = conjuncts(block.where)
    always = [part for part in parts if reads_source_only(block, part)]
    changing = [part for part in parts if not reads_source_only(block, part)]
    changing += [
        exp.Not(this=exp.Is(this=exp.column(lookup.keys[0], lookup.alias, quoted=True),
                            expression=exp.Null()))
        for lookup in block.lookups
        if not lookup.left
    ]  # fmt: skip
    passes = _all(changing) if changing else None
    if passes is not None:
        always.append(exp.Or(this=retracts(block.alias), expression=passes))
    block.kept = _all(always) if always else exp.true()
    return passes


def _all(parts: Sequence[exp.Expr]) -> exp.Expr:
    return exp.Paren(this=exp.and_(*(exp.Paren(this=part.copy()) for part in parts), copy=False))


def _guarded(
    block: QueryBlock, item: exp.Expr, passes: exp.Expr | None, column: Column | None = None
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
