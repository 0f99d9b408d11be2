"""Targets whose rows a batch could not read as of its position, as files beside the checkpoint.

A statement had altered their tables before the SELECT. The driver writes the file before the batch
is complete, and the next one is planned with it: it reloads these targets.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection
from pathlib import Path

from streamhouse.durable_files import replace_text

_FOLDER = "unread"


class UnreadTargets:
    """The files of one sync."""

    def __init__(self, checkpoint: Path) -> None:
        self._folder = checkpoint / _FOLDER

    def add(self, batch: int, targets: Collection[str]) -> None:
        """Note the targets that a batch has not read; removes the files of earlier batches."""
        if not targets:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        for name in os.listdir(self._folder):
            if name.isdigit() and int(name) < batch - 1:
                (self._folder / name).unlink(missing_ok=True)
        replace_text(self._folder / str(batch), json.dumps(sorted({*targets, *self.of(batch)})))

    def of(self, batch: int) -> list[str]:
        """The targets that a batch has not read."""
        try:
            found: list[str] = json.loads((self._folder / str(batch)).read_text())
        except FileNotFoundError:
            return []
        return found
