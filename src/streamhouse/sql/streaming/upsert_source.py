"""What a query may do with a source of upserts, such as `upsert-kafka`.

Its updates lack the row before the change, and its deletes have only the key. A filter, a join that
drops rows or an aggregation would keep rows that have since changed. So the query only copies rows
into a table with the same key; that table knows the rows before each change, and other queries read
its changes, as a view does.
"""

from __future__ import annotations

from collections.abc import Sequence

from streamhouse.sql import node_errors
from streamhouse.sql.plan import TableInfo
from streamhouse.sql.resolution.insert_target import ColumnMapping
from streamhouse.sql.streaming.query_blocks import SelectBlock
from streamhouse.sql.text import Script


def check(
    script: Script,
    top: SelectBlock,
    source: TableInfo,
    table: TableInfo | None,
    mappings: Sequence[ColumnMapping],
    aggregates: bool,
) -> None:
    """Raise `NotStreamedError` if the query needs the row before a change."""
    if not source.capabilities.upserts:
        return
    if aggregates or not all(map(_keeps_rows, top.innermost_first())):
        needs = "the query"
    elif table is not None and not _keeps_changes(top, source, table, mappings):
        needs = ".".join(table.name)
    else:
        return
    which = f"an update of '{source.name[-1]}' (connector '{source.connector}')"
    reason = f"{which} lacks the former row, which {needs} needs"
    raise node_errors.not_streamed(script, top.select, reason)


def _keeps_rows(block: SelectBlock) -> bool:
    """Whether a block has a row for each of its input, whatever that changed from."""
    if block.where is not None or block.ranked is not None or block.group:
        return False
    return all(lookup.left for lookup in block.lookups)


def _keeps_changes(
    top: SelectBlock, source: TableInfo, table: TableInfo, mappings: Sequence[ColumnMapping]
) -> bool:
    """Whether a table has the source's key, and finds the former row by it."""
    columns = {
        None if mapping.index is None else top.source_column(top.items[mapping.index])
        for mapping in mappings
        if mapping.column.name in table.primary_key
    }
    if top.below is not None or columns != set(source.primary_key):
        return False
    # A delete has only the key.
    only_key = all(c.nullable or c.name in table.primary_key for c in table.columns)
    engine = table.options.get("merge-engine", "deduplicate")
    producer = table.options.get("changelog-producer")
    return only_key and engine == "deduplicate" and producer != "input"
