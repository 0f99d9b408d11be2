"""`ROW_NUMBER() … = 1`: the newest (or oldest) row of each key, as an upsert by that key.

A continuous query keeps no state to number rows in. But a table with that primary key keeps one row
of each key, and its `sequence.field` decides which. So the row number is removed from the query,
and the target must be such a table.
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
    from streamhouse.sql.streaming.query_blocks import QueryBlock

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
    `UnsupportedSqlError` for another condition than `rn = 1` and for several row numbers.
    """
    below = _RankedSubquery(outer)
    inner = below.select
    numbers = [item for item in inner.expressions if _is_number(item)] if inner is not None else []
    name = below.outer_name(numbers[0].alias) if numbers else None
    if inner is None or name is None:
        return
    (item, *others), where = numbers, outer.args.get("where")
    if others:
        raise node_errors.unsupported(script, others[0], "a query can have only one ROW_NUMBER")
    parts = [] if where is None else _conjuncts(where.this)
    firsts = [part for part in parts if _is_first(part, name)]
    if not firsts:
        raise node_errors.unsupported(
            script,
            item,
            f"ROW_NUMBER on a stream keeps the first row of each key: write WHERE {name} = 1 "
            "around this SELECT; for more rows, number them when reading the table",
        )
    if len(parts) > 1:
        other = next(part for part in parts if part not in firsts) if len(firsts) == 1 else parts[1]
        raise node_errors.unsupported(
            script,
            other,
            f"a condition besides {name} = 1 would have to retract rows that were the newest; "
            "move it to the inner SELECT, or filter when reading the table",
        )
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


def _conjuncts(condition: exp.Expr) -> list[exp.Expr]:
    inner = condition.unnest()
    return list(inner.flatten()) if isinstance(inner, exp.And) else [inner]


def _is_first(part: exp.Expr, name: str) -> bool:
    """Whether a condition is `rn = 1`, `1 = rn`, `rn <= 1` or `rn < 2`."""
    inner = part.unnest()
    if not isinstance(inner, exp.EQ | exp.LTE | exp.LT):
        return False
    left, right = inner.left.unnest(), inner.right.unnest()
    if isinstance(inner, exp.EQ) and isinstance(right, exp.Column):
        left, right = right, left
    limit = "2" if isinstance(inner, exp.LT) else "1"
    return isinstance(left, exp.Column) and left.name == name and right.sql() == limit


def read(script: Script, select: exp.Select, visible: Visible) -> Ranked | None:
    """The window of a SELECT that `mark` has marked, with resolved names; None for any other.

    Raises `UnsupportedSqlError` without PARTITION BY or ORDER BY, and for mixed directions.
    """
    window = select.meta.get(MARK)
    if window is None:
        return None
    ordered = window.args["order"].expressions if window.args.get("order") else []
    partition = window.args.get("partition_by") or []
    if not ordered or not partition:
        message = "ROW_NUMBER on a stream needs OVER (PARTITION BY key ORDER BY time DESC)"
        raise node_errors.unsupported(script, window, message)
    newest = {bool(item.args.get("desc")) for item in ordered}
    if len(newest) > 1:
        message = "ORDER BY of ROW_NUMBER must have one direction: all columns DESC, or none"
        raise node_errors.unsupported(script, window, message)
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
    top: QueryBlock,
    source: TableInfo,
    changelog: bool,
    target: TableInfo | None,
    mappings: list[ColumnMapping],
) -> str:
    """A description of the row that the upsert keeps; empty for a query without ROW_NUMBER.

    Raises `UnsupportedSqlError`, with the declaration to use, for a target that keeps other rows.
    """
    block = next((level for level in top.innermost_first() if level.ranked is not None), None)
    if block is None or block.ranked is None:
        return ""
    ranked = block.ranked
    _check_outer_blocks(script, top, block)
    if target is None or not target.primary_key or not target.capabilities.merges:
        message = "ROW_NUMBER on a stream needs a table that keeps one row per key: INSERT INTO a "
        message += f"table with PRIMARY KEY ({', '.join(_column_names(ranked.partition))})"
        raise node_errors.unsupported(script, ranked.node, message)
    target_expressions = {
        mapping.column.name: _at_block(top, mapping, block) for mapping in mappings
    }
    name = "table " + ".".join(target.name)
    keys = {_text(item) for item in ranked.partition}
    # A constant column does not distinguish rows, so it need not be in PARTITION BY.
    constant = {
        mapping.column.name
        for mapping in mappings
        if mapping.index is not None and is_constant(top.items[mapping.index])
    }
    if {target_expressions[key] for key in target.primary_key if key not in constant} != keys:
        raise node_errors.unsupported(
            script,
            ranked.node,
            f"PARTITION BY must be exactly the primary key of {name}: "
            f"{', '.join(target.primary_key)}",
        )
    if changelog:
        _check_changes(script, block, source)
    else:
        _check_order(script, ranked, target, name, target_expressions)
        _check_nulls(script, block, source, target)
        _check_types(script, block, source, target, target_expressions)
    word = "newest" if ranked.newest else "oldest"
    return f"upsert: {word} by {', '.join(_column_names(ranked.order))} of each " + ", ".join(
        target.primary_key
    )


def _check_outer_blocks(script: Script, top: QueryBlock, block: QueryBlock) -> None:
    blocks = top.innermost_first()
    for outer in blocks[blocks.index(block) + 1 :]:
        help_ = "apply it when reading the table; in the inner SELECT the newest row may be another"
        if outer.where is not None:
            message = f"WHERE around the newest row of each key is not supported; {help_}"
            raise node_errors.unsupported(script, outer.where, message)
        if outer.group:
            message = f"GROUP BY over the newest row of each key is not supported; {help_}"
            raise node_errors.unsupported(script, outer.group[0], message)
        for lookup in outer.lookups:
            if not lookup.left:
                message = "a join that can drop the newest row of a key is not supported; write "
                message += "LEFT JOIN, and leave out rows without a match when reading the table"
                raise node_errors.unsupported(script, lookup.on, message)


def _check_changes(script: Script, block: QueryBlock, source: TableInfo) -> None:
    """Refuse a changelog in which several rows can share a key.

    When the newest of them is deleted, the next one is not known.
    """
    assert block.ranked is not None
    names = {block.source_column(item) for item in block.ranked.partition}
    if not set(source.primary_key) <= names:
        raise node_errors.unsupported(
            script,
            block.ranked.node,
            f"ROW_NUMBER over {'.'.join(source.name)}, whose rows change: when the newest row of a "
            "key is deleted, the previous one is unknown; PARTITION BY its primary key, or read a "
            "table without one",
        )


def _check_nulls(script: Script, block: QueryBlock, source: TableInfo, target: TableInfo) -> None:
    """Refuse an order that sorts NULL first.

    A `sequence.field` prefers any value to NULL, in either direction.
    """
    ranked = block.ranked
    if ranked is None:
        return
    sequence = sequence_fields(target.options)
    required = {column.name for column in source.columns if not column.nullable}
    if not any(column.nullable for column in target.columns if column.name in sequence):
        return
    for order, nulls_first in zip(ranked.order, ranked.nulls_first, strict=True):
        if nulls_first and block.source_column(order) not in required:
            by = _column_names((order,))[0] + (" DESC" if ranked.newest else "")
            raise node_errors.unsupported(
                script,
                ranked.node,
                f"ORDER BY {by} sorts NULL first, but a 'sequence.field' prefers other rows; "
                f"write ORDER BY {by} NULLS LAST, or declare the column NOT NULL",
            )


def _check_types(
    script: Script,
    block: QueryBlock,
    source: TableInfo,
    target: TableInfo,
    target_expressions: dict[str, str | None],
) -> None:
    """Refuse a `sequence.field` type that could make distinct values of the order equal."""
    assert block.ranked is not None
    source_types = {declared.name: declared.type for declared in source.columns}
    sequence_columns = [
        declared for declared in target.columns if declared.name in sequence_fields(target.options)
    ]
    for order in block.ranked.order:
        kind = source_types.get(block.source_column(order) or "")
        if kind is None:
            continue
        for column in sequence_columns:
            if target_expressions[column.name] == _text(order) and not keeps_order(
                kind, column.type
            ):
                raise node_errors.unsupported(
                    script,
                    block.ranked.node,
                    f"ORDER BY {_column_names((order,))[0]} sorts by {kind}, but column "
                    f"'{column.name}' of table {'.'.join(target.name)} is {column.type} "
                    f"and has fewer digits, so "
                    f"the wrong row could remain; declare '{column.name}' as {kind}",
                )


def _check_order(
    script: Script,
    ranked: Ranked,
    target: TableInfo,
    name: str,
    target_expressions: dict[str, str | None],
) -> None:
    engine = target.options.get("merge-engine", "deduplicate")
    sequence = sequence_fields(target.options)
    if len(ranked.order) == 1 and functions.current_time_name(ranked.order[0]) == "PROCTIME":
        expected_engine = "deduplicate" if ranked.newest else "first-row"
        if engine == expected_engine and not sequence:
            return
        needs = f"'merge-engine' = '{expected_engine}' and no sequence.field"
    else:
        by = [
            next((n for n, t in target_expressions.items() if t == _text(o)), None)
            for o in ranked.order
        ]
        missing = [w for w, n in zip(_column_names(ranked.order), by, strict=True) if n is None]
        if missing:
            raise node_errors.unsupported(
                script,
                ranked.node,
                f"{name} must store the columns of ORDER BY; select {', '.join(missing)} into "
                "its 'sequence.field' column",
            )
        descending = target.options.get("sequence.field.sort-order", "ascending") == "descending"
        if engine == "deduplicate" and sequence == by and descending != ranked.newest:
            return
        needs = f"'sequence.field' = '{','.join(n for n in by if n)}'"
        if not ranked.newest:
            needs += ", 'sequence.field.sort-order' = 'descending'"
        needs += " and merge-engine deduplicate"
    raise node_errors.unsupported(
        script,
        ranked.node,
        f"{name} must keep the {'last' if ranked.newest else 'first'} row of each key in this "
        f"order: declare it with {needs}",
    )


def _at_block(top: QueryBlock, mapping: ColumnMapping, block: QueryBlock) -> str | None:
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
