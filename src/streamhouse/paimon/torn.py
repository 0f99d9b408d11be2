"""Snapshot files of commits that were cut off: they keep the Java core from listing snapshots."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from streamhouse.paimon.lock import commit_lock

if TYPE_CHECKING:
    from streamhouse.paimon.table import Table

_TORN = re.compile(r"snapshot-\d+\.tmp-.+")


def remove_torn(table: Table) -> int:
    """Remove what a killed process left of a snapshot before it got its name; how many files.

    Under the table's lock nobody commits, so whatever is unfinished then has been given up.
    """
    folder = f"{table.root}/snapshot"
    if not _torn(table, folder):
        return 0
    with commit_lock(table.location):
        found = _torn(table, folder)
        for name in found:
            table.files.delete(f"{folder}/{name}")
    return len(found)


def _torn(table: Table, folder: str) -> list[str]:
    names = table.files.names(folder)
    return [name for name, is_folder in names if not is_folder and _TORN.fullmatch(name)]
