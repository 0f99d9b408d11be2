"""The folder of a demo: one demo at a time locks it, and starts with an empty warehouse."""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path

from streamhouse.errors import StreamhouseError


class Folder:
    """Where a demo keeps its MariaDB, its warehouse and its log."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.warehouse = self.path / "warehouse"
        self.log = self.path / "log"
        self._lock: int | None = None

    def claim(self) -> None:
        """Lock the folder and empty the warehouse; `StreamhouseError` if another demo has it."""
        self.path.mkdir(parents=True, exist_ok=True)
        lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise StreamhouseError(
                f"a demo is already running in {self.path}; stop it, or use another folder by "
                "--dir DIR"
            ) from None
        self._lock = lock
        shutil.rmtree(self.warehouse, ignore_errors=True)
        self.warehouse.mkdir()
        self.log.unlink(missing_ok=True)

    def release(self) -> None:
        """Unlock the folder."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
