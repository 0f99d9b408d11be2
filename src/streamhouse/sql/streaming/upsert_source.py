"""What a query may do with a source of upserts, such as `upsert-kafka`.

Its updates lack the row before the change, and its deletes have only the key. A filter, a join that
drops rows or an aggregation would keep rows that have since changed. So the query only copies rows
into a table with the same key; that table knows the rows before each change, and other queries read
its changes, as a view does.
"""

from __future__ import annotations

from streamhouse.errors import NotStreamedError
from streamhouse.sql.plan import TableInfo
from streamhouse.sql.streaming.stream_select import StreamSelect


def check(top: StreamSelect) -> None:
    """Raise `NotStreamedError` if the query needs the row before a change."""
    source = top.source
    if not source.capabilities.upserts:
        return
    if top.aggregates or not _keeps_rows(top):
        needs = "the query"
    elif top.target is not None and not _keeps_changes(top, top.target):
        needs = ".".join(top.target.name)
    else:
        return
    which = f"an update of '{source.name[-1]}' (connector '{source.connector}')"
    raise NotStreamedError(f"{which} lacks the former row, which {needs} needs")


def _keeps_rows(top: StreamSelect) -> bool:
    """Whether a query has a row for each of its input, whatever that changed from."""
    return not top.where and top.ranked is None and all(lookup.join.left for lookup in top.lookups)


def _keeps_changes(top: StreamSelect, table: TableInfo) -> bool:
    """Whether a table has the source's key, and finds the former row by it."""
    columns = {each.item and top.source_column(each.item) for each in top.outputs if each.in_key}
    if columns != set(top.source.primary_key):
        return False
    # A delete has only the key.
    only_key = all(c.nullable or c.name in table.primary_key for c in table.columns)
    engine = table.options.get("merge-engine", "deduplicate")
    producer = table.options.get("changelog-producer")
    return only_key and engine == "deduplicate" and producer != "input"
