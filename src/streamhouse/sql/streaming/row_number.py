"""`ROW_NUMBER() … = 1`: the newest (or oldest) row of each key, as an upsert by that key.

A continuous query keeps no state to number rows in. But a table with that primary key keeps one row
of each key, and its `sequence.field` decides which. So the row number is removed from the query if
the target is such a table; a view computes any other ROW_NUMBER.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from streamhouse.sql import functions, node_errors
from streamhouse.sql.options.merge_functions import sequence_fields
from streamhouse.sql.plan import TableInfo
from streamhouse.sql.resolution import columns
from streamhouse.sql.resolution.columns import Visible
from streamhouse.sql.resolution.insert_target import ColumnMapping
from streamhouse.sql.streaming.group_by_check import is_constant
from streamhouse.sql.text import Script
from streamhouse.sql.types import keeps_order

if TYPE_CHECKING:
    from streamhouse.sql.streaming.query_blocks import SelectBlock


@dataclass(frozen=True)
class Ranked:
    """PARTITION BY and ORDER BY of a block's ROW_NUMBER, with resolved names.

    `newest`: the order is descending; None without one direction. `nulls_first`: for each
    expression of `order`, whether NULL sorts first.
    """

    node: exp.Expr
    partition: tuple[exp.Expr, ...]
    order: tuple[exp.Expr, ...]
    newest: bool | None
    nulls_first: tuple[bool, ...]

    @classmethod
    def of(cls, script: Script, window: exp.Expr, visible: Visible) -> Ranked:
        """The ranking of a window."""
        ordered = window.args["order"].expressions if window.args.get("order") else []
        newest = {bool(item.args.get("desc")) for item in ordered}
        partition = window.args.get("partition_by") or []
        return cls(
            window,
            tuple(columns.resolve(script, item.copy(), visible) for item in partition),
            tuple(columns.resolve(script, item.this.copy(), visible) for item in ordered),
            newest.pop() if len(newest) == 1 else None,
            # The parser has set the default: NULL is the smallest value.
            tuple(bool(item.args.get("nulls_first")) for item in ordered),
        )


def taken(select: exp.Select) -> tuple[str, exp.Expr] | None:
    """The name and the window of the only ROW_NUMBER of a SELECT, which becomes the constant 1."""
    found = [
        item
        for item in select.expressions
        if isinstance(item, exp.Alias)
        and isinstance(item.this, exp.Window)
        and isinstance(item.this.this, exp.RowNumber)
    ]
    if len(found) != 1:
        return None
    window = found[0].this
    found[0].set("this", exp.cast(exp.Literal.number(1), "BIGINT"))
    return found[0].alias, window


def filter_first(script: Script, block: SelectBlock) -> None:
    """Remove `rn = 1` from a block over a ROW_NUMBER, or let it pass the number on.

    Raises `NotStreamedError` for a block that does something else, and for a ROW_NUMBER without
    PARTITION BY, or of mixed directions.
    """
    below = block.below
    if below is None or below.number is None:
        return
    ranked = next(one.ranked for one in block.innermost_first() if one.ranked is not None)
    if block.where is not None and _is_first(block.where.unnest(), block.alias, below.number):
        block.where = None
        if not ranked.partition or ranked.newest is None:
            reason = "ROW_NUMBER without PARTITION BY, or without ORDER BY in one direction"
            raise node_errors.not_streamed(script, ranked.node, reason)
        return
    if not columns.first_set(block.select.args, ("expressions", "from_")) and all(
        isinstance(item, exp.Column) for item in block.items
    ):
        pairs = zip(block.names, block.items, strict=True)
        block.number = next((name for name, item in pairs if item.name == below.number), None)
    if block.number is None:
        reason = "ROW_NUMBER without WHERE … = 1 alone"
        raise node_errors.not_streamed(script, ranked.node, reason)


def _is_first(inner: exp.Expr, alias: str, name: str) -> bool:
    """Whether a condition is `rn = 1`, `1 = rn`, `rn <= 1` or `rn < 2`."""
    if not isinstance(inner, exp.EQ | exp.LTE | exp.LT):
        return False
    left, right = inner.left.unnest(), inner.right.unnest()
    if isinstance(inner, exp.EQ) and isinstance(right, exp.Column):
        left, right = right, left
    limit = "2" if isinstance(inner, exp.LT) else "1"
    is_number = isinstance(left, exp.Column) and (left.table, left.name) == (alias, name)
    return is_number and right.sql() == limit


def check(
    script: Script,
    top: SelectBlock,
    source: TableInfo,
    changelog: bool,
    target: TableInfo | None,
    mappings: list[ColumnMapping],
) -> str:
    """A description of the row that the upsert keeps; empty for a query without ROW_NUMBER.

    Raises `NotStreamedError` for a target that keeps other rows.
    """
    blocks = top.innermost_first()
    block = next((level for level in blocks if level.ranked is not None), None)
    if block is None or block.ranked is None:
        return ""
    ranked, outer = block.ranked, blocks[blocks.index(block) + 1 :]
    if (
        target is None
        or not target.capabilities.merges
        or any(map(_drops_rows, outer))
        or not _keeps(_Target(target, top, block, mappings), source, changelog)
    ):
        reason = "ROW_NUMBER whose row the target does not keep by its key and sequence.field"
        raise node_errors.not_streamed(script, ranked.node, reason)
    word = "newest" if ranked.newest else "oldest"
    return f"upsert: {word} by {', '.join(_column_names(ranked.order))} of each " + ", ".join(
        target.primary_key
    )


def _drops_rows(block: SelectBlock) -> bool:
    """Whether a block around the ranking may drop the newest row of a key."""
    return bool(block.where or block.group) or not all(lookup.left for lookup in block.lookups)


class _Target:
    """A query's target, with its columns as expressions of the ranked block."""

    def __init__(
        self, table: TableInfo, top: SelectBlock, block: SelectBlock, mappings: list[ColumnMapping]
    ) -> None:
        assert block.ranked is not None
        self.table, self.block, self.ranked = table, block, block.ranked
        self.sequence = sequence_fields(table.options)
        self.expressions = {m.column.name: _at_block(top, m, block) for m in mappings}
        # A constant column does not distinguish rows, so it need not be in PARTITION BY.
        constant = {
            m.column.name
            for m in mappings
            if m.index is not None and is_constant(top.items[m.index])
        }
        self.keys = {self.expressions[key] for key in table.primary_key if key not in constant}


def _keeps(target: _Target, source: TableInfo, changelog: bool) -> bool:
    """Whether the target keeps the row that the ranking selects."""
    if target.keys != {_text(item) for item in target.ranked.partition}:
        return False
    if changelog:
        # If several rows share a key and the newest is deleted, the next one is not known.
        partition = {target.block.source_column(item) for item in target.ranked.partition}
        return set(source.primary_key) <= partition
    return _orders(target) and _sorts_nulls_last(target, source) and _keeps_digits(target, source)


def _orders(target: _Target) -> bool:
    """Whether the merge engine and `sequence.field` keep the last row in the ranking's order."""
    ranked, options = target.ranked, target.table.options
    engine = options.get("merge-engine", "deduplicate")
    if len(ranked.order) == 1 and functions.current_time_name(ranked.order[0]) == "PROCTIME":
        return not target.sequence and engine == ("deduplicate" if ranked.newest else "first-row")
    by = [
        next((name for name, text in target.expressions.items() if text == _text(item)), None)
        for item in ranked.order
    ]
    descending = options.get("sequence.field.sort-order", "ascending") == "descending"
    return engine == "deduplicate" and target.sequence == by and descending != ranked.newest


def _sorts_nulls_last(target: _Target, source: TableInfo) -> bool:
    """Whether no order sorts NULL first: a `sequence.field` prefers any value to it."""
    if all(c.nullable is False for c in target.table.columns if c.name in target.sequence):
        return True
    required = {column.name for column in source.columns if not column.nullable}
    pairs = zip(target.ranked.order, target.ranked.nulls_first, strict=True)
    return all(not first or target.block.source_column(item) in required for item, first in pairs)


def _keeps_digits(target: _Target, source: TableInfo) -> bool:
    """Whether distinct values of the order stay distinct in the type of their `sequence.field`."""
    types = {declared.name: declared.type for declared in source.columns}
    return all(
        target.expressions[column.name] != _text(item) or keeps_order(types[name], column.type)
        for item in target.ranked.order
        if (name := target.block.source_column(item) or "") in types
        for column in target.table.columns
        if column.name in target.sequence
    )


def _at_block(top: SelectBlock, mapping: ColumnMapping, block: SelectBlock) -> str | None:
    """A target column as an expression of the ranked block; None if it uses other columns."""
    if mapping.index is None:
        return None
    current, item = top, top.items[mapping.index]
    while current is not block:
        wrapped: exp.Expr = exp.Paren(this=item.copy())
        for column in list(wrapped.find_all(exp.Column)):
            if column.table != current.alias or current.below is None:
                return None
            column.replace(current.below.definition(column.name).copy())
        assert current.below is not None
        current, item = current.below, wrapped.this
    return _text(item)


def _text(item: exp.Expr) -> str:
    return item.unnest().sql()


def _column_names(items: tuple[exp.Expr, ...]) -> list[str]:
    return [i.name if isinstance(i, exp.Column) else i.sql() for i in (o.unnest() for o in items)]
