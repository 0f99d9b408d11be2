"""Which rows of a dimension may have changed between two of its snapshots."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from streamhouse.paimon.changes import hides_new_rows
from streamhouse.paimon.snapshots import Snapshot
from streamhouse.paimon.table import Table

MOST_SNAPSHOTS = 200
MOST_ROWS = 200_000


def moved_keys(table: Table, after: int, until: int, columns: Sequence[str]) -> pa.Table | None:
    """Values of `columns`, primary key columns, of all rows that `until` may have otherwise.

    The table as read at the snapshot `until` differs from that at `after` at most in rows whose
    key is among the result. None where that cannot be told, or not cheaply: read anew then.
    """
    found = between(table, after, until)
    if found is None:
        return None
    producer = table.options.get("changelog-producer", "none").lower()
    hidden = hides_new_rows(table)
    if hidden and any(one.commit_kind == "COMPACT" for one in found):
        if producer not in ("lookup", "full-compaction"):
            return None
        mode = "changelog"
    elif hidden or not any(one.commit_kind == "APPEND" for one in found):
        return table.read_schema(columns).empty_table()
    else:
        mode = "delta"
    splits = table.changes(after, until, mode, columns)
    batches, rows = [], 0
    for batch in table.read(columns, splits=splits, row_kind=True):
        batches.append(batch.select(list(columns)))
        rows += batch.num_rows
        if rows > MOST_ROWS:
            return None
    return pa.Table.from_batches(batches, table.read_schema(columns))


def between(table: Table, after: int, until: int) -> list[Snapshot] | None:
    """The snapshots (`after`, `until`]; None where more may have changed than keys can tell."""
    if not 0 < after <= until or until - after > MOST_SNAPSHOTS:
        return None
    found = [table.snapshots.find(number) for number in range(after, until + 1)]
    known = [one for one in found if one is not None]
    if len(known) < len(found) or {one.schema_id for one in known} != {table.schema_id}:
        return None
    later = known[1:]
    kinds = {one.commit_kind for one in later}
    # Compaction itself takes rows away where they live for a time only.
    expiring = "record-level.expire-time" in table.options and "COMPACT" in kinds
    if "OVERWRITE" in kinds or expiring:
        return None
    return later
