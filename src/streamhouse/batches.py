"""Groups of successive Arrow batches or tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

import pyarrow as pa

Piece = TypeVar("Piece", pa.RecordBatch, pa.Table)


def gathered(pieces: Iterable[Piece], rows: int) -> Iterator[list[Piece]]:
    """Successive pieces in groups of at least `rows` rows; the last group may have fewer."""
    group: list[Piece] = []
    count = 0
    for piece in pieces:
        group.append(piece)
        count += piece.num_rows
        if count >= rows:
            yield group
            group, count = [], 0
    if group:
        yield group
