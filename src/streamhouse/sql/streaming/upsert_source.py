"""What a query may do with a source of upserts, such as `upsert-kafka`.

Its updates lack the row before the change, and its deletes have only the key. A filter, a join that
drops rows or an aggregation would keep rows that have since changed. So the query only copies rows
into a table with the same key; that table knows the rows before each change, and other queries read
its changes.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from streamhouse.sql import node_errors
from streamhouse.sql.plan import TableInfo
from streamhouse.sql.resolution.insert_target import ColumnMapping
from streamhouse.sql.streaming.query_blocks import QueryBlock
from streamhouse.sql.text import Script

_HELP = (
    "; INSERT the rows as they are into a table with the same PRIMARY KEY, and read that table: it "
    "knows the rows before each change"
)


def check(
    script: Script,
    top: QueryBlock,
    source: TableInfo,
    table: TableInfo | None,
    mappings: Sequence[ColumnMapping],
    aggregates: bool,
) -> None:
    """Raise `UnsupportedSqlError` if the query needs the row before a change."""
    if not source.capabilities.upserts:
        return
    problem = _problem(top, aggregates) or (table and _target_problem(top, source, table, mappings))
    if problem:
        message = f"'{source.name[-1]}' ({source.connector}) has upserts: {problem}{_HELP}"
        raise node_errors.unsupported(script, top.select, message)


def _problem(top: QueryBlock, aggregates: bool) -> str | None:
    if aggregates:
        return "an aggregation needs the row before a change"
    for block in top.innermost_first():
        if block.where is not None:
            return "a WHERE may drop a change, and keep the row before it"
        if block.ranked is not None or block.group:
            return "a ranking or GROUP BY needs the row before a change"
        if any(not lookup.left for lookup in block.lookups):
            return "an INNER lookup may drop a change, and keep the row before it"
    return None


def _target_problem(
    top: QueryBlock, source: TableInfo, table: TableInfo, mappings: Sequence[ColumnMapping]
) -> str | None:
    filling = {
        mapping.column.name: _column(top, mapping.index)
        for mapping in mappings
        if mapping.column.name in table.primary_key and mapping.index is not None
    }
    if set(filling.values()) != set(source.primary_key):
        key = ", ".join(source.primary_key)
        return f"the target's PRIMARY KEY must be filled by the columns of the source's ({key})"
    if table.options.get("merge-engine", "deduplicate") != "deduplicate":
        return f"'merge-engine' = '{table.options['merge-engine']}' needs the row before a change"
    if table.options.get("changelog-producer") == "input":
        return (
            "'changelog-producer' = 'input' would pass on changes without the row before them; set "
            "'lookup' or 'full-compaction', or leave it out"
        )
    strict = [
        column.name
        for column in table.columns
        if not column.nullable and column.name not in table.primary_key
    ]
    if strict:
        return f"a delete has only the key, so column '{strict[0]}' of the target must be nullable"
    return None


def _column(top: QueryBlock, index: int | None) -> str | None:
    """The source's column that a projection is; None for an expression."""
    item = None if index is None or top.below is not None else top.items[index].unnest()
    if isinstance(item, exp.Alias):
        item = item.this.unnest()
    return item.name if isinstance(item, exp.Column) else None
