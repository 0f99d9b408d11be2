"""The bucket-shuffle strategy: each task holds only its buckets of the dimension.

The rows of the stream are shuffled to tasks by the dimension's own bucket function, so the rows
that one of them may join are in a bucket of its task.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from streamhouse.errors import StreamhouseError
from streamhouse.lookup.dimension import Dimension, DimensionSpec
from streamhouse.lookup.options import CacheOptions
from streamhouse.lookup.partitions import Partition
from streamhouse.lookup.storage.bucket_key import BucketKey, Part
from streamhouse.lookup.storage.key_location import hashed_fields
from streamhouse.lookup.strategies.full import FullDimension
from streamhouse.paimon.write.buckets import BucketRefusal


class BucketDimension(Dimension):
    """A table of which `take` selects the part of one task; by default all of it.

    A process keeps each part that it has used, as the full strategy keeps a table.
    """

    keyed = False
    preloads = True

    def __init__(self, spec: DimensionSpec, buckets: int, options: CacheOptions) -> None:
        self._spec, self._buckets, self._options = spec, buckets, options
        self._parts: dict[tuple[int, int], FullDimension] = {}
        self._selected = 0, 1
        self._version: tuple[int | None, Sequence[Partition] | None] = None, None

    def next_version(self) -> BucketDimension:
        successor = BucketDimension(self._spec, self._buckets, self._options)
        for successor._selected in [*self._parts, self._selected]:
            successor._part()
        return successor

    def preload(self, snapshot: int | None, chosen: Sequence[Partition] | None) -> None:
        for part in self._parts.values():
            part.at(snapshot, chosen)

    def take(self, task: int, count: int) -> None:
        """From now on, rows are those of the buckets of one task of `count`."""
        self._selected = task, count

    def at(self, snapshot: int | None, chosen: Sequence[Partition] | None = None) -> None:
        self._version = snapshot, chosen

    def rows(self, keys: pa.Table | None) -> pa.Table:
        part = self._part()
        part.at(*self._version)
        return part.rows(None)

    def close(self) -> None:
        for part in self._parts.values():
            part.close()
        self._parts = {}

    def _part(self) -> FullDimension:
        """The selected part; all parts together have the memory and the disk of one dimension."""
        if self._selected not in self._parts:
            fields = hashed_fields(self._spec.open())
            if isinstance(fields, BucketRefusal):
                raise StreamhouseError(f"lookup of {self._spec.identifier} by bucket: {fields}")
            (task, count), options = self._selected, self._options
            disk = None if options.disk is None else options.disk // count
            options = replace(options, memory=options.memory // count, disk=disk)
            part = Part(BucketKey(fields, self._buckets), task, count)
            self._parts[self._selected] = FullDimension(self._spec, options, part)
        return self._parts[self._selected]
