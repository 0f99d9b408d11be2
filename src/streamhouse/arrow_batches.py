"""Groups of successive Arrow batches or tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

import pyarrow as pa

Piece = TypeVar("Piece", pa.RecordBatch, pa.Table)


def gathered(pieces: Iterable[Piece], rows: int, size: int | None = None) -> Iterator[list[Piece]]:
    """Successive pieces in groups of at least `rows` rows; the last group may have fewer.

    With `size`, a group may have fewer rows if it has at least that many bytes.
    """
    group: list[Piece] = []
    count = byte_count = 0
    for piece in pieces:
        group.append(piece)
        count += piece.num_rows
        byte_count += 0 if size is None else piece.nbytes
        if count >= rows or (size is not None and byte_count >= size):
            yield group
            group, count, byte_count = [], 0, 0
    if group:
        yield group
