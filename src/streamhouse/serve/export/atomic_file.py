"""A file that is replaced as a whole: its readers see the old one or the new one, never a part.

The new file grows beside the old one under a name of its own, `.<name>.<random>.part`, which its
writer holds locked as long as it lives. So what a killed writer left can be told from what another
one is still writing, and is deleted by the next writer of that file.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

_SUFFIX = ".part"


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """The new file at `path`, for writing; it is in its place, and on the disk, after the `with`.

    Where the `with` ends by an exception, the old file stays. Its folder must be there.
    """
    part = path.with_name(f".{path.name}.{uuid.uuid4().hex[:12]}{_SUFFIX}")
    try:
        with _locked(part) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            # Before the lock goes with the file, lest a sweep takes it for a leftover.
            os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def sweep(path: Path) -> int:
    """Delete what writers of `path` that are gone have left; how many files that were."""
    prefix, found = f".{path.name}.", 0
    for name in os.listdir(path.parent):
        if name.startswith(prefix) and name.endswith(_SUFFIX):
            found += _sweep_one(path.with_name(name))
    return found


def _sweep_one(part: Path) -> bool:
    try:
        with part.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            part.unlink()
    except (BlockingIOError, FileNotFoundError, PermissionError):
        # Somebody is writing it, has just finished, or is another user.
        return False
    return True


@contextlib.contextmanager
def _locked(part: Path) -> Iterator[BinaryIO]:
    """A new file that is locked before anybody can take it for a leftover."""
    while True:
        with part.open("xb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if part.exists():
                yield file
                return
        # A sweep came between the two steps, and deleted it.


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
