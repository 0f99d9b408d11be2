"""Attempts at DML statements: commit users, marker files, retries and orphan files.

Each attempt has a marker file in the table's folder. If its process dies, the next statement
deletes the orphan files of that attempt.
"""

import hashlib
import os
import socket
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from typing import TypeVar

from streamhouse.errors import CommitConflictError
from streamhouse.machine import process_namespace
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.storage.lock import commit_lock
from streamhouse.paimon.write.commit import TableCommitter
from streamhouse.paimon.write.table_writer import TableWriter

_T = TypeVar("_T")

CHANGE_USER = "streamhouse-change"
"""How the commit users of DML statements begin."""

TAG = "streamhousechg"
"""How the names of a DML statement's data files begin."""

TRIES = 3
"""Attempts without the table's commit lock; one more holds it, so that other writers wait."""

_FOLDER = ".changes"
_HOST = hashlib.sha256(f"{socket.gethostname()} {process_namespace()}".encode()).hexdigest()[:8]
"""Where the process ids in the names of markers are valid."""


def change_user() -> str:
    """The commit user of one DML statement."""
    return f"{CHANGE_USER}-{uuid.uuid4()}"


def with_retries(table: Table, write: Callable[[], _T | None]) -> _T:
    """Call `write` until it returns a value; None: other commits have made its rows outdated.

    The last of `TRIES` + 1 calls holds the table's commit lock. If that one returns None too,
    raises `CommitConflictError`.
    """
    for number in range(TRIES + 1):
        with commit_lock(table.location) if number == TRIES else nullcontext():
            result = write()
        if result is not None:
            return result
    raise CommitConflictError(
        f"table {table.identifier}: other writers committed to it or altered it during every "
        "attempt, although the last attempt held its lock; writers of other engines and on other "
        "machines do not wait for that lock. Write this table from one place at a time, or give "
        "it a fixed number of buckets"
    )


def rows_changed(table: Table, since: int | None) -> bool:
    """Whether files written on top of the snapshot `since` (None: of an empty table) are outdated.

    They must be written again after one of these commits by others:

    - A commit of a DML statement. Its rows would hide the written ones, although it computed them
      from older rows.
    - Any commit that changes rows, if the table has dynamic buckets. A writer looks up the bucket
      of a key in the index of `since`. If two writers add the same key, each puts it into a
      bucket of its own, and the table has the key twice; of their two indexes the later one stays.
    """
    latest = table.latest_snapshot_id() or 0
    if table.has_dynamic_buckets:
        return table.snapshots.changed_rows(since or 0, latest)
    snapshots = (table.snapshots.find(number) for number in range(latest, since or 0, -1))
    return any(
        snapshot is not None and snapshot.commit_user.startswith(CHANGE_USER)
        for snapshot in snapshots
    )


class Attempt:
    """One attempt of a statement at a table: its commit user, and its files."""

    def __init__(self, table: Table) -> None:
        self.user, self.name = change_user(), f"{_HOST}x{os.getpid():x}x{uuid.uuid4().hex[:10]}"
        self.committer = TableCommitter(table.catalog_options, table.identifier, self.user)
        self._table = table

    def writer(
        self, options: Mapping[str, str] | None = None, overwrite: bool = False
    ) -> TableWriter:
        """A writer of its files; the arguments are as for `TableWriter`."""
        table, prefix = self._table, prefix_of(self.name)
        return TableWriter(
            table.catalog_options, table.identifier, self.user, prefix, options, overwrite
        )


@contextmanager
def attempt(table: Table) -> Iterator[Attempt]:
    """Mark one attempt while the block runs.

    If the block raises, deletes those of its files that no snapshot has.
    """
    own = Attempt(table)
    marker = f"{table.location}/{_FOLDER}/{own.name}"
    with table.files.open_output(marker) as file:
        file.write(str(table.latest_snapshot_id() or 0).encode())
    try:
        yield own
    except BaseException:
        own.committer.remove_leftovers(prefix_of(own.name).removesuffix("-"))
        raise
    finally:
        table.files.delete(marker)


def prefix_of(attempt_name: str) -> str:
    """How the file names of the attempt begin; its marker file has its name."""
    return f"{TAG}-b0-{attempt_name}-"


def dead_attempts(table: Table) -> list[tuple[str, int]]:
    """Attempts whose process on this machine died: each name, and the snapshot at its start."""
    folder = f"{table.location}/{_FOLDER}"
    attempt_names = [name for name, _ in table.files.names(folder) if _died(name)]
    return [
        (attempt_name, int(table.files.read_text(f"{folder}/{attempt_name}") or "0"))
        for attempt_name in attempt_names
    ]


def remove_dead_attempts(table: Table) -> int:
    """Delete orphan files of attempts whose process on this machine died; returns how many."""
    committer, removed = TableCommitter(table.catalog_options, table.identifier, CHANGE_USER), 0
    for attempt_name, start_snapshot in dead_attempts(table):
        # If the snapshot that it may have committed has expired, a tag may still need its files.
        if (table.earliest_snapshot_id() or 0) <= start_snapshot + 1:
            removed += committer.remove_leftovers(prefix_of(attempt_name).removesuffix("-"))
        table.files.delete(f"{table.location}/{_FOLDER}/{attempt_name}")
    return removed


def _died(attempt_name: str) -> bool:
    # It takes 15 ms to import, and few processes find attempts of others.
    import psutil

    host, _, rest = attempt_name.partition("x")
    with suppress(ValueError):
        return host == _HOST and not psutil.pid_exists(int(rest.partition("x")[0], 16))
    return False
