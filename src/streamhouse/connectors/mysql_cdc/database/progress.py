"""How far a sync has come: one position of the binlog for all tables, and their snapshots."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from streamhouse.connectors.mysql_cdc.server.position import KeyJson, Known, Position
from streamhouse.source import Offset


@dataclass(frozen=True)
class DatabaseProgress:
    """The rows of each table with a key up to that in `snapshot` were read, as of `position`.

    A table that is not in `snapshot` has been read whole; None: nothing of it was read yet.
    `catalogue`: which tables there are. `columns`: what is known of the columns of tables that were
    altered since the catalogue was written, as `schema_history` describes them.
    """

    catalogue: int
    position: Position
    known: Known
    snapshot: Mapping[str, KeyJson | None] = field(default_factory=dict)
    columns: Mapping[str, Any] = field(default_factory=dict)

    def to_offset(self) -> Offset:
        """The progress as a JSON object."""
        offset: Offset = {
            "tables": self.catalogue,
            "file": self.position.file,
            "pos": self.position.pos,
            **self.known.to_json(),
        }
        if self.snapshot:
            offset["snapshot"] = {
                table: None if key is None else list(key) for table, key in self.snapshot.items()
            }
        if self.columns:
            offset["columns"] = dict(self.columns)
        return offset

    @staticmethod
    def from_offset(offset: Mapping[str, Any]) -> DatabaseProgress | None:
        """The progress at an offset; None before the first batch."""
        if not offset:
            return None
        return DatabaseProgress(
            int(offset["tables"]),
            Position(offset["file"], int(offset["pos"])),
            Known.from_offset(offset),
            {
                table: None if key is None else tuple(key)
                for table, key in offset.get("snapshot", {}).items()
            },
            offset.get("columns", {}),
        )
