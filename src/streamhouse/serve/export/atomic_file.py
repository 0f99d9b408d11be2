"""Atomic replacement of a file: readers see the old content or the new, never a part.

The new content is written to `.<name>.<random>.part` in the same folder, which the writer keeps
locked (flock) while it lives. The lock distinguishes a part being written from a leftover of a
killed writer, which the next writer of that file deletes.

docs/decisions/074-exports-are-atomic.md says why.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from streamhouse.durable_files import sync_folder

_SUFFIX = ".part"


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a new file that replaces `path` when the `with` ends; by then it is synced to disk.

    If the `with` ends with an exception, the old file stays. The folder must exist.
    """
    part = path.with_name(f".{path.name}.{uuid.uuid4().hex[:12]}{_SUFFIX}")
    try:
        with _locked(part) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            # While the file is still locked, so that no sweep takes it for a leftover.
            os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sweep(path: Path) -> int:
    """Delete the leftovers of killed writers of `path`; returns how many files that were."""
    prefix, deleted = f".{path.name}.", 0
    for name in os.listdir(path.parent):
        if name.startswith(prefix) and name.endswith(_SUFFIX):
            deleted += _sweep_one(path.with_name(name))
    return deleted


def _sweep_one(part: Path) -> bool:
    try:
        with part.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            part.unlink()
    except (BlockingIOError, FileNotFoundError, PermissionError):
        # Another process is writing it or has just finished, or it belongs to another user.
        return False
    return True


@contextlib.contextmanager
def _locked(part: Path) -> Iterator[BinaryIO]:
    """Create a file and lock it; repeats if a sweep deletes it between these two steps."""
    while True:
        with part.open("xb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if part.exists():
                yield file
                return
        # A concurrent sweep deleted the file before it was locked.
