"""Finds which rows of a dimension may have changed between two of its snapshots."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.arrow_batches import last_of_each_key
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.read.visibility import EXPIRED_AFTER, PRODUCED, hides_new_rows, producer
from streamhouse.paimon.schema.evolution import current_columns
from streamhouse.paimon.storage.snapshots import Snapshot
from streamhouse.paimon.storage.split_groups import file_ids, row_count
from streamhouse.source import ROW_KIND

MOST_SNAPSHOTS = 200
MOST_ROWS = 1_000_000
FEW_ROWS = 10_000
"""Every strategy reads this many rows without a noticeable delay of a batch."""


@dataclass(frozen=True, eq=False)
class Version:
    """A table and one of its snapshots (None: before the first)."""

    table: Table
    snapshot: Snapshot | None

    def __eq__(self, other: object) -> bool:
        """Compares whole snapshot records: after a rollback, another snapshot may get an old id."""
        if not isinstance(other, Version):
            return NotImplemented
        same = self.table.schema_id == other.table.schema_id
        return same and self.snapshot == other.snapshot


def version_of(table: Table, snapshot: int | None) -> Version:
    """The version of a snapshot; raises `DataLossError` if it has expired."""
    return Version(table, None if snapshot is None else table.snapshot(snapshot))


def keys_changed_between(
    before: Version, after: Version, columns: Sequence[str]
) -> pa.Table | None:
    """The keys of rows that may differ between two versions, as their values of `columns`.

    `columns` are columns of the primary key.

    The table as read at `after` differs from that at `before` at most in rows whose key is in
    the result. None if that is unknown, or slow to find out: then read the table again.
    """
    table, snapshots = after.table, between(before, after)
    if snapshots is None or not table.primary_key:
        return None
    hidden = hides_new_rows(table)
    visible_kind = "COMPACT" if hidden else "APPEND"
    if not any(snapshot.commit_kind == visible_kind for snapshot in snapshots):
        return table.read_schema(columns).empty_table()
    mode = "changelog" if hidden else "delta"
    splits = table.changes(_id(before), _id(after), mode)
    if row_count(splits) > MOST_ROWS:
        return None
    return table.rows(columns, splits=splits, row_kind=True).select(list(columns))


def last_changes(
    before: Version, after: Version, columns: Sequence[str], planned: int | None
) -> pa.Table | None:
    """The last change of each key between two versions: `columns`, then `rowkind` (`+I`, `-D`).

    Only for a table whose rows are as they were last written: without a merge function, a sequence
    field, or rows that become visible by compaction. None for others, and for too many changes.
    `columns` have the names of schema version `planned` and include the primary key. For a table
    without one, the result has all rows that were added.
    """
    table, snapshots = after.table, between(before, after, evolved=True)
    if snapshots is None or not _as_written(table):
        return None
    current_names = current_columns(table, planned, columns)
    parts, empty = [], table.read_schema(current_names, row_kind=True).empty_table()
    for snapshot in snapshots:
        if snapshot.commit_kind != "APPEND":
            continue
        splits = sorted(table.changes(snapshot.id - 1, snapshot.id))
        if table.primary_key and any(len(file_ids(split)) > 1 for split in splits):
            return None
        parts.append(splits)
    if row_count(chain(*parts)) > MOST_ROWS:
        return None
    tables = (table.rows(current_names, splits=splits, row_kind=True) for splits in parts)
    changes = pa.concat_tables([empty, *tables]).rename_columns([*columns, ROW_KIND])
    if not table.primary_key:
        return changes
    kept = last_of_each_key(changes, table.primary_key)
    kinds = pc.if_else(pc.is_in(kept.column(ROW_KIND), pa.array(["-D", "-U"])), "-D", "+I")
    return kept.drop_columns([ROW_KIND]).append_column(ROW_KIND, kinds)


def few_changes_between(before: Version, after: Version, follows: bool = True) -> bool:
    """Whether a process that holds `before` can get to `after` without a noticeable delay.

    `follows`: the process applies the changes if they are known; otherwise it reads all again.
    """
    table, snapshot = after.table, after.snapshot
    if snapshot is None or (snapshot.total_record_count or 0) <= FEW_ROWS:
        return True
    snapshots = between(before, after) if follows else None
    if snapshots is None:
        return False
    if hides_new_rows(table):
        return sum(later.changelog_record_count or 0 for later in snapshots) <= FEW_ROWS
    if not table.primary_key and not _as_written(table):
        return False
    added = [later.delta_record_count or 0 for later in snapshots if later.commit_kind == "APPEND"]
    return sum(added) <= FEW_ROWS


def between(before: Version, after: Version, evolved: bool = False) -> list[Snapshot] | None:
    """The snapshots after `before` up to `after`; None if their files may not show all changes.

    `evolved`: a change of the schema changes none of the columns that are read.

    So it is after an overwrite, a rollback, a schema change, snapshot or record expiry, for the
    compaction after a DELETE without the DELETE, for a compaction that makes rows visible without
    a changelog that has them, and for more than `MOST_SNAPSHOTS` snapshots.
    """
    table, first, last = after.table, _id(before), _id(after)
    if not 0 < first <= last or last - first > MOST_SNAPSHOTS:
        return None
    snapshots = [table.snapshots.find(number) for number in range(first, last + 1)]
    existing = [snapshot for snapshot in snapshots if snapshot is not None]
    if len(existing) < len(snapshots) or existing[0] != before.snapshot:
        return None
    if not evolved and {snapshot.schema_id for snapshot in existing} != {table.schema_id}:
        return None
    later = existing[1:]
    kinds = {snapshot.commit_kind for snapshot in later}
    # With record-level expiry, compaction removes rows.
    expiring = EXPIRED_AFTER in table.options and "COMPACT" in kinds
    # The keys that a purge removes are in the snapshot before it.
    purged = bool(later) and later[0].purges
    unrecorded = hides_new_rows(table) and producer(table.options) not in PRODUCED
    unknown = "OVERWRITE" in kinds or expiring or purged or (unrecorded and "COMPACT" in kinds)
    return None if unknown else later


def _id(version: Version) -> int:
    return 0 if version.snapshot is None else version.snapshot.id


def _as_written(table: Table) -> bool:
    options = table.options
    if not table.primary_key:
        return options.get("deletion-vectors.enabled") != "true"
    changed = ("sequence.field", "rowkind.field", "ignore-delete", EXPIRED_AFTER)
    return (
        options.get("merge-engine", "deduplicate") == "deduplicate"
        and not hides_new_rows(table)
        and not table.crosses_partitions
        and not any(key.endswith(changed) for key in options)
    )
