"""Time travel: tables as of a snapshot, a tag or a time, with the schema that they had then."""

import contextlib
import datetime
import time
from bisect import bisect_right

from streamhouse.close_matches import nearest
from streamhouse.errors import DataLossError, OptionError, TableError
from streamhouse.options import duration_ms
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.storage.snapshots import Snapshot
from streamhouse.sql.options.time_travel_options import milliseconds
from streamhouse.sql.plan import AsOf


def table_as_of(table: Table, as_of: AsOf) -> Table:
    """The table as of a point in time, which its `read` and `splits` use if no snapshot is given.

    Raises `TableError` for a tag, snapshot or time that never existed, `DataLossError` for a
    snapshot that has expired; both say what exists.
    """
    as_of = resolve(table, as_of)
    if as_of.tag is not None:
        schema_id = _tag_snapshot(table, as_of.tag).schema_id
        return table.open_version(schema_id, {"scan.tag-name": as_of.tag})
    if as_of.snapshot is None:
        return _pinned(table, 0)
    schema_id = table.snapshot(as_of.snapshot).schema_id
    return table.open_version(schema_id, {"scan.snapshot-id": str(as_of.snapshot)})


def pinned(table: Table) -> Table:
    """The table at its newest snapshot, with the columns that it has now.

    They may be newer than the snapshot: ALTER TABLE creates none.
    """
    latest = table.latest_snapshot_id()
    if latest is None:
        return _pinned(table, 0)
    if table.snapshot(latest).schema_id == table.schema_id:
        return table.copy({"scan.snapshot-id": str(latest)})
    # The core's own `scan.snapshot-id` would read the columns of the snapshot's version.
    return _pinned(table, latest)


def _pinned(table: Table, snapshot: int) -> Table:
    return Table(
        table.rust,
        table.database,
        table.name,
        table.catalog_options,
        table.schema,
        pinned=snapshot,
    )


def resolve(table: Table, as_of: AsOf) -> AsOf:
    """Resolve a point in time to an existing tag or snapshot; an empty one to the newest snapshot.

    The result is empty for a table without snapshots. Raises the errors of `table_as_of`.
    """
    version = as_of.version
    if version is not None:
        if version.isdigit() and version not in table.tags():
            as_of = AsOf(snapshot=int(version))
        else:
            as_of = AsOf(tag=version)
    if as_of.tag is not None:
        _tag_snapshot(table, as_of.tag)
        return as_of
    latest = table.latest_snapshot_id()
    if as_of.snapshot is not None:
        return AsOf(snapshot=_check_exists(table, as_of.snapshot, latest))
    if latest is None or as_of.timestamp_ms is None:
        return AsOf(snapshot=latest)
    return AsOf(snapshot=_snapshot_at(table, as_of.timestamp_ms, latest))


def parse_as_of(table: Table, text: str) -> AsOf:
    """Parse a point in time: a tag, a snapshot's number, a time in UTC, or `5 min ago`."""
    if text in table.tags():
        return AsOf(tag=text)
    if text.isdigit():
        return AsOf(snapshot=int(text))
    ago = text.removesuffix("ago").strip()
    now = time.time_ns() // 1_000_000
    with contextlib.suppress(OptionError):
        return AsOf(timestamp_ms=milliseconds("as of", text))
    with contextlib.suppress(OptionError):
        return AsOf(timestamp_ms=now - duration_ms("as of", ago))
    hint = nearest(text, table.tags())
    raise TableError(
        f"table '{table.identifier}' has no tag '{text}'; {hint}; a point in time can "
        "also be a snapshot's number, a time such as '2026-01-01 00:00:00' (UTC) or '5 min ago'"
    )


def snapshot_of(table: Table, as_of: AsOf) -> Snapshot | None:
    """The snapshot of a point in time that `resolve` returned; None if that is empty."""
    if as_of.tag is not None:
        return _tag_snapshot(table, as_of.tag)
    return None if as_of.snapshot is None else table.snapshot(as_of.snapshot)


def _tag_snapshot(table: Table, tag: str) -> Snapshot:
    tags = table.tags()
    snapshot = table.tag(tag) if tag in tags else None
    if snapshot is None:
        raise TableError(f"table '{table.identifier}' has no tag '{tag}'; {nearest(tag, tags)}")
    return snapshot


def _check_exists(table: Table, snapshot: int, latest: int | None) -> int:
    if latest is None:
        raise TableError(f"table '{table.identifier}' has no snapshot {snapshot}: it has none yet")
    if not 0 < snapshot <= latest:
        raise TableError(
            f"table '{table.identifier}' has no snapshot {snapshot}; its newest is {latest}"
        )
    if table.snapshots.find(snapshot) is None:
        expired = table.snapshots.expired_error(snapshot, time_travel=True)
        raise DataLossError(f"{expired}{_tags_hint(table)}")
    return snapshot


def _snapshot_at(table: Table, time_ms: int, latest: int) -> int:
    """The newest snapshot committed at or before the time; commit times grow with the ids."""
    earliest = table.earliest_snapshot_id() or latest
    numbers = range(earliest, latest + 1)
    high = earliest - 1 + bisect_right(numbers, time_ms, key=lambda at: table.snapshot(at).time_ms)
    if high < earliest:
        earliest_ms = table.snapshot(earliest).time_ms
        raise TableError(
            f"table '{table.identifier}' has no snapshot as old as {_iso(time_ms)}; "
            f"its earliest is {earliest}, committed at {_iso(earliest_ms)}{_tags_hint(table)}"
        )
    return high


def _tags_hint(table: Table) -> str:
    tags = table.tags()
    return f"; its tags are {', '.join(tags)}" if tags else ""


def _iso(time_ms: int) -> str:
    try:
        as_of = datetime.datetime.fromtimestamp(time_ms / 1000, datetime.UTC)
    except (ValueError, OverflowError, OSError):
        return f"{time_ms:,} ms since 1970"
    return as_of.strftime("%Y-%m-%d %H:%M:%S.") + f"{time_ms % 1000:03d} UTC"
