"""How many rows the Rust core is to read at once, and by which conditions.

For two kinds of files that decides what it reads. In an ORC file with a deletion vector, the core's
reader takes the rows between two deleted ones in batches. Where they are more than one batch, it
loses its place in the vector, and gives all rows up to the end of the stripe: those that are gone,
too. Where a condition is pushed down to such a file, it breaks down. So these files are read in
batches that no such run of rows can fill, without conditions (decision 086).

Avro files with ROW columns are read row by row (`paimon.schema.avro_rows`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pypaimon_rust.datafusion import Split

from streamhouse.errors import StreamhouseError
from streamhouse.paimon.schema import avro_rows

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


def groups(splits: Sequence[bytes], usual: int, one_by_one: bool = False) -> Iterator[Group]:
    """The splits in their order; where nothing speaks against it, `usual` rows are read at once.

    With `one_by_one`, Avro files are read row by row.
    """

    def kind(split: bytes) -> tuple[bool, bool]:
        return _hides_rows_of_orc(split), one_by_one and avro_rows.SUFFIX in split

    for (hidden, single), found in groupby(splits, kind):
        together = tuple(found)
        if hidden and single:
            raise StreamhouseError(
                "Avro files with ROW columns cannot be read together with ORC files that have "
                "deletion vectors; set 'file.format' to 'parquet' and compact the table in full"
            )
        most = max(usual, *map(_rows, together)) if hidden else usual
        yield Group(together, 1 if single else most, hidden)


def sized(batches: Iterable[pa.RecordBatch], read: int, usual: int) -> Iterator[pa.RecordBatch]:
    """Batches of which `read` rows were read at once, in those of the usual size."""
    if read >= usual:
        for batch in batches:
            yield from _cut(batch, usual)
        return
    held: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        held.append(batch)
        count += batch.num_rows
        if count >= usual:
            yield pa.concat_batches(held)
            held, count = [], 0
    if held:
        yield pa.concat_batches(held)


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


def _cut(batch: pa.RecordBatch, rows: int) -> Iterator[pa.RecordBatch]:
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
