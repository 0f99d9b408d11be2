"""The folder of a relay log, which the process that writes the log locks."""

from __future__ import annotations

import fcntl
import os
import shutil
import uuid
from pathlib import Path

FOLDER = ".relay"
"""The folder of relay logs: beside the checkpoints of a pipeline's queries, or in a sync's."""
_LOCK = "lock"


def own_folder(root: Path) -> tuple[Path, int]:
    """Create and lock a new folder; removes the folders of drivers that have died."""
    root.mkdir(parents=True, exist_ok=True)
    for folder in root.iterdir():
        handle = _lock(folder)
        if handle is not None:
            shutil.rmtree(folder, ignore_errors=True)
            os.close(handle)
    while True:
        folder = root / uuid.uuid4().hex[:12]
        folder.mkdir(mode=0o700)
        handle = _lock(folder)
        # Else another driver of this pipeline has just removed the folder as a leftover: try again.
        if handle is not None and folder.exists():
            return folder, handle


def _lock(folder: Path) -> int | None:
    try:
        handle = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        return None
    return handle
