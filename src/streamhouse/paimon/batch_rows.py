"""How many rows the Rust core is to read at once, which for one kind of file decides what it reads.

In an ORC file with a deletion vector, the core's reader takes the rows between two deleted ones in
batches. Where they are more than one batch, it loses its place in the vector, and gives all rows
up to the end of the stripe: those that are gone, too. So such files are read in batches that no
such run of rows can fill, and handed on in the usual ones (decision 086).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

import pyarrow as pa
from pypaimon_rust.datafusion import Split

_ORC = b".orc"
_VECTORS = b"index-"
"""How the names of the files begin that hold deletion vectors."""


def groups(splits: Sequence[bytes], usual: int) -> Iterator[tuple[list[bytes], int]]:
    """Serialised splits in their order, each group with how many rows to read at once."""
    for hidden, group in groupby(splits, _hides_rows_of_orc):
        together = list(group)
        yield together, max(usual, *map(_rows, together)) if hidden else usual


def cut(batch: pa.RecordBatch, rows: int) -> Iterator[pa.RecordBatch]:
    """The batch in parts of at most so many rows, without a copy."""
    if batch.num_rows <= rows:
        yield batch
        return
    for first in range(0, batch.num_rows, rows):
        yield batch.slice(first, rows)


def _hides_rows_of_orc(split: bytes) -> bool:
    """Whether a file of a split may be such a one; a split names its files and their vectors."""
    return _ORC in split and _VECTORS in split


def _rows(split: bytes) -> int:
    return int(Split.deserialize(split).row_count())
