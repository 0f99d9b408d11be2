"""The folder of a demo: one demo at a time locks it, and starts with an empty warehouse."""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path

from streamhouse.errors import StreamhouseError
from streamhouse.paimon.storage.files import files_of

_MARKER = ".streamhouse-demo"


class DemoFolder:
    """Where a demo keeps its MariaDB, its warehouse and its log.

    `warehouse` is the location of a warehouse outside the folder, in an object store; None: the
    folder `warehouse`.
    """

    def __init__(self, path: Path, warehouse: str | None = None) -> None:
        self.path = path.absolute()
        self._remote = warehouse is not None
        self.warehouse = warehouse or str(self.path / "warehouse")
        self.log = self.path / "log"
        self._lock: int | None = None

    @property
    def run_arguments(self) -> list[str]:
        """Arguments of `streamhouse run`: the warehouse, and where the checkpoints are."""
        arguments = ["--warehouse", self.warehouse]
        if self._remote:
            arguments += ["--checkpoints", str(self._checkpoints)]
        return arguments

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
        try:
            self._empty()
        except BaseException:
            self.release()
            raise

    def _empty(self) -> None:
        shutil.rmtree(self._checkpoints, ignore_errors=True)
        if self._remote:
            self._empty_remote()
        else:
            shutil.rmtree(self.warehouse, ignore_errors=True)
            Path(self.warehouse).mkdir()
        self.log.unlink(missing_ok=True)

    def _empty_remote(self) -> None:
        """Delete what an earlier demo left in the object store, but nothing of others."""
        files = files_of(self.warehouse, {"warehouse": self.warehouse})
        marker = f"{self.warehouse}/{_MARKER}"
        if files.names(self.warehouse) and not files.exists(marker):
            raise StreamhouseError(
                f"{self.warehouse} is not empty, and the demo would delete all of it; name an "
                "empty folder of the bucket"
            )
        files.delete(self.warehouse)
        files.write_text(marker, "This folder is a demo's: it is emptied when a demo starts.\n")

    @property
    def _checkpoints(self) -> Path:
        return self.path / "checkpoints"

    def release(self) -> None:
        """Unlock the folder."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
