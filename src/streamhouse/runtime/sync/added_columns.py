"""The columns that a reload has added to its target, until the reload is committed.

A reload gives the target the columns that MySQL has at that time. If the process dies before the
batch is in Spark's offset log, only this file distinguishes these columns from the user's. By the
next attempt MySQL may have other columns.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path

from streamhouse.durable_files import replace_text

_FILE = "added-columns.json"


class AddedColumns:
    """The names by target, in a file of the sync's checkpoint; its planner writes them."""

    def __init__(self, checkpoint: Path) -> None:
        self._path = checkpoint / _FILE

    def of(self, target: str) -> frozenset[str]:
        """The columns that reloads have added to a target."""
        return frozenset(self._all().get(target, ()))

    def replace(self, target: str, names: Collection[str]) -> None:
        """Record these columns instead, before they are added."""
        found = self._all()
        if set(found.get(target, ())) == set(names):
            return
        found[target] = sorted(names)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        replace_text(self._path, json.dumps(found, sort_keys=True))

    def _all(self) -> dict[str, list[str]]:
        try:
            found: dict[str, list[str]] = json.loads(self._path.read_text())
        except FileNotFoundError:
            return {}
        return found
