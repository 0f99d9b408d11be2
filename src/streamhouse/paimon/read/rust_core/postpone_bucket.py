"""Tables with postponed buckets (`bucket` = -2), which Flink jobs create.

Their writers do not assign buckets to rows, and readers see such rows only after Flink has
compacted them. Streamhouse can only read these tables, and only while all their rows have a bucket.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.errors import TableError
from streamhouse.paimon.read.references import version_clause
from streamhouse.paimon.schema.options.bucket_options import POSTPONED
from streamhouse.paimon.storage import rust_core
from streamhouse.sql.plan import AsOf

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
    waiting = 0
    for batch in _files(table, snapshot_id):
        rows = batch.filter(pc.equal(batch.column("bucket"), POSTPONED))
        waiting += pc.sum(rows.column("record_count")).as_py() or 0
    if waiting:
        raise TableError(
            f"table {table.identifier} has 'bucket' = '-2' (postponed buckets), and {waiting:,} "
            f"{'row' if waiting == 1 else 'rows'} of snapshot {snapshot_id} have no bucket yet, so "
            "no reader sees them; compact the table with Flink (CALL sys.compact), then read it"
        )


def _files(table: Table, snapshot: int) -> list[pa.RecordBatch]:
    """`bucket` and `record_count` of the data files of a snapshot."""
    context = rust_core.sql_context(table.catalog_options)
    version = version_clause(table, table.identifier, AsOf(snapshot))
    names = ("bucket", "record_count")
    try:
        return rust_core.query(context, table.database, f"{table.name}$files", names, version)
    except rust_core.ERRORS as error:
        raise rust_core.read_error(table.identifier, error) from error
