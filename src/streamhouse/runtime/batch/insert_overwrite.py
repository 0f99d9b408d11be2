"""INSERT OVERWRITE of a table whose rows show only once they are compacted, in one moment.

The Rust core commits new rows as files of level 0, which readers of such a table leave out: what
is replaced would be empty until a compaction. The Java core puts the files of an overwrite at the
top level, where they are read, if those of a bucket have no key in common (decision 087).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

from streamhouse.options import boolean
from streamhouse.paimon.java.sidecar import Sidecar
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.read.visibility import hides_new_rows
from streamhouse.paimon.storage.lock import commit_lock
from streamhouse.procedures.commit_messages import COMMIT_OPTIONS, closing, deserialised

_DYNAMIC = "dynamic-partition-overwrite"
_UPGRADE = "overwrite-upgrade"
_WRITES_KEYS_ONCE = ("deduplicate", "first-row")
"""Merge engines of which the Rust core writes a file with one row of each key."""


def shows_at_once(table: Table) -> bool:
    """Whether the files of an overwrite can be read as they were written, without a merge."""
    options = table.options
    return (
        hides_new_rows(table)
        and table.bucket > 0
        and options.get("merge-engine", "deduplicate").lower() in _WRITES_KEYS_ONCE
        and options.get("changelog-producer", "none").lower() != "input"
        # Such a column makes removals of rows, which only a merge leaves out.
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
    lock_held: bool,
) -> None:
    """Replace rows as `overwrite_table` does, by the Java core; driver.

    `table` is one that `shows_at_once`, `partition` maps columns to their text. Where more than
    one file was written for a bucket and keys overlap, its rows still wait for a compaction.
    """
    options = dict(COMMIT_OPTIONS)
    if _DYNAMIC in table_options:
        options[_DYNAMIC] = table_options[_DYNAMIC]

    def replace(jvm: Any, found: Any) -> None:
        with closing(found.copy(options).newCommit(commit_user)) as commit:
            commit.withOverwrite(dict(partition)).commit(deserialised(jvm, messages))

    # Other writers need not wait for a JVM to start.
    java.start()
    with nullcontext() if lock_held else commit_lock(table.location):
        java.call(table.identifier, replace)
