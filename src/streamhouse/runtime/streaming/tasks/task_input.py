"""What the planner gives one task of a batch."""

from __future__ import annotations

from dataclasses import dataclass, field

from streamhouse.runtime.query_sources import Piece
from streamhouse.source import Offset


@dataclass(frozen=True)
class TaskInput:
    """The input of one task: pieces of the sources and, with `due`, the due pending rows.

    Pieces are read in chunks. If several tasks share the pieces, this one takes every `shares`-th
    chunk, beginning with number `share`, and the others take the rest.
    """

    index: int
    start: Offset = field(repr=False)
    end: Offset
    pieces: tuple[Piece, ...] = field(repr=False)
    due: bool
    share: int = 0
    shares: int = 1

    @property
    def batch(self) -> int:
        return int(self.end["batch"])

    @property
    def now_ms(self) -> int:
        return int(self.end["now"])
