"""Snapshot files of commits that were cut off, over which the Java core stumbles.

The Rust core writes a snapshot beside its place and renames it. What a process leaves that dies in
between, the Java core takes for a snapshot with a strange number whenever it lists them, for ever.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import nullcontext

from streamhouse.errors import CommitConflictError, StreamhouseError
from streamhouse.paimon.files import Files, files_of
from streamhouse.paimon.lock import commit_lock, holds_lock
from streamhouse.paimon.table_name import TableName

_TORN = re.compile(r"snapshot-\d+\.tmp-.+")
_TOLD = re.compile(r"\d+\.tmp-[0-9a-f]{8}-")
_WAIT_S = 5.0


def is_cause(error: StreamhouseError) -> bool:
    """Whether the Java core failed because of such a file (or one that is just being written)."""
    return _TOLD.search(str(error)) is not None


def remove_torn(catalog_options: Mapping[str, str], identifier: str) -> bool:
    """Remove such files of a table; False if the table's lock cannot be had.

    Whoever holds the lock commits alone, so what is unfinished then has been given up.
    """
    from streamhouse.paimon.catalog import Warehouse, split_identifier

    database, name = split_identifier(identifier)
    table = Warehouse(catalog_options).table(f"{database}.{TableName.parse(name).data}")
    files = files_of(table.location, catalog_options)
    locked = holds_lock(table.location)
    try:
        with nullcontext() if locked else commit_lock(table.location, _WAIT_S):
            for folder in {f"{table.location}/snapshot", f"{table.root}/snapshot"}:
                _remove(files, folder)
    except CommitConflictError:
        return False
    return True


def _remove(files: Files, folder: str) -> None:
    for name, is_folder in files.names(folder):
        if not is_folder and _TORN.fullmatch(name):
            files.delete(f"{folder}/{name}")
