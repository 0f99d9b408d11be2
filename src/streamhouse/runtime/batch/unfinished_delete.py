"""Finishes a DELETE from a table that merges rows, if it was killed between its two commits.

The first commit retracts the values, the second compacts the rows away (decision 121). A process
that died between them left rows of zeros, or rows that are hidden but not removed.
"""

import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.paimon.changelog.unread_commits import rows_of
from streamhouse.paimon.maintenance.purge import Purge
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.storage.lock import commit_lock
from streamhouse.paimon.write.commit_retries import CHANGE_USER, attempt, dead_attempts, prefix_of
from streamhouse.source import ROW_KIND, of_kind
from streamhouse.sql.options.merge_functions import remove_option


def finish(address: TableAddress, purge: Purge) -> int:
    """Finish the deletes of statements whose process died; returns the number of rows.

    Rows written again by others since then stay: after the retraction, those were merged into an
    empty state.
    """
    table = address.open()
    option = remove_option(table.options)
    if option is None or not table.primary_key:
        return 0
    unfinished = [
        snapshot
        for name, first in dead_attempts(table)
        if (snapshot := _committed(table, name, first))
    ]
    if all(_remaining(table, snapshot, option) is None for snapshot in unfinished):
        return 0
    purge.start()
    deleted = 0
    with commit_lock(table.location):
        for snapshot in unfinished:
            deleted += _finish(table, snapshot, option, purge)
    return deleted


def _finish(table: Table, snapshot: int, option: str, purge: Purge) -> int:
    rows = _remaining(table, snapshot, option)
    if rows is None:
        return 0
    if rows.num_rows:
        with attempt(table) as own:
            messages = own.writer({option: "true"}).write_all(rows.to_batches())
            own.committer.commit(0, messages)
            purge.run({option: "true"}, {})
    else:
        purge.run({option: "true"}, {})
    return int(rows.num_rows)


def _committed(table: Table, name: str, first: int) -> int | None:
    """The snapshot that an attempt committed; None if there is none, or it has expired."""
    prefix = prefix_of(name).encode()
    for snapshot_id in range(first + 1, (table.latest_snapshot_id() or 0) + 1):
        snapshot = table.snapshots.find(snapshot_id)
        if snapshot is not None and snapshot.commit_user.startswith(CHANGE_USER):
            if any(
                prefix in split for split in table.changes(snapshot_id - 1, snapshot_id, "delta")
            ):
                return snapshot_id
    return None


def _remaining(table: Table, snapshot: int, option: str) -> pa.Table | None:
    """What is left to do of a delete whose first commit is a snapshot; None if nothing is.

    These are the `-D` rows to commit, which may be none, and the compaction. A table with its own
    remove-record option hides the deleted rows already, so it only needs the compaction. Once
    another snapshot has followed, it is too late for that: it is unknown what the removal would
    hide.
    """
    numbers = range(snapshot + 1, (table.latest_snapshot_id() or 0) + 1)
    later = [found for found in map(table.snapshots.find, numbers) if found is not None]
    if table.options.get(option, "false").lower() == "true":
        return None if later else table.read_schema(row_kind=True).empty_table()
    key = list(table.primary_key)
    written = rows_of(table, [snapshot], key)
    deleted = written.filter(pc.equal(written.column(ROW_KIND), "-D")).select(key)
    changed = rows_of(table, [one.id for one in later if one.commit_kind != "COMPACT"], key)
    deleted = deleted.join(changed.select(key), keys=key, join_type="left anti")
    rows = table.rows()
    left = rows.join(deleted, keys=key, join_type="left semi").select(rows.column_names)
    return of_kind(left, "-D") if left.num_rows else None
