"""Temporary folders that are gone with the process that made them, however it ends.

A process that is killed deletes nothing, so the next one does. Its folder is told from one that is
in use by a lock, which the system lets go of with the process.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from typing import BinaryIO

_LOCK = ".lock"
_swept: set[tuple[str, str]] = set()


@contextlib.contextmanager
def work_folder(prefix: str) -> Iterator[str]:
    """A folder whose name begins so; the first of a process deletes what killed ones have left."""
    place = (tempfile.gettempdir(), prefix)
    if place not in _swept:
        _swept.add(place)
        sweep(*place)
    while True:
        with tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as folder:
            lock = os.path.join(folder, _LOCK)
            with open(lock, "xb") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                if os.path.exists(lock):
                    yield folder
                    return
            # A sweep came between the two steps, and deleted it.


def sweep(parent: str, prefix: str) -> None:
    """Delete the folders of this user's processes that are gone."""
    for name in os.listdir(parent):
        folder = os.path.join(parent, name)
        if name.startswith(prefix) and _is_own(folder):
            with contextlib.suppress(OSError), open(os.path.join(folder, _LOCK), "rb") as lock:
                _delete(folder, lock)


def _is_own(folder: str) -> bool:
    try:
        return os.lstat(folder).st_uid == os.getuid()
    except FileNotFoundError:
        return False


def _delete(folder: str, lock: BinaryIO) -> None:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    shutil.rmtree(folder, ignore_errors=True)
