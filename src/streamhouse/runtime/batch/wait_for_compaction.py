"""INSERT and INSERT OVERWRITE of tables whose new rows are invisible until compaction.

The Rust core commits new rows as level-0 files, which readers of such a table skip. After an INSERT
the table is compacted. After an OVERWRITE the replaced partitions would look empty until then, so
the Java core commits its files at the top level, where readers see them, if the files of a bucket
have no key in common (decision 017).
"""

import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext, suppress
from typing import Any

from streamhouse.errors import CommitConflictError
from streamhouse.options import boolean
from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.paimon.changelog.unread_commits import invisible_snapshots
from streamhouse.paimon.java.bucket_compaction import COMMIT_OPTIONS, deserialised
from streamhouse.paimon.java.sidecar import JAVA_OPTIONS, Sidecar
from streamhouse.paimon.maintenance.other_compactors import written_by_live_query
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.read.visibility import hides_new_rows, producer
from streamhouse.paimon.schema.options.iceberg_metadata import has_iceberg_metadata
from streamhouse.paimon.storage.lock import commit_lock

_WAIT_S = 120.0
_POLL_S = 0.2
_TRIES = 5
# Large compactions gain from the C2 compiler, which the maintenance sidecar does without. The heap
# begins small, since most statements need little of it.
_JAVA_OPTIONS = (
    *(
        option
        for option in JAVA_OPTIONS
        if not option.startswith(("-XX:TieredStopAtLevel", "-Xms", "-Xmn"))
    ),
    "-Xms32m",
)

_DYNAMIC = "dynamic-partition-overwrite"
_UPGRADE = "overwrite-upgrade"
_WRITES_KEYS_ONCE = ("deduplicate", "first-row")
"""Merge engines for which the Rust core writes at most one row per key into a file."""


def make_visible(address: TableAddress, java: Sidecar) -> None:
    """Make the newly committed rows of a table visible.

    If a running pipeline writes the table, wait for its compaction, for up to two minutes. Else
    compact here. Does nothing for tables whose rows are visible at once, and for `write-only`
    tables.
    """
    table = address.open()
    write_only = boolean("write-only", table.options.get("write-only", "false"))
    if write_only or not hides_new_rows(table):
        return
    committed = table.latest_snapshot_id() or 0
    if written_by_live_query(table) and _wait_for_others(address, committed):
        return
    for _ in range(_TRIES):
        with suppress(CommitConflictError):
            java.compact(table.identifier)
            return


def write_iceberg_metadata(address: TableAddress, java: Sidecar) -> None:
    """After a statement, bring the Iceberg metadata of a table up to date, if it has some.

    A running query does so itself.
    """
    table = address.open()
    if has_iceberg_metadata(table.options) and not written_by_live_query(table):
        java.write_iceberg_metadata(table.identifier)


def java_core(
    warehouse: Mapping[str, str], sidecar: Sidecar | None
) -> AbstractContextManager[Sidecar]:
    """The given Java core, or else a new one for one statement, which starts on first use."""
    return Sidecar(warehouse, _JAVA_OPTIONS) if sidecar is None else nullcontext(sidecar)


def _wait_for_others(address: TableAddress, committed: int) -> bool:
    """Wait until others have compacted all snapshots up to `committed`; False if not in time."""
    deadline, seen = time.monotonic() + _WAIT_S, 0
    while time.monotonic() < deadline and written_by_live_query(address.open()):
        current = address.open()
        latest = current.latest_snapshot_id() or 0
        if latest != seen:
            seen = latest
            commits = invisible_snapshots(current, latest)
            if commits is not None and not any(number <= committed for number in commits):
                return True
        time.sleep(_POLL_S)
    return False


def shows_at_once(table: Table) -> bool:
    """Whether readers can see the files of an overwrite at once, without a compaction."""
    options = table.options
    return (
        hides_new_rows(table)
        and table.bucket > 0
        and options.get("merge-engine", "deduplicate").lower() in _WRITES_KEYS_ONCE
        and producer(options) != "input"
        # `rowkind.field` can make rows deletions, which only a merge removes.
        and "rowkind.field" not in options
        and boolean(_UPGRADE, options.get(_UPGRADE, "true"))
    )


def overwrite(
    java: Sidecar,
    table: Table,
    commit_user: str,
    messages: Sequence[bytes],
    table_options: Mapping[str, str],
    partition: Mapping[str, str],
) -> None:
    """Overwrite as `overwrite_table` does, but commit with the Java core; driver only.

    `table` must be one that `shows_at_once`; `partition` maps columns to their values as text. If
    several files were written for a bucket and their keys overlap, its rows are still invisible
    until a compaction.
    """
    options = dict(COMMIT_OPTIONS)
    if _DYNAMIC in table_options:
        options[_DYNAMIC] = table_options[_DYNAMIC]

    def replace(jvm: Any, java_table: Any) -> None:
        with closing(java_table.copy(options).newCommit(commit_user)) as commit:
            commit.withOverwrite(dict(partition)).commit(deserialised(jvm, messages))

    # Started before the lock is taken, so other writers do not wait for it.
    java.start()
    with commit_lock(table.location):
        java.call(table.identifier, replace)
