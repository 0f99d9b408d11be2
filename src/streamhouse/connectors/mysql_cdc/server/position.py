"""Positions in the binlog, and the stream's offsets, which contain them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import total_ordering
from typing import Any, TypeAlias

KeyJson: TypeAlias = tuple[Any, ...]
"""A primary key as JSON values; see `connectors.mysql_cdc.server.types` for their form."""

BINLOG_START = 4
"""The position of a binlog file's first event."""


@total_ordering
@dataclass(frozen=True)
class Position:
    """A binlog file and the byte where its next event starts; later positions are greater."""

    file: str
    pos: int

    def _order(self) -> tuple[int, int]:
        # Numbers grow past six digits: 'binlog.1000000' comes after 'binlog.999999'.
        return int(self.file.rpartition(".")[2]), self.pos

    def __lt__(self, other: Position) -> bool:
        return self._order() < other._order()

    def __str__(self) -> str:
        return f"{self.file}:{self.pos}"


@dataclass(frozen=True)
class Progress:
    """The progress of a stream: all rows with a key up to `key` have been read, as of `position`.

    `key` is None before the snapshot's first chunk. `snapshot_complete`: every key has been
    read. `position` is None before anything has been read.
    """

    position: Position | None = None
    key: KeyJson | None = None
    snapshot_complete: bool = False

    def to_offset(self) -> dict[str, Any]:
        """The progress as a JSON object; after the snapshot just the position."""
        offset: dict[str, Any] = {}
        if self.position is not None:
            offset = {"file": self.position.file, "pos": self.position.pos}
        if self.snapshot_complete:
            return offset
        return {
            "phase": "snapshot",
            **({} if self.key is None else {"key": list(self.key)}),
        } | offset

    @staticmethod
    def from_offset(offset: Mapping[str, Any]) -> Progress:
        position = Position(offset["file"], int(offset["pos"])) if "file" in offset else None
        key = tuple(offset["key"]) if "key" in offset else None
        return Progress(position, key, snapshot_complete=offset.get("phase") != "snapshot")
