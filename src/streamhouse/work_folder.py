"""Temporary folders that are deleted after their process has ended, however it ended.

A killed process cannot delete its folder, so the next process does. A folder in use is recognised
by a file lock, which the operating system releases when the process ends.
"""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator

from streamhouse.durable_files import locked

_LOCK = ".lock"
_swept: set[tuple[str, str]] = set()


@contextlib.contextmanager
def work_folder(prefix: str, parent: str | None = None) -> Iterator[str]:
    """A temporary folder whose name begins with `prefix`; deleted when the `with` block ends.

    It is in `parent`, by default the folder of temporary files. The first call in a process also
    deletes the folders that killed processes have left.
    """
    place = (parent or tempfile.gettempdir(), prefix)
    if place not in _swept:
        _swept.add(place)
        sweep(*place)
    while True:
        with tempfile.TemporaryDirectory(
            prefix=prefix, dir=parent, ignore_cleanup_errors=True
        ) as folder:
            lock = os.path.join(folder, _LOCK)
            with locked(lock, create=True):
                if os.path.exists(lock):
                    yield folder
                    return
            # A sweep of another process deleted the folder before it was locked: try again.


def sweep(parent: str, prefix: str) -> None:
    """Delete the folders of this user's processes that have ended."""
    for name in os.listdir(parent):
        folder = os.path.join(parent, name)
        if name.startswith(prefix) and _is_own(folder):
            lock = os.path.join(folder, _LOCK)
            with contextlib.suppress(OSError), locked(lock, wait_s=0) as is_left:
                if is_left:
                    shutil.rmtree(folder, ignore_errors=True)


def _is_own(folder: str) -> bool:
    try:
        return os.lstat(folder).st_uid == os.getuid()
    except FileNotFoundError:
        return False
