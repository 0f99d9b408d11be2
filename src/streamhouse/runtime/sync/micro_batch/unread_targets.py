"""Targets whose rows a batch could not read as of its position, as files beside the checkpoint.

A statement had altered their tables before the SELECT. The driver writes the file before the batch
is complete, and the next one is planned with it: it reloads these targets.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from streamhouse.durable_files import read_json, replace_json

_FOLDER = "unread"


class UnreadTargets:
    """The files of one sync."""

    def __init__(self, checkpoint: Path) -> None:
        self._folder = checkpoint / _FOLDER

    def add(self, batch: int, targets: Collection[str]) -> None:
        """Note the targets that a batch has not read; removes the files of earlier batches."""
        if not targets:
            return
        for path in self._folder.glob("[0-9]*"):
            if int(path.name) < batch - 1:
                path.unlink(missing_ok=True)
        replace_json(self._folder / str(batch), sorted({*targets, *self.of(batch)}))

    def of(self, batch: int) -> list[str]:
        """The targets that a batch has not read."""
        return read_json(self._folder / str(batch)) or []
