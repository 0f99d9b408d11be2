"""The Paimon tables that a sync creates, until one of the sync's table sets has them.

If the process dies in between, only this file distinguishes such a table from the user's. MySQL's
table may have other columns by the next run, and the target must not keep the old ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from streamhouse.durable_files import read_json, replace_json
from streamhouse.paimon.read.table import Table

_FILE = "created-tables.json"


class CreatedTables:
    """The columns and keys by table, in a file of the sync's checkpoint; driver only."""

    def __init__(self, checkpoint: Path) -> None:
        self._path = checkpoint / _FILE

    def note(self, tables: Mapping[str, tuple[Sequence[str], Sequence[str]]]) -> None:
        """Record tables, with their columns and primary keys, before they are created."""
        if tables:
            noted = {name: [list(names), list(key)] for name, (names, key) in tables.items()}
            replace_json(self._path, self._all() | noted)

    def names(self) -> frozenset[str]:
        """The recorded tables."""
        return frozenset(self._all())

    def has(self, table: Table) -> bool:
        """Whether a table has the recorded columns and key, and nobody has written to it."""
        as_noted = [[column.name for column in table.columns], list(table.primary_key)]
        is_same = self._all().get(table.identifier) == as_noted
        return is_same and table.latest_snapshot_id() is None

    def clear(self) -> None:
        """Forget all tables: a table set has them."""
        self._path.unlink(missing_ok=True)

    def _all(self) -> dict[str, list[list[str]]]:
        return read_json(self._path) or {}
