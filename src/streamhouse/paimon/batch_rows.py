"""How many rows the Rust core is to read at once, and by which conditions.

For one kind of file that decides what it reads. In an ORC file with a deletion vector, the core's
reader takes the rows between two deleted ones in batches. Where they are more than one batch, it
loses its place in the vector, and gives all rows up to the end of the stripe: those that are gone,
too. Where a condition is pushed down to such a file, it breaks down. So these files are read in
batches that no such run of rows can fill, without conditions (decision 086).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pypaimon_rust.datafusion import Split

_ORC = b".orc"
_VECTORS = b"index-"
"""How the names of the files begin that hold deletion vectors."""


@dataclass(frozen=True)
class Group:
    """Serialised splits that are read together, `rows` of them at once.

    With `hidden` they may be of such files.
    """

    splits: tuple[bytes, ...]
    rows: int
    hidden: bool


def groups(splits: Sequence[bytes], usual: int) -> Iterator[Group]:
    """The splits in their order; where nothing speaks against it, `usual` rows are read at once."""
    for hidden, found in groupby(splits, _hides_rows_of_orc):
        together = tuple(found)
        yield Group(together, max(usual, *map(_rows, together)) if hidden else usual, hidden)


def matching(batch: pa.RecordBatch, condition: Mapping[str, Any]) -> pa.RecordBatch:
    """Without rows that do not meet a condition of the core's, as far as its columns are there.

    Equality is looked at; other comparisons are left to the caller, as always.
    """
    if condition["method"] == "and":
        for child in condition["children"]:
            batch = matching(batch, child)
    elif condition["method"] in ("equal", "in") and condition["field"] in batch.schema.names:
        column = batch.column(condition["field"])
        wanted = pa.array(condition["literals"], column.type)
        batch = batch.filter(pc.is_in(column, value_set=wanted))
    return batch


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
