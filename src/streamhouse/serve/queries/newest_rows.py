"""Reads the newest rows of a table without a key, from as few of its files as possible."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from streamhouse.paimon.storage.split_files import SplitFrame

if TYPE_CHECKING:
    from streamhouse.paimon.read.table import Table


def newest_rows(
    table: Table, columns: Sequence[str], snapshot: int | None, most: int
) -> Iterator[pa.RecordBatch]:
    """The last rows of a snapshot in the order of their files, which is that of their commits.

    Partitions are in the order of their names.
    """
    splits = table.splits(snapshot, in_commit_order=True)
    first, expected = len(splits), 0
    while True:
        while first and expected < most:
            first -= 1
            expected += sum(file.rows for file in SplitFrame.parse(splits[first]).files)
        tail, count = _tail(table.read(columns=columns, splits=splits[first:]), most)
        if count >= most or not first:
            return iter(tail)
        # Some rows have been deleted.
        expected = count


def _tail(batches: Iterator[pa.RecordBatch], most: int) -> tuple[list[pa.RecordBatch], int]:
    """The last rows of the batches, and their number."""
    tail: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        tail.append(batch)
        count += batch.num_rows
        while tail and count - tail[0].num_rows >= most:
            count -= tail.pop(0).num_rows
    if count > most:
        tail[0] = tail[0].slice(count - most)
        count = most
    return tail, count
