"""Removes temporary snapshot files of commits that were killed; the Java core fails on them.

The Rust core writes a snapshot to `snapshot-N.tmp-…` and then renames it. If the process dies in
between, the file stays. Whenever the Java core lists snapshots, it fails to parse its number.
"""

import re
from collections.abc import Mapping

from streamhouse.errors import CommitConflictError, StreamhouseError, TableError
from streamhouse.paimon.schema.table_name import TableName, branch_root, split_identifier
from streamhouse.paimon.storage import rust_core
from streamhouse.paimon.storage.files import Files, files_of
from streamhouse.paimon.storage.lock import commit_lock

_TEMPORARY_NAME = re.compile(r"snapshot-\d+\.tmp-.+")
_NAME_IN_ERROR = re.compile(r"\d+\.tmp-[0-9a-f]{8}-")
_WAIT_S = 5.0


def is_cause(error: StreamhouseError) -> bool:
    """Whether the Java core failed because of such a file (or one that is just being written)."""
    return _NAME_IN_ERROR.search(str(error)) is not None


def remove(catalog_options: Mapping[str, str], identifier: str) -> bool:
    """Remove such files of a table; False if its commit lock is not free within 5 seconds.

    No other process commits while this one holds the lock, so all such files are leftovers.
    """
    database, name = split_identifier(identifier)
    parsed = TableName.parse(name)
    try:
        table = rust_core.catalog(catalog_options).get_table((database, parsed.table))
    except rust_core.CATALOG_ERRORS as error:
        raise TableError(f"table {identifier} cannot be opened: {error}") from error
    location = table.location()
    files = files_of(location, catalog_options)
    try:
        with commit_lock(location, _WAIT_S):
            for root in {location, branch_root(location, parsed.branch)}:
                _remove(files, f"{root}/snapshot")
    except CommitConflictError:
        return False
    return True


def _remove(files: Files, folder: str) -> None:
    for name, is_folder in files.names(folder):
        if not is_folder and _TEMPORARY_NAME.fullmatch(name):
            files.delete(f"{folder}/{name}")
