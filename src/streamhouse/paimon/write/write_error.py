"""The errors of failed writes and commits, in terms of what the user can do about them."""

from __future__ import annotations

from streamhouse.errors import CommitConflictError, StoreError, StreamhouseError, TableError
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.storage.object_store.store_retries import is_temporary


def write_error(table: Table, error: Exception) -> StreamhouseError:
    """The error of a failed write or commit in terms of what the user can do about it."""
    text = " ".join(str(error).split())
    if "No space left on device" in text or "StorageFull" in text:
        return StreamhouseError(
            f"table {table.identifier}: the disk under {table.location} is full; free some space "
            "and try again; nothing committed is lost"
        )
    if is_temporary(error):
        return StoreError(f"table {table.identifier} cannot be written: {text}")
    if "invalid config" in text:
        reason = text.partition("invalid config:")[2].strip() or text
        return StreamhouseError(
            f"table {table.identifier} cannot be written, since its options conflict: {reason}"
        )
    if "different total bucket counts" in text:
        return TableError(
            f"table {table.identifier}: its option 'bucket' was changed to {table.bucket}, but "
            "existing rows are in another number of buckets; rewrite the table with INSERT "
            f"OVERWRITE {table.identifier} SELECT … FROM {table.identifier}, then try again"
        )
    if "conflict" in text.lower() or "retries" in text.lower():
        return CommitConflictError(
            f"table {table.identifier}: the commit conflicted with other writers too often; try "
            f"again, or let fewer queries and compactions write this table at once: {text}"
        )
    return StreamhouseError(f"table {table.identifier} cannot be written: {text}")
