"""Procedures that roll a table back to an earlier snapshot, tag or time."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from streamhouse.errors import DataLossError, OptionError, TableError
from streamhouse.procedures.arguments import timestamp_ms
from streamhouse.procedures.consumers import refuse_if_held
from streamhouse.procedures.context import Context
from streamhouse.procedures.registry import procedure, row
from streamhouse.procedures.tags import check_tag, tags_of

_NO_WATERMARK = -(1 << 63)
FindTarget = Callable[[Any], str | int]
"""Finds a tag's name or a snapshot's id on Java's table."""


@procedure("rollback", version="tag", tag_name="tag", snapshot="snapshot_id")
def rollback_to(
    context: Context,
    table: str,
    tag: str | None = None,
    snapshot_id: int | None = None,
    force: bool = False,
) -> pa.Table:
    """Roll a table back to a tag or a snapshot: all later snapshots are deleted.

    `tag` may also be a snapshot's number, unless a tag has that name. Running readers stop with a
    `DataLossError` that says so. Later rows of running writers are lost, and these do not write
    them again. So it is refused, unless `force`, while live queries are past that snapshot. Returns
    `previous_snapshot_id`, `current_snapshot_id`.
    """
    if (tag is None) == (snapshot_id is None):
        raise OptionError("sys.rollback_to takes either a tag or a snapshot_id; give one")

    def target(java_table: Any) -> str | int:
        if snapshot_id is not None:
            return snapshot_id
        text = str(tag)
        return int(text) if text.isdigit() and text not in tags_of(java_table) else text

    return _rollback(context, table, target, force, "rollback_to")


@procedure()
def rollback_to_timestamp(
    context: Context, table: str, timestamp: str, force: bool = False
) -> pa.Table:
    """Roll a table back to its last snapshot at or before a point in time; see `rollback_to`.

    `timestamp` is `2026-01-31 12:00:00` in the machine's time zone, as in Paimon, or milliseconds
    since 1970.
    """
    time_ms = timestamp_ms("timestamp", str(timestamp))

    def target(java_table: Any) -> int:
        snapshot = java_table.snapshotManager().earlierOrEqualTimeMills(time_ms)
        if snapshot is None or snapshot.timeMillis() > time_ms:
            raise DataLossError(
                f"table {table}: no snapshot as early as {timestamp} is left; the oldest is "
                f"{java_table.snapshotManager().earliestSnapshotId()}"
            )
        return int(snapshot.id())

    return _rollback(context, table, target, force, "rollback_to_timestamp")


@procedure()
def rollback_to_watermark(
    context: Context, table: str, watermark: int, force: bool = False
) -> pa.Table:
    """Roll a table back to its last snapshot whose watermark (ms) is at most this one."""

    def target(java_table: Any) -> int:
        # Not with Paimon's own search, which fails at snapshots without a watermark.
        snapshots = [
            (snapshot.watermark(), int(snapshot.id()))
            for snapshot in java_table.snapshotManager().snapshots()
        ]
        earlier = [id for at, id in snapshots if at is not None and _NO_WATERMARK < at <= watermark]
        if not earlier:
            raise DataLossError(
                f"table {table}: no snapshot of watermark {watermark} is left; the oldest is "
                f"{java_table.snapshotManager().earliestSnapshotId()}"
            )
        return max(earlier)

    return _rollback(context, table, target, force, "rollback_to_watermark")


def _rollback(
    context: Context, table: str, find: FindTarget, force: bool, procedure_name: str
) -> pa.Table:
    with context.java_locked(table) as (jvm, java_table):
        target = find(java_table)
        latest = java_table.snapshotManager().latestSnapshotId()
        if latest is None:
            raise TableError(f"table {table} has no snapshot to roll back from")
        snapshot = _check(java_table, table, target)
        if not force:
            refuse_if_held(context.table(table), snapshot, procedure_name)
        java_table.rollbackTo(
            target if isinstance(target, str) else jvm.java.lang.Long.valueOf(target)
        )
        return row(previous_snapshot_id=int(latest), current_snapshot_id=snapshot)


def _check(table: Any, name: str, target: str | int) -> int:
    """The snapshot to roll back to; raises an error if it does not exist."""
    tags = tags_of(table)
    if isinstance(target, str):
        check_tag(table, name, target)
        return tags[target]
    manager = table.snapshotManager()
    if not manager.snapshotExists(target) and target not in tags.values():
        raise DataLossError(
            f"table {name} has no snapshot {target}; {manager.earliestSnapshotId()} to "
            f"{manager.latestSnapshotId()} are left"
        )
    return target
