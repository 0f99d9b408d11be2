"""Files that describe tables which were altered after their table set was written.

An offset has the name of a file, which depends on the file's content: planning a batch again gives
the same name, and no file is written twice.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Collection
from pathlib import Path

from streamhouse.connectors.mysql_cdc.database.tables.followed_table import FollowedTable
from streamhouse.durable_files import replace_text

_FOLDER = "versions"


class TableVersions:
    """The files of one sync; its planner writes them."""

    def __init__(self, checkpoint: Path) -> None:
        self._folder = checkpoint / _FOLDER
        self._read: dict[str, FollowedTable] = {}

    def add(self, table: FollowedTable) -> str:
        """Write the table's description, if it is a new one; returns its name."""
        text = json.dumps(table.to_json(), sort_keys=True)
        name = f"{table.id}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
        if name not in self._read and not (self._folder / name).exists():
            self._folder.mkdir(parents=True, exist_ok=True)
            replace_text(self._folder / name, text)
        self._read[name] = table
        return name

    def get(self, name: str) -> FollowedTable:
        """The table that was added under a name."""
        if name not in self._read:
            self._read[name] = FollowedTable.from_json(
                json.loads((self._folder / name).read_text())
            )
        return self._read[name]

    def keep(self, names: Collection[str]) -> None:
        """Delete all files but these."""
        if self._folder.is_dir():
            for name in os.listdir(self._folder):
                if name not in names:
                    (self._folder / name).unlink(missing_ok=True)
