"""Files of statements that died before their commit: told by a marker, removed by the next one."""

from __future__ import annotations

import hashlib
import os
import socket
import uuid
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from streamhouse.paimon.commit import TableCommitter
from streamhouse.paimon.table import Table

TAG = "streamhousechg"
"""How the names of such a statement's data files begin."""

_FOLDER = ".changes"
_HOST = hashlib.sha256(socket.gethostname().encode()).hexdigest()[:8]


@contextmanager
def attempt(table: Table, committer: TableCommitter) -> Iterator[str]:
    """The prefix of the files of one try; they are removed unless a snapshot has them."""
    word = f"{_HOST}x{os.getpid():x}x{uuid.uuid4().hex[:10]}"
    marker = f"{table.location}/{_FOLDER}/{word}"
    with table.files.open_output(marker) as file:
        file.write(str(table.latest_snapshot_id() or 0).encode())
    try:
        yield f"{TAG}-b0-{word}-"
    except BaseException:
        committer.remove_leftovers(TAG, keep=_AllBut([word]))
        raise
    finally:
        table.files.delete(marker)


def remove_dead(table: Table, committer: TableCommitter) -> int:
    """Remove what processes of this machine left that died in a try; returns how many files."""
    folder = f"{table.location}/{_FOLDER}"
    words = [name for name, _ in table.files.names(folder) if _died(name)]
    if not words:
        return 0
    removed = 0
    for word in words:
        began = table.files.read_text(f"{folder}/{word}") or "0"
        # Once the snapshot that it may have made has expired, a tag may hold its files.
        if (table.earliest_snapshot_id() or 0) <= int(began) + 1:
            removed += committer.remove_leftovers(TAG, keep=_AllBut([word]))
        table.files.delete(f"{folder}/{word}")
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
