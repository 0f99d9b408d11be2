"""Committed rows of a table that its readers do not see before a compaction."""

from dataclasses import dataclass

import pyarrow.compute as pc

from streamhouse.paimon.read.references import files_of_snapshot
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.read.visibility import (
    VisibleAt,
    delaying_option,
    least_level,
    rows_visible_at,
)
from streamhouse.paimon.storage.snapshots import Snapshot


@dataclass(frozen=True)
class InvisibleRows:
    """How many rows of a table are committed and not visible to its readers yet.

    `option` is the table option that delays them, such as `'write-only' = 'true'`; None where
    a compaction is due.
    """

    table: str
    rows: int
    option: str | None = None

    def __str__(self) -> str:
        rows = "1 row waits" if self.rows == 1 else f"{self.rows:,} rows wait"
        reason = "" if self.option is None else f" ({self.option})"
        return f"{self.table}: {rows} for compaction{reason}"


def invisible_rows(table: Table, snapshot: int, visible_at: VisibleAt) -> InvisibleRows:
    """Count the rows that are invisible at `snapshot` because they wait for `visible_at`."""
    option = delaying_option(table.options, visible_at)
    min_level = least_level(table.options, visible_at)
    if min_level == 0 or snapshot < 1:
        return InvisibleRows(table.identifier, 0, option)
    files = files_of_snapshot(table, snapshot, ["level", "record_count"])
    hidden = files.filter(pc.less(files.column("level"), min_level))
    rows = pc.sum(hidden.column("record_count")).as_py() or 0
    return InvisibleRows(table.identifier, rows, option)


def rows_invisible_to_select(table: Table, snapshot: int) -> InvisibleRows:
    """Count the rows that a SELECT of `snapshot` does not see, because they wait for compaction."""
    return invisible_rows(table, snapshot, rows_visible_at(bool(table.primary_key), table.options))


class InvisibleRowsCounter:
    """Counts the invisible rows of one table, again only if the table has changed."""

    def __init__(self) -> None:
        self._last: tuple[tuple[Snapshot | None, int, VisibleAt], InvisibleRows] | None = None

    def count(self, table: Table, visible_at: VisibleAt, within_s: float = 0.0) -> InvisibleRows:
        """The rows that wait for `visible_at` at the table's newest snapshot.

        `within_s`: as in `Table.latest_snapshot_id`.
        """
        latest = table.latest_snapshot_id(within_s) or 0
        snapshot = table.snapshots.find(latest) if latest else None
        key = (snapshot, table.schema_id, visible_at)
        last = self._last
        if last is None or last[0] != key:
            self._last = last = (key, invisible_rows(table, latest, visible_at))
        return last[1]
