"""Chooses the batch size for the Rust core's reads, and whether a filter is pushed down.

The core reads two kinds of files wrongly with the usual batch size. In an ORC file with a deletion
vector, its reader takes the rows between two deleted rows in batches. If they are more than one
batch, it loses its place in the vector, and returns all rows up to the end of the stripe, deleted
ones included. If a filter is pushed down to such a file, it panics. So these files are read with a
batch size that no such run of rows can exceed, and without filters (decision 105).

Avro files with ROW columns are read row by row (`paimon.schema.file_formats.avro_rows`).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import pyarrow as pa

from streamhouse.arrow_batches import gathered
from streamhouse.errors import StreamhouseError
from streamhouse.paimon.schema.file_formats import avro_rows
from streamhouse.paimon.storage.split_groups import row_count

_ORC = b".orc"
_VECTORS = b"index-"
"""Prefix of the names of files that hold deletion vectors."""


@dataclass(frozen=True)
class Group:
    """Serialised splits that are read together, in batches of `rows` rows.

    With `unfiltered`, no filter is pushed down: they may have ORC files with deletion vectors.
    """

    splits: tuple[bytes, ...]
    rows: int
    unfiltered: bool


def groups(splits: Sequence[bytes], usual: int, one_by_one: bool = False) -> Iterator[Group]:
    """Group the splits, in their order, by batch size: `usual`, unless their files need another.

    With `one_by_one`, Avro files are read row by row. `StreamhouseError` for a split that has both
    such Avro files and ORC files with deletion vectors.
    """

    def kind(split: bytes) -> tuple[bool, bool]:
        return _has_orc_vectors(split), one_by_one and avro_rows.SUFFIX in split

    for (unfiltered, single), run in groupby(splits, kind):
        group_splits = tuple(run)
        if unfiltered and single:
            raise StreamhouseError(
                "Avro files with ROW columns cannot be read together with ORC files that have "
                "deletion vectors; set 'file.format' to 'parquet' and compact the table in full"
            )
        rows = max(usual, *(row_count([split]) for split in group_splits)) if unfiltered else usual
        yield Group(group_splits, 1 if single else rows, unfiltered)


def sized(batches: Iterable[pa.RecordBatch], read: int, usual: int) -> Iterator[pa.RecordBatch]:
    """Slice or combine batches that were read with the batch size `read` to about `usual` rows."""
    if read >= usual:
        for batch in batches:
            yield from pa.Table.from_batches([batch]).to_batches(max_chunksize=usual)
        return
    for group in gathered(batches, usual):
        yield pa.concat_batches(group)


def _has_orc_vectors(split: bytes) -> bool:
    """Whether a split may have an ORC file with a deletion vector, by the file names in it."""
    return _ORC in split and _VECTORS in split
