"""Reads of one table by the Rust core: their batch size, schema and errors."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from streamhouse.errors import DataLossError, OptionError, StoreError, StreamhouseError
from streamhouse.paimon.storage import rust_core
from streamhouse.paimon.storage.object_store.store_retries import is_temporary

if TYPE_CHECKING:
    from streamhouse.paimon.read.table import Table

READ_BATCH_ROWS = 65_536
"""Read batch size in rows; with the core's default of 1,024, calls cost more than reading."""
_WRONG_OPTION = re.compile(
    r"hitting invalid config|not found in table schema|Unsupported merge-engine|Scan option '"
)


def read_error(table: Table, error: BaseException, snapshot: int | None = None) -> StreamhouseError:
    """The error of a read, or of its plan at `snapshot`, as ours."""
    name, text = table.identifier, " ".join(str(error).split())
    if is_temporary(error):
        return StoreError(f"table {name} cannot be read: {text}")
    if snapshot is not None and table.snapshots.find(snapshot) is None:
        return table.snapshots.expired_error(snapshot)
    if _WRONG_OPTION.search(text):
        return OptionError(f"table {name} cannot be read with its options: {text}")
    if rust_core.is_gone(error):
        earliest, latest = table.earliest_snapshot_id(), table.latest_snapshot_id()
        return DataLossError(
            f"table {name}: a file of the snapshot being read is gone (expired, or "
            f"dropped with the table); snapshots {earliest} to {latest} are left: {text}"
        )
    if "while decoding timestamp" in text:
        return StreamhouseError(
            f"table {name}: an ORC file has a timestamp before 1677-09-22 or after "
            "2262-04-11, which cannot be read; leave its column out of the query, or have "
            f"Flink write the table with 'file.format' = 'parquet': {text}"
        )
    return StreamhouseError(f"table {name} cannot be read: {text}")
