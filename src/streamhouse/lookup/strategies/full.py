"""The full-cache strategy: the whole dimension in each worker process, at a pinned snapshot.

A small table is passed to the join as it is. In a larger one, the rows for the keys of each chunk
are found by their hashes, in memory or, beyond the memory limit, in local files. For a new snapshot
of the table, rows whose key has changed are skipped, and an overlay has their current rows. After
many changes these are merged into the segments, so the table is read only once.

With a bucket shuffle, a process holds only the buckets of the tasks that it has run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy as shallow_copy
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from streamhouse.errors import StreamhouseError
from streamhouse.lookup import partitions
from streamhouse.lookup.dimension import Dimension, DimensionSpec
from streamhouse.lookup.options import CacheOptions, size_text
from streamhouse.lookup.partitions import Partition
from streamhouse.lookup.storage.bucket_key import BucketKey
from streamhouse.lookup.storage.changed_keys import Version, version_of
from streamhouse.lookup.storage.key_cache import KeyHash
from streamhouse.lookup.storage.key_location import hashed_fields, rows_changed_between, schema_of
from streamhouse.lookup.storage.overlay import Overlay
from streamhouse.paimon.read.conditions import Filter
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.schema.evolution import current_columns
from streamhouse.paimon.storage.split_files import BucketHeader
from streamhouse.paimon.write.buckets import BucketRefusal
from streamhouse.sql.resolution.columns import physical
from streamhouse.state.segment import Segment, chunks, distinct, found_in, spilled

WHOLE_ROWS = 50_000
"""Up to this size, joining the whole table is faster than collecting the keys of a chunk."""
WHOLE_BUCKETS_ROWS = 2_000_000
"""The same for the chunks of a bucket shuffle, which have eight times as many rows."""
MOST_CHANGES = 50_000
_CHANGED_PART = 0.1
_ALL = -1
"""In the place of a bucket: all rows of the table."""
_NOTHING = pa.schema([])

_Chosen: TypeAlias = tuple[Partition, ...] | None


class FullDimension(Dimension):
    """A table that is kept whole, or of which `take` selects the buckets; see the module."""

    def __init__(self, spec: DimensionSpec, options: CacheOptions, buckets: int = 0) -> None:
        """`buckets`: the number by which the rows of the stream are shuffled; 0: they are not."""
        self._spec, self._options, self._buckets = spec, options, buckets
        lookup = spec.lookup
        more = dict.fromkeys([*lookup.table.primary_key, *lookup.table.partitioned_by])
        self._columns = [*lookup.columns, *(c for c in more if c not in lookup.columns)]
        self._key = list(lookup.table.primary_key)
        self._hash = KeyHash(physical(lookup.table))
        self._selected: Sequence[int] = range(buckets) if buckets else [_ALL]
        self._version: Version | None = None
        self._chosen: _Chosen = None
        self._drop()

    @property
    def keyed(self) -> bool:
        """Whether the rows are so many that they are found by key; valid after a call of `at`."""
        rows = sum(segment.num_rows for segment in self._segments)
        most = WHOLE_BUCKETS_ROWS if self._buckets else WHOLE_ROWS
        return rows > most and self._spec.lookup.keys_sql is not None

    @property
    def should_merge(self) -> bool:
        """Whether it has applied over half of the changes after which they are merged."""
        return 2 * self._overlay.size > self._max_changes()

    def next_version(self) -> FullDimension:
        """Another one that has loaded nothing yet; its `at` is called in another thread."""
        successor = FullDimension(self._spec, self._options, self._buckets)
        # A process may run any task: the next version has all that this one has loaded.
        successor._selected = sorted({*self._held, *self._selected})
        return successor

    def copied(self) -> FullDimension:
        """Another one with the same rows, which can be merged in another thread."""
        copy = self.next_version()
        copy._version, copy._chosen, copy._schema = self._version, self._chosen, self._schema
        copy._held, copy._overlay = dict(self._held), shallow_copy(self._overlay)
        return copy

    def merge(self) -> None:
        """Merge the changes into the segments."""
        overlay, held = self._overlay, self._held
        added = overlay.rows
        buckets = self._buckets_of(added)
        self._drop(self._schema)
        for bucket in list(held):
            own = added.filter(pa.array(buckets == bucket))
            self._fill(bucket, _merged(overlay, held.pop(bucket), own))

    def take(self, task: int, count: int) -> None:
        if self._buckets:
            self._selected = range(task, self._buckets, count)
            # After a failure, the next call of `at` loads the table again.
            version, self._version = self._version, None
            if version is not None:
                self._load_missing(version)
            self._version = version

    def at(self, snapshot: int | None, chosen: Sequence[Partition] | None = None) -> None:
        partitions_to_join: _Chosen = None if chosen is None else tuple(chosen)
        version = version_of(self._spec.open(), snapshot)
        # After a failure from here on, the next call loads the table again.
        before, self._version = self._version, None
        if before != version or partitions_to_join != self._chosen:
            same_partitions = before is not None and partitions_to_join == self._chosen
            self._chosen = partitions_to_join
            if not (same_partitions and before is not None and self._follow(before, version)):
                planned = self._spec.address.schema_id
                self._drop(schema_of(version.table, self._columns, planned))
        self._load_missing(version)
        self._version = version

    def rows(self, keys: pa.Table | None) -> pa.Table:
        columns = list(self._spec.lookup.columns)
        if keys is not None:
            hashes = distinct(self._hash.of(keys, self._spec.lookup.key_columns))
            rows = found_in(self._segments, hashes, self._schema)
            return self._overlay.over(rows).select(columns)
        selected = tuple(self._selected)
        if selected not in self._whole:
            tables = [segment.table.select(self._schema.names) for segment in self._segments]
            whole = pa.concat_tables([self._schema.empty_table(), *tables])
            self._whole[selected] = self._overlay.over(whole).select(columns)
        return self._whole[selected]

    def close(self) -> None:
        self._drop()
        self._version = None
        self._hash.close()

    @property
    def _segments(self) -> Iterator[Segment]:
        """The segments of the selected buckets."""
        return (each for bucket in self._selected for each in self._held.get(bucket, ()))

    def _drop(self, schema: pa.Schema = _NOTHING) -> None:
        self._schema = schema
        self._held: dict[int, list[Segment]] = {}
        self._overlay = Overlay(schema, self._key if schema.names else ())
        self._whole: dict[tuple[int, ...], pa.Table] = {}
        self._memory = self._disk = 0

    def _load_missing(self, version: Version) -> None:
        """Read the selected buckets that are not held yet."""
        missing = [bucket for bucket in self._selected if bucket not in self._held]
        if missing and self._overlay.size:
            # They are read as of the version, with all changes.
            self.merge()
        for bucket, splits in self._splits(version, missing).items():
            self._fill(bucket, self._read(version, splits))

    def _splits(
        self, version: Version, buckets: Sequence[int]
    ) -> Mapping[int, Sequence[bytes] | None]:
        """The splits of buckets; None: of the whole table."""
        table, snapshot = version.table, version.snapshot
        if snapshot is None or self._chosen == () or not self._buckets:
            empty = snapshot is None or self._chosen == ()
            return dict.fromkeys(buckets, () if empty else None)
        splits = defaultdict[int, list[bytes]](list)
        for split in table.splits(snapshot.id, filter=self._condition(table)) if buckets else ():
            header = BucketHeader.parse(split)
            splits[header.number if header.total == self._buckets else _ALL].append(split)
        if _ALL not in splits:
            return {bucket: splits[bucket] for bucket in buckets}
        # The table had another number of buckets at times: each task holds all rows.
        self._buckets, self._selected = 0, [_ALL]
        self._drop(self._schema)
        return {_ALL: None}

    def _fill(self, bucket: int, batches: Iterable[pa.RecordBatch]) -> None:
        """Make segments of rows, in memory up to the limit, the rest in local files."""
        options, key = self._options, self._spec.lookup.key_columns
        segments = self._held[bucket] = []
        for piece in chunks(batches, self._schema):
            hashes = self._hash.of(piece, key) if key else np.zeros(piece.num_rows, np.uint64)
            segment = Segment.of(piece, hashes)
            if options.cache != "MEMORY" and self._memory + segment.nbytes > options.memory:
                segment = Segment(spilled(segment.table))
                self._disk += segment.nbytes
            else:
                self._memory += segment.nbytes
            self._check_disk()
            segments.append(segment)

    def _check_disk(self) -> None:
        limit = self._options.disk
        if limit is not None and self._disk > limit:
            raise StreamhouseError(
                f"the lookup table {self._spec.identifier} needs more than "
                f"{size_text(self._options.memory)} of memory and {size_text(limit)} of local "
                "disk; raise lookup.cache-max-memory-size or lookup.cache-max-disk-size, or look "
                "it up by its primary key with LOOKUP('strategy'='partial')"
            )

    def _condition(self, table: Table) -> Filter | None:
        return None if self._chosen is None else partitions.condition(table, self._chosen)

    def _read(self, version: Version, splits: Sequence[bytes] | None) -> Iterator[pa.RecordBatch]:
        if version.snapshot is None or splits is not None and not splits:
            return
        table, chosen = version.table, self._chosen
        names = current_columns(table, self._spec.address.schema_id, self._columns)
        for batch in table.read(names, version.snapshot.id, self._condition(table), splits):
            if chosen is not None:
                rows = pa.Table.from_batches([batch])
                batch = batch.filter(partitions.mask(rows, table, chosen))
            yield pa.RecordBatch.from_arrays(batch.columns, schema=self._schema)

    def _follow(self, before: Version, after: Version) -> bool:
        """Apply the changes between two versions; False if the table must be read again."""
        if before.table.schema_id != after.table.schema_id:
            return False
        planned = self._spec.address.schema_id
        change = rows_changed_between(
            before, after, self._columns, self._key, planned, MOST_CHANGES
        )
        if change is None:
            return False
        keys, rows = map(self._of_held, change)
        rows = rows.cast(self._schema)
        if self._chosen is not None:
            rows = rows.filter(partitions.mask(rows, after.table, self._chosen))
        if keys.num_rows or rows.num_rows:
            self._whole.clear()
            self._overlay.add(keys, rows)
        if self._overlay.size > self._max_changes():
            self.merge()
        return True

    def _max_changes(self) -> int:
        """How many changes the overlay may have."""
        rows = sum(segment.num_rows for held in self._held.values() for segment in held)
        return min(MOST_CHANGES, max(1000, int(rows * _CHANGED_PART)))

    def _of_held(self, rows: pa.Table) -> pa.Table:
        """The rows of the buckets that are held."""
        if not self._buckets:
            return rows
        return rows.filter(pa.array(np.isin(self._buckets_of(rows), list(self._held))))

    def _buckets_of(self, rows: pa.Table) -> Any:
        """The bucket of each row."""
        if not self._buckets:
            return np.full(rows.num_rows, _ALL)
        return self._bucket_key.tasks(rows, self._buckets)

    @cached_property
    def _bucket_key(self) -> BucketKey:
        fields = hashed_fields(self._spec.open())
        if isinstance(fields, BucketRefusal):
            raise StreamhouseError(f"lookup of {self._spec.identifier} by bucket: {fields}")
        return BucketKey(fields, self._buckets)


def _merged(
    overlay: Overlay, segments: Sequence[Segment], added: pa.Table
) -> Iterator[pa.RecordBatch]:
    """The rows of segments with the changes applied; drops each segment once it is read."""
    left = list(reversed(segments))
    del segments
    while left:
        rows = left.pop().table.select(added.column_names)
        yield from overlay.unchanged(rows).to_batches()
    yield from added.to_batches()
