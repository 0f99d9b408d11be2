"""The full-cache strategy: the whole dimension in each worker process, at a pinned snapshot.

A small table is passed to the join as it is. In a larger one, the rows for the keys of each chunk
are found by their hashes, in memory or, beyond the memory limit, in local files. For a new snapshot
of the table, rows whose key has changed are skipped, and an overlay has their current rows. After
many changes these are merged into the segments, so the table is read only once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from copy import copy as shallow_copy
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.errors import StreamhouseError
from streamhouse.lookup import partitions
from streamhouse.lookup.dimension import Dimension, DimensionSpec
from streamhouse.lookup.options import CacheOptions, size_text
from streamhouse.lookup.partitions import Partition
from streamhouse.lookup.storage.bucket_key import Part
from streamhouse.lookup.storage.changed_keys import (
    Version,
    keys_changed_between,
    last_changes,
    version_of,
)
from streamhouse.lookup.storage.key_cache import KeyHash
from streamhouse.lookup.storage.key_location import KeyReader, schema_of
from streamhouse.paimon.read.key_set import KeySet
from streamhouse.paimon.schema.evolution import current_columns
from streamhouse.source import ROW_KIND
from streamhouse.sql.resolution.columns import physical
from streamhouse.state.segment import Segment, chunks, distinct, found_in, spilled

WHOLE_ROWS = 50_000
"""Up to this size, joining the whole table is faster than collecting the keys of a chunk."""
MOST_CHANGES = 50_000
_CHANGED_PART = 0.1

_Chosen: TypeAlias = tuple[Partition, ...] | None


class FullDimension(Dimension):
    """A table that is kept whole, or only a `part` of it; see the module."""

    preloads = True

    def __init__(
        self, spec: DimensionSpec, options: CacheOptions, part: Part | None = None
    ) -> None:
        self._spec, self._options, self._part = spec, options, part
        lookup = spec.lookup
        more = dict.fromkeys([*lookup.table.primary_key, *lookup.table.partitioned_by])
        self._columns = [*lookup.columns, *(c for c in more if c not in lookup.columns)]
        self._key = list(lookup.table.primary_key)
        self._hash = KeyHash(physical(lookup.table))
        self._version: Version | None = None
        self._chosen: _Chosen = None
        self._schema = pa.schema([])
        self._segments: list[Segment] = []
        self._overlay: Overlay | None = None
        self._whole: pa.Table | None = None

    @property
    def keyed(self) -> bool:
        """Whether the table is so large that rows are found by key; valid after a call of `at`."""
        rows = sum(segment.num_rows for segment in self._segments)
        return rows > WHOLE_ROWS and self._spec.lookup.keys_sql is not None

    @property
    def should_merge(self) -> bool:
        """Whether it has applied over half of the changes after which they are merged."""
        return self._overlay is not None and 2 * self._overlay.size > self._max_changes()

    def next_version(self) -> FullDimension:
        return FullDimension(self._spec, self._options, self._part)

    def copied(self) -> FullDimension:
        """Another one with the same rows, which can be merged in another thread."""
        assert self._overlay is not None
        copy = self.next_version()
        copy._version, copy._chosen, copy._schema = self._version, self._chosen, self._schema
        copy._segments, copy._overlay = self._segments, shallow_copy(self._overlay)
        return copy

    def merge(self) -> None:
        """Merge the changes into the segments."""
        overlay, segments = self._overlay, self._segments[::-1]
        assert overlay is not None

        def batches() -> Iterator[pa.RecordBatch]:
            while segments:
                rows = segments.pop().table.select(self._schema.names)
                yield from overlay.unchanged(rows).to_batches()
            yield from overlay.rows.to_batches()

        self._whole, self._segments = None, []
        self._fill(batches())

    def at(self, snapshot: int | None, chosen: Sequence[Partition] | None = None) -> None:
        partitions_to_join: _Chosen = None if chosen is None else tuple(chosen)
        version = version_of(self._spec.open(), snapshot)
        if version == self._version and partitions_to_join == self._chosen:
            return
        # After a failure from here on, the next call loads the table again.
        before, self._version = self._version, None
        same_partitions = before is not None and partitions_to_join == self._chosen
        self._chosen = partitions_to_join
        if not (same_partitions and before is not None and self._follow(before, version)):
            self._load(version)
        self._version = version

    def rows(self, keys: pa.Table | None) -> pa.Table:
        assert self._overlay is not None
        columns = list(self._spec.lookup.columns)
        if keys is not None:
            hashes = distinct(self._hash.of(keys, self._spec.lookup.key_columns))
            rows = found_in(self._segments, hashes, self._schema)
            return self._overlay.over(rows).select(columns)
        if self._whole is None:
            tables = [segment.table.select(self._schema.names) for segment in self._segments]
            whole = pa.concat_tables([self._schema.empty_table(), *tables])
            self._whole = self._overlay.over(whole).select(columns)
        return self._whole

    def close(self) -> None:
        self._drop()
        self._version = None
        self._hash.close()

    def _drop(self) -> None:
        self._segments, self._overlay, self._whole = [], None, None

    def _load(self, version: Version) -> None:
        self._drop()
        self._schema = schema_of(version.table, self._columns, self._spec.address.schema_id)
        self._fill(self._read(version))

    def _fill(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Make segments of all rows, in memory up to the limit, the rest in local files."""
        segments, memory, size = list[Segment](), 0, 0
        options, key = self._options, self._spec.lookup.key_columns
        for piece in chunks(batches, self._schema):
            hashes = self._hash.of(piece, key) if key else np.zeros(piece.num_rows, np.uint64)
            segment = Segment.of(piece, hashes)
            if options.cache != "MEMORY" and memory + segment.nbytes > options.memory:
                segment = Segment(spilled(segment.table))
                size += segment.nbytes
            else:
                memory += segment.nbytes
            self._check_disk(size)
            segments.append(segment)
        self._segments, self._overlay = segments, Overlay(self._schema, self._key)

    def _check_disk(self, size: int) -> None:
        limit = self._options.disk
        if limit is not None and size > limit:
            raise StreamhouseError(
                f"the lookup table {self._spec.identifier} needs more than "
                f"{size_text(self._options.memory)} of memory and {size_text(limit)} of local "
                "disk; raise lookup.cache-max-memory-size or lookup.cache-max-disk-size, or look "
                "it up by its primary key with LOOKUP('strategy'='partial')"
            )

    def _read(self, version: Version) -> Iterator[pa.RecordBatch]:
        if version.snapshot is None or self._chosen == ():
            return
        table = version.table
        current_names = current_columns(table, self._spec.address.schema_id, self._columns)
        chosen = self._chosen
        filter = None if chosen is None else partitions.condition(table, chosen)
        snapshot, splits = version.snapshot.id, None
        if self._part is not None:
            splits = self._part.splits(table.splits(snapshot, filter=filter))
        for batch in table.read(current_names, snapshot, filter, splits):
            if chosen is not None:
                rows = pa.Table.from_batches([batch])
                batch = batch.filter(partitions.mask(rows, table, chosen).combine_chunks())
            yield pa.RecordBatch.from_arrays(batch.columns, schema=self._schema)

    def _follow(self, before: Version, after: Version) -> bool:
        """Apply the changes between two versions; False if the table must be read again."""
        assert self._overlay is not None
        if before.table.schema_id != after.table.schema_id:
            return False
        changes = last_changes(before, after, self._columns, self._spec.address.schema_id)
        if changes is not None:
            changes = self._of_part(changes)
            upserted = pc.equal(changes.column(ROW_KIND), "+I")
            rows = changes.drop_columns([ROW_KIND])
            self._apply(rows.select(self._key), rows.filter(upserted), after)
            return True
        keys = keys_changed_between(before, after, self._key)
        if keys is None or after.snapshot is None or keys.num_rows > MOST_CHANGES:
            return False
        keys = self._of_part(keys.group_by(self._key).aggregate([]))
        self._apply(keys, self._current_rows(keys, after), after)
        return True

    def _of_part(self, rows: pa.Table) -> pa.Table:
        return rows if self._part is None else self._part.rows(rows)

    def _apply(self, keys: pa.Table, rows: pa.Table, after: Version) -> None:
        """Note the present rows of changed keys, and merge the changes if they are many."""
        assert self._overlay is not None
        if keys.num_rows or rows.num_rows:
            self._whole = None
            self._overlay.add(keys, self._of_partitions(rows, after))
        if self._overlay.size > self._max_changes():
            self.merge()

    def _max_changes(self) -> int:
        """How many changes the overlay may have."""
        rows = sum(segment.num_rows for segment in self._segments)
        return min(MOST_CHANGES, max(1000, int(rows * _CHANGED_PART)))

    def _current_rows(self, keys: pa.Table, version: Version) -> pa.Table:
        """The rows of some keys as they are at the version."""
        assert version.snapshot is not None
        snapshot = version.snapshot.id
        planned = self._spec.address.schema_id
        reader = KeyReader(version.table, snapshot, self._columns, self._key, planned)
        tables = [self._schema.empty_table()]
        for group, row_numbers in reader.groups.split(keys).items():
            part = keys.take(pa.array(row_numbers))
            batches = reader.rows_of_keys(group, part)
            rows = pa.Table.from_batches(batches, self._schema)
            tables.append(rows.join(part, self._key, join_type="left semi").select(self._columns))
        return pa.concat_tables(tables)

    def _of_partitions(self, rows: pa.Table, version: Version) -> pa.Table:
        rows = rows.cast(self._schema)
        if self._chosen is None:
            return rows
        return rows.filter(partitions.mask(rows, version.table, self._chosen))


class Overlay:
    """Changed keys and their current rows; for a table without a key, the rows that were added.

    A shallow copy has the same changes, and is independent of later ones.
    """

    def __init__(self, schema: pa.Schema, key: Sequence[str]) -> None:
        self._key = list(key)
        self._keys = pa.schema([schema.field(name) for name in key]).empty_table()
        self._changed: KeySet | None = None
        self.rows = schema.empty_table()
        """The current rows of the changed keys."""

    @property
    def size(self) -> int:
        """How many keys, or rows of a table without a key, it holds."""
        return max(int(self._keys.num_rows), int(self.rows.num_rows))

    def add(self, keys: pa.Table, rows: pa.Table) -> None:
        """Record that `keys` (without duplicates) now have `rows`; keys without one are deleted."""
        if self._key and keys.num_rows:
            keys = keys.select(self._key).cast(self._keys.schema)
            changed = KeySet(keys)
            self.rows = _without(self.rows, changed)
            self._keys = pa.concat_tables([_without(self._keys, changed), keys]).combine_chunks()
            self._changed = KeySet(self._keys)
        self.rows = pa.concat_tables([self.rows, rows]).combine_chunks()

    def over(self, rows: pa.Table) -> pa.Table:
        """Older rows with the changes applied: without those of changed keys, plus all new rows."""
        return pa.concat_tables([self.unchanged(rows), self.rows]) if self.size else rows

    def unchanged(self, rows: pa.Table) -> pa.Table:
        """Older rows without those of changed keys."""
        return rows if self._changed is None else _without(rows, self._changed)


def _without(rows: pa.Table, keys: KeySet) -> pa.Table:
    return rows.filter(pa.array(~keys.mask(rows))) if rows.num_rows else rows
