"""Since when sessions of a view are open: from the task of a batch to the planner of the next one.

It spares reading older rows. If it is lost, the next batch reads all of them.
"""

from __future__ import annotations

import json
from pathlib import Path

from streamhouse.source import Offset

_FILE = "open_since.json"


def note(folder: Path, end: Offset, since: int | None) -> None:
    """Note the first time of sessions that are open after the batch that ends at `end`."""
    (folder / _FILE).write_text(json.dumps([end["batch"], since]))


def open_since(folder: Path, start: Offset) -> int | None:
    """What was noted for the batch that ends at `start`; None if nothing was."""
    try:
        batch, since = json.loads((folder / _FILE).read_text())
    except (OSError, ValueError):
        return None
    known: int | None = since if batch == start.get("batch") else None
    return known
