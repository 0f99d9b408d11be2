"""Keys of a target that can move from one key of the source to another.

If the target's primary key lacks the source's, such as an email address that one customer takes
over from another, two keys of the source share a key of the target. A changelog keeps the changes
of each of its own keys together, so within a batch the `-U` of the former owner may follow the `+U`
of the new one, and would remove its row. Such a query writes the rows that are current at the end
of the batch after all others (decision 224).
"""

import hashlib
from dataclasses import replace

from streamhouse.sql.options.merge_functions import group_sequence_fields, sequence_fields
from streamhouse.sql.plan import StreamQuery, TableInfo
from streamhouse.sql.streaming.stream_select import StreamSelect
from streamhouse.sql.types import keeps_order
from streamhouse.sql.views.stored_view import HIDDEN_KEY, is_view

_LAST_ROW_COUNTS = ("deduplicate", "partial-update")
"""The merge engines by which the last row of a key counts."""


def matter(query: StreamQuery, target: TableInfo | None) -> bool:
    """Whether the order of the changes of two keys of the source can change the target's rows."""
    if target is None or not target.primary_key:
        return False
    if not query.row_kinds or query.merging.grouped or not _key(query.source):
        return False
    if sequence_fields(target.options) or group_sequence_fields(target.options):
        return False
    return target.options.get("merge-engine", "deduplicate") in _LAST_ROW_COUNTS


def keeps_source_key(top: StreamSelect) -> bool:
    """Whether the target's key has all values of the source's, so that none of its keys moves."""
    types = {column.name: column.type for column in top.source.columns}
    kept = set()
    for each, item in top.given:
        name = top.source_column(item) if each.in_key else None
        if name in types and keeps_order(types[name], each.column.type):
            kept.add(name)
    return kept.issuperset(_key(top.source))


def _key(source: TableInfo) -> tuple[str, ...]:
    """The key by which a changelog keeps its changes together, also one that readers do not see."""
    return source.primary_key or ((HIDDEN_KEY,) if is_view(source) else ())


def reordered(query: StreamQuery) -> StreamQuery:
    """The query with the source's key as its `reorder_key`, which it then also reads."""
    key = _key(query.source)
    fingerprint = hashlib.sha256(f"{query.fingerprint} reordered".encode()).hexdigest()
    return replace(query.reading(key), reorder_key=key, fingerprint=fingerprint)
