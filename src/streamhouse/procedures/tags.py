"""Tags: names for snapshots, which keep them from expiring."""

from typing import Any

import pyarrow as pa

from streamhouse.close_matches import nearest
from streamhouse.errors import OptionError, TableError
from streamhouse.options import duration_ms
from streamhouse.paimon.java.expiry import shared_files
from streamhouse.procedures.arguments import names, timestamp_ms
from streamhouse.procedures.context import Context
from streamhouse.procedures.registry import procedure, row, rows

_TAG = {"tag": str, "snapshot_id": int}
_NAMES = {"tag_name": "tag", "snapshot": "snapshot_id"}


@procedure(**_NAMES)
def create_tag(
    context: Context,
    table: str,
    tag: str,
    snapshot_id: int | None = None,
    time_retained: str | None = None,
) -> pa.Table:
    """Create a tag for a snapshot, by default the newest.

    `time_retained` is a duration such as `7 d`, after which the tag may expire. Returns `tag`,
    `snapshot_id`. Raises `TableError` if the tag already exists, or the snapshot does not.
    """
    with context.java_locked(table) as (jvm, found):
        _check_new(found, table, tag)
        snapshot = _snapshot(found, table, snapshot_id)
        _create(jvm, found, tag, snapshot, time_retained)
        return rows(_TAG, [(tag, snapshot)])


@procedure(**_NAMES)
def create_tag_from_timestamp(
    context: Context, table: str, tag: str, timestamp: str, time_retained: str | None = None
) -> pa.Table:
    """Create a tag for the first snapshot committed at or after a point in time.

    `timestamp` is `2026-01-31 12:00:00` in the machine's time zone, or milliseconds since 1970.
    Returns `tag`, `snapshot_id`, `time_ms`.
    """
    since_ms = timestamp_ms("timestamp", str(timestamp))

    with context.java_locked(table) as (jvm, found):
        _check_new(found, table, tag)
        candidates = [found.snapshotManager().laterOrEqualTimeMills(since_ms)]
        candidates += list(found.tagManager().tags().keySet())
        later = [
            candidate
            for candidate in candidates
            if candidate is not None and candidate.timeMillis() >= since_ms
        ]
        if not later:
            raise TableError(
                f"table {table} has no snapshot as late as {timestamp}; give an earlier time, or "
                "call sys.create_tag for the newest snapshot"
            )
        first = min(later, key=lambda candidate: int(candidate.timeMillis()))
        snapshot, time_ms = int(first.id()), int(first.timeMillis())
        _create(jvm, found, tag, snapshot, time_retained)
        return row(tag=tag, snapshot_id=snapshot, time_ms=time_ms)


@procedure(**_NAMES)
def replace_tag(
    context: Context,
    table: str,
    tag: str,
    snapshot_id: int | None = None,
    time_retained: str | None = None,
) -> pa.Table:
    """Move a tag to another snapshot, by default the newest, or change how long it is kept.

    Returns `tag`, `snapshot_id`.
    """
    with context.java_locked(table) as (jvm, found):
        check_tag(found, table, tag)
        snapshot = _snapshot(found, table, snapshot_id)
        found.replaceTag(tag, jvm.java.lang.Long.valueOf(snapshot), _duration(jvm, time_retained))
        return rows(_TAG, [(tag, snapshot)])


@procedure(tag_name="tag", target_tag_name="target_tag")
def rename_tag(context: Context, table: str, tag: str, target_tag: str) -> pa.Table:
    """Give a tag another name; returns `tag`, `target_tag`."""
    with context.java_locked(table) as (jvm, found):
        check_tag(found, table, tag)
        _check_new(found, table, target_tag)
        found.renameTag(tag, target_tag)
        return row(tag=tag, target_tag=target_tag)


@procedure(tag_name="tag")
def delete_tag(context: Context, table: str, tag: str) -> pa.Table:
    """Drop one or more tags (`a,b`), and files that only they needed; returns `tag`."""
    with context.java_locked(table) as (jvm, found):
        for name in names(tag):
            check_tag(found, table, name)
        for name in names(tag):
            shared_files.delete_tag(jvm, found, name)
        return rows({"tag": str}, [(name,) for name in names(tag)])


@procedure()
def expire_tags(context: Context, table: str, older_than: str | None = None) -> pa.Table:
    """Drop the tags whose `time_retained` is over, or that were created before `older_than`.

    Returns `expired_tag`.
    """
    time_ms = None if older_than is None else timestamp_ms("older_than", older_than)

    with context.java_locked(table, {"tag.time-expire-enabled": "true"}) as (jvm, found):
        with shared_files.automatic_tags(jvm, found) as manager:
            expire = manager.getTagTimeExpire()
            if time_ms is not None:
                expire = expire.withOlderThanTime(_local_time(jvm, time_ms))
            return rows({"expired_tag": str}, [(str(name),) for name in expire.expire()])


@procedure()
def trigger_tag_automatic_creation(context: Context, table: str) -> pa.Table:
    """Create the tags that are due by the table's `tag.automatic-creation`.

    Returns the new tags: `tag`, `snapshot_id`. Raises `OptionError` if the option is not set.
    """
    options = context.table(table).options
    if options.get("tag.automatic-creation", "none") == "none":
        raise OptionError(
            f"table {table} does not create tags automatically; set its option "
            "'tag.automatic-creation', such as 'process-time', and 'tag.creation-period'"
        )

    with context.java_locked(table) as (jvm, found):
        before = tags_of(found)
        with shared_files.automatic_tags(jvm, found) as manager:
            manager.run()
        return rows(_TAG, [tag for tag in tags_of(found).items() if tag[0] not in before])


def _create(jvm: Any, table: Any, tag: str, snapshot: int, time_retained: str | None) -> None:
    number = jvm.java.lang.Long.valueOf(snapshot)
    if time_retained is None:
        table.createTag(tag, number)
    else:
        table.createTag(tag, number, _duration(jvm, time_retained))


def _duration(jvm: Any, text: str | None) -> Any:
    if text is None:
        return None
    return jvm.java.time.Duration.ofMillis(duration_ms("time_retained", text))


def _local_time(jvm: Any, time_ms: int) -> Any:
    zone = jvm.java.time.ZoneId.systemDefault()
    return jvm.java.time.LocalDateTime.ofInstant(jvm.java.time.Instant.ofEpochMilli(time_ms), zone)


def _snapshot(table: Any, name: str, snapshot_id: int | None) -> int:
    """The snapshot to tag; it may be one that only a tag still keeps."""
    manager = table.snapshotManager()
    latest = manager.latestSnapshotId()
    if snapshot_id is None:
        if latest is None:
            raise TableError(f"table {name} has no snapshot yet; insert rows first")
        return int(latest)
    if not manager.snapshotExists(snapshot_id) and snapshot_id not in tags_of(table).values():
        raise TableError(
            f"table {name} has no snapshot {snapshot_id}; "
            f"{manager.earliestSnapshotId()} to {latest} are left"
        )
    return snapshot_id


def tags_of(table: Any) -> dict[str, int]:
    """The tags of Java's table, with their snapshots."""
    return {
        str(tag): int(snapshot.id())
        for snapshot, tags in dict(table.tagManager().tags()).items()
        for tag in tags
    }


def check_tag(table: Any, name: str, tag: str) -> None:
    """Raise `TableError`, which names the nearest one, unless Java's table has a tag."""
    known = tags_of(table)
    if tag not in known:
        raise TableError(f"table {name} has no tag '{tag}'; {nearest(tag, known)}")


def _check_new(table: Any, name: str, tag: str) -> None:
    if tag.isdigit():
        raise OptionError(
            f"a tag's name must not be a number ('{tag}'): numbers are snapshot ids; put a letter "
            "before it"
        )
    if tag in tags_of(table):
        raise TableError(f"table {name} already has a tag '{tag}'; sys.replace_tag changes it")
