"""What statements that change rows leave for others to see: commit users, markers, lost files.

A try at a statement has a marker in the table's folder; if its process dies, the next statement
removes the files of that try.
"""

from __future__ import annotations

import hashlib
import os
import socket
import uuid
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, nullcontext
from typing import TypeVar

from streamhouse.errors import CommitConflictError
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.storage.lock import commit_lock
from streamhouse.paimon.write.commit import TableCommitter

_T = TypeVar("_T")

CHANGE_USER = "streamhouse-change"
"""How the commit users of such statements begin."""

TAG = "streamhousechg"
"""How the names of such a statement's data files begin."""

TRIES = 3
"""Times that rows are written again because of other commits; then those wait."""

_FOLDER = ".changes"
_HOST = hashlib.sha256(socket.gethostname().encode()).hexdigest()[:8]


def with_retries(table: Table, write: Callable[[bool], _T | None]) -> _T:
    """Call `write` until it returns a value; None says that other commits outdated its rows.

    Its argument says whether the table's commit lock is held, as it is for the last of `TRIES` + 1
    calls. If that one returns None, too, raises `CommitConflictError`.
    """
    for number in range(TRIES + 1):
        held = number == TRIES
        with commit_lock(table.location) if held else nullcontext():
            found = write(held)
        if found is not None:
            return found
    raise CommitConflictError(
        f"table {table.identifier}: others committed to it during every try, or altered it, "
        "though the last try held its lock; writers of other engines, and those on other machines, "
        "do not wait for it. Write this table from one place at a time, or give it a fixed number "
        "of buckets"
    )


def rows_changed(table: Table, since: int | None) -> bool:
    """Whether files written on top of the snapshot `since` (None: of an empty table) are outdated.

    They must be written again after one of these commits of others:

    - A statement has changed rows. The changed rows would hide the written ones, although they
      were made from older rows.
    - Any commit but a compaction, where the table has dynamic buckets. A writer looks up the
      bucket of a key in the index of `since`. If two writers add the same key, each puts it into a
      bucket of its own, and the key is there twice; of their two indexes the later one stays.
    """
    latest = table.latest_snapshot_id() or 0
    if table.has_dynamic_buckets:
        return table.snapshots.changed_rows(since or 0, latest)
    found = (table.snapshots.find(number) for number in range(latest, since or 0, -1))
    return any(one is not None and one.commit_user.startswith(CHANGE_USER) for one in found)


@contextmanager
def attempt(table: Table, committer: TableCommitter) -> Iterator[str]:
    """The prefix of the files of one try; they are removed unless a snapshot has them."""
    word = f"{_HOST}x{os.getpid():x}x{uuid.uuid4().hex[:10]}"
    marker = f"{table.location}/{_FOLDER}/{word}"
    with table.files.open_output(marker) as file:
        file.write(str(table.latest_snapshot_id() or 0).encode())
    try:
        yield prefix_of(word)
    except BaseException:
        committer.remove_leftovers(TAG, keep=_AllBut([word]))
        raise
    finally:
        table.files.delete(marker)


def prefix_of(word: str) -> str:
    """How the files of the try with this marker begin."""
    return f"{TAG}-b0-{word}-"


def dead(table: Table) -> list[tuple[str, int]]:
    """Tries of this machine that died: each marker, and the snapshot at which it began."""
    folder = f"{table.location}/{_FOLDER}"
    words = [name for name, _ in table.files.names(folder) if _died(name)]
    return [(word, int(table.files.read_text(f"{folder}/{word}") or "0")) for word in words]


def remove_dead(table: Table, committer: TableCommitter) -> int:
    """Remove what processes of this machine left that died in a try; returns how many files."""
    removed = 0
    for word, began in dead(table):
        # Once the snapshot that it may have made has expired, a tag may hold its files.
        if (table.earliest_snapshot_id() or 0) <= began + 1:
            removed += committer.remove_leftovers(TAG, keep=_AllBut([word]))
        table.files.delete(f"{table.location}/{_FOLDER}/{word}")
    return removed


def _died(word: str) -> bool:
    host, _, rest = word.partition("x")
    if host != _HOST:
        return False
    try:
        os.kill(int(rest.partition("x")[0], 16), 0)
    except ProcessLookupError:
        return True
    except (ValueError, PermissionError):
        return False
    return False


class _AllBut(Collection[str]):
    """All tries but these: those whose files are to be left alone."""

    def __init__(self, words: list[str]) -> None:
        self._words = words

    def __contains__(self, word: object) -> bool:
        return word not in self._words

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0
