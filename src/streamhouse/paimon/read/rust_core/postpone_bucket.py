"""Tables with postponed buckets (`bucket` = -2), which Flink jobs create.

Their writers do not assign buckets to rows, and readers see such rows only after Flink has
compacted them. Streamhouse can only read these tables, and only while all their rows have a bucket.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.compute as pc

from streamhouse.errors import TableError
from streamhouse.paimon.read.references import files_of_snapshot
from streamhouse.paimon.schema.options.bucket_options import POSTPONED

if TYPE_CHECKING:
    from streamhouse.paimon.read.table import Table


def is_postponed(table: Table) -> bool:
    """Whether new rows of the table wait for Flink to give them a bucket."""
    return bool(table.primary_key) and table.bucket == POSTPONED


def check_written(table: Table) -> None:
    """Raise `TableError` if rows written into the table would be invisible."""
    if is_postponed(table):
        raise TableError(
            f"table {table.identifier} has 'bucket' = '-2' (postponed buckets), and only Flink can "
            "write it: rows would be invisible until a Flink job compacts them; write into a table "
            "with 'bucket' = '-1' or a fixed number"
        )


def check_followed(table: Table) -> None:
    """Raise `TableError` if a stream over the table would miss rows."""
    if is_postponed(table):
        raise TableError(
            f"table {table.identifier} has 'bucket' = '-2' (postponed buckets), and a stream "
            "cannot read it: rows get their bucket in a compaction, which streams ignore; use a "
            "table with 'bucket' = '-1' or a fixed number, or a batch SELECT"
        )


def check_read(table: Table, snapshot: int | None) -> None:
    """Raise `TableError` if a snapshot (None: the newest) has rows that a reader would miss."""
    if not is_postponed(table):
        return
    snapshot_id = table.latest_snapshot_id() if snapshot is None else snapshot
    if not snapshot_id:
        return
    rows = files_of_snapshot(table, snapshot_id, ("bucket", "record_count"))
    rows = rows.filter(pc.equal(rows.column("bucket"), POSTPONED))
    waiting = pc.sum(rows.column("record_count")).as_py()
    if waiting:
        raise TableError(
            f"table {table.identifier} has 'bucket' = '-2' (postponed buckets), and {waiting:,} "
            f"{'row' if waiting == 1 else 'rows'} of snapshot {snapshot_id} have no bucket yet, so "
            "no reader sees them; compact the table with Flink (CALL sys.compact), then read it"
        )
