"""Keys of a target that can move from one key of the source to another.

If the target's primary key lacks the source's, such as an email address that one customer takes
over from another, two keys of the source share a key of the target. A changelog keeps the changes
of each of its own keys together, so within a batch the `-U` of the former owner may follow the `+U`
of the new one, and would remove its row. Such a query writes the rows that are current at the end
of the batch after all others (decision 224).
"""

from collections.abc import Sequence

from streamhouse.sql.options.merge_functions import group_sequence_fields, sequence_fields
from streamhouse.sql.plan import TableInfo
from streamhouse.sql.streaming.stream_select import StreamSelect
from streamhouse.sql.types import keeps_order
from streamhouse.sql.views.stored_view import HIDDEN_KEY, is_view

_LAST_ROW_COUNTS = ("deduplicate", "partial-update")
"""The merge engines by which the last row of a key counts."""


def reorder_key(selects: Sequence[StreamSelect]) -> tuple[str, ...]:
    """The source's key if the order of the changes of two of its keys can change the target's rows.

    `selects` are those of a query whose rows have row kinds. Of several, one may give a key of the
    target to other keys of the source than another does.
    """
    target = selects[0].target if selects else None
    if target is None or not target.primary_key:
        return ()
    if sequence_fields(target.options) or group_sequence_fields(target.options):
        return ()
    if target.options.get("merge-engine", "deduplicate") not in _LAST_ROW_COUNTS:
        return ()
    if len(selects) == 1 and keeps_source_key(selects[0]):
        return ()
    return _key(selects[0].source)


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
