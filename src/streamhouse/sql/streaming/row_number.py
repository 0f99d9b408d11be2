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

MARK = "ranked"


@dataclass(frozen=True)
class Ranked:
    """PARTITION BY and ORDER BY of a block's ROW_NUMBER, with resolved names.

    `newest`: the order is descending. `nulls_first`: for each expression of `order`, whether NULL
    sorts first.
    """

    node: exp.Expr
    partition: tuple[exp.Expr, ...]
    order: tuple[exp.Expr, ...]
    newest: bool
    nulls_first: tuple[bool, ...]


def mark(script: Script, outer: exp.Select) -> None:
    """Remove `ROW_NUMBER() OVER (…) AS rn` from a subquery, and `rn = 1` from the query around it.

    The subquery's SELECT is marked with the window, and its row number becomes the constant 1.
    SELECTs between the two may only pass columns through, as a view's does. Raises
    `NotStreamedError` for another condition than `rn = 1` and for several row numbers.
    """
    below = _RankedSubquery(outer)
    inner = below.select
    numbers = [item for item in inner.expressions if _is_number(item)] if inner is not None else []
    name = below.outer_name(numbers[0].alias) if numbers else None
    if inner is None or name is None:
        return
    (item, *others), where = numbers, outer.args.get("where")
    if others or where is None or not _is_first(where.this.unnest(), name):
        raise node_errors.not_streamed(script, item, "ROW_NUMBER without WHERE … = 1 alone")
    outer.set("where", None)
    inner.meta[MARK] = item.this
    item.set("this", exp.cast(exp.Literal.number(1), "BIGINT"))


def _is_number(item: exp.Expr) -> bool:
    return (
        isinstance(item, exp.Alias)
        and isinstance(item.this, exp.Window)
        and isinstance(item.this.this, exp.RowNumber)
    )


class _RankedSubquery:
    """The nearest SELECT below another that does more than pass columns through, as `select`."""

    def __init__(self, outer: exp.Select) -> None:
        self.select = _subquery(outer)
        self._all_visible, self._renamed = True, dict[str, str]()
        while self.select is not None and _passes_columns(self.select):
            below = _subquery(self.select)
            if below is None:
                return
            self._rename(self.select)
            self.select = below

    def outer_name(self, name: str) -> str | None:
        """The name that a column of `select` has in the outer SELECT; None if it is not visible."""
        return self._renamed.get(name, name if self._all_visible else None)

    def _rename(self, layer: exp.Select) -> None:
        renamed = {}
        for item in layer.expressions:
            name = None if columns.is_star(item) else self.outer_name(item.alias_or_name)
            if name is not None:
                renamed[item.unalias().name] = name
        if any(columns.is_star(item) for item in layer.expressions):
            self._renamed = {**self._renamed, **renamed}
        else:
            self._all_visible, self._renamed = False, renamed


def _subquery(select: exp.Select) -> exp.Select | None:
    clause = select.args.get("from_")
    source = clause.this if clause is not None else None
    inner = source.unnest() if isinstance(source, exp.Subquery) else None
    return inner if isinstance(inner, exp.Select) else None


def _passes_columns(select: exp.Select) -> bool:
    """Whether a SELECT only passes columns of its input through, possibly renamed."""
    if columns.first_set(select.args, ("expressions", "from_")):
        return False
    return all(
        columns.is_star(item) or isinstance(item.unalias(), exp.Column)
        for item in select.expressions
    )


def _is_first(inner: exp.Expr, name: str) -> bool:
    """Whether a condition is `rn = 1`, `1 = rn`, `rn <= 1` or `rn < 2`."""
    if not isinstance(inner, exp.EQ | exp.LTE | exp.LT):
        return False
    left, right = inner.left.unnest(), inner.right.unnest()
    if isinstance(inner, exp.EQ) and isinstance(right, exp.Column):
        left, right = right, left
    limit = "2" if isinstance(inner, exp.LT) else "1"
    return isinstance(left, exp.Column) and left.name == name and right.sql() == limit


def read(script: Script, select: exp.Select, visible: Visible) -> Ranked | None:
    """The window of a SELECT that `mark` has marked, with resolved names; None for any other.

    Raises `NotStreamedError` without PARTITION BY or ORDER BY, and for mixed directions.
    """
    window = select.meta.get(MARK)
    if window is None:
        return None
    ordered = window.args["order"].expressions if window.args.get("order") else []
    partition = window.args.get("partition_by") or []
    newest = {bool(item.args.get("desc")) for item in ordered}
    if not partition or len(newest) != 1:
        reason = "ROW_NUMBER without PARTITION BY, or without ORDER BY in one direction"
        raise node_errors.not_streamed(script, window, reason)
    return Ranked(
        window,
        tuple(columns.resolve(script, item.copy(), visible) for item in partition),
        tuple(columns.resolve(script, item.this.copy(), visible) for item in ordered),
        newest.pop(),
        # The parser has set the default: NULL is the smallest value.
        tuple(bool(item.args.get("nulls_first")) for item in ordered),
    )


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
