"""Atomic INSERT OVERWRITE of a table whose new rows are invisible until compaction.

The Rust core commits new rows as level-0 files, which readers of such a table skip: the replaced
partitions would look empty until a compaction. The Java core commits the files of an overwrite at
the top level, where readers see them, if the files of a bucket have no key in common (decision
087).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing, nullcontext
from typing import Any

from streamhouse.options import boolean
from streamhouse.paimon.java.bucket_compaction import COMMIT_OPTIONS
from streamhouse.paimon.java.sidecar import Sidecar
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.read.visibility import hides_new_rows, producer
from streamhouse.paimon.storage.lock import commit_lock
from streamhouse.procedures.commit_messages import deserialised

_DYNAMIC = "dynamic-partition-overwrite"
_UPGRADE = "overwrite-upgrade"
_WRITES_KEYS_ONCE = ("deduplicate", "first-row")
"""Merge engines for which the Rust core writes at most one row per key into a file."""


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
    lock_held: bool,
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
    with nullcontext() if lock_held else commit_lock(table.location):
        java.call(table.identifier, replace)
