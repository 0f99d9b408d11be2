"""The partial strategy: reads only the keys that arrive, from the buckets that have them.

A few keys of a bucket are read with a filter on the table's files and cached, also if they have no
row (`storage.key_cache`). For more keys, the bucket is copied to memory or a local file, sorted by
key hash: then a lookup is a search in that copy. For a new snapshot of the table, only keys that
it changes are read again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from streamhouse.lookup.dimension import Dimension, DimensionSpec
from streamhouse.lookup.options import CacheOptions
from streamhouse.lookup.partitions import Partition, mask
from streamhouse.lookup.storage.changed_keys import Version, keys_changed_between, version_of
from streamhouse.lookup.storage.key_cache import KeyCache, KeyHash
from streamhouse.lookup.storage.key_location import KEYS_PER_READ, Group, KeyReader, schema_of
from streamhouse.sql.resolution.columns import physical
from streamhouse.state.segment import Hashes, Segment, chunks, distinct, found_in, spilled

ROWS_PER_KEY = 50_000
"""Reading one key costs about as much as copying this many rows of its bucket."""
_STALE_PART = 0.05


@dataclass
class _Copy:
    """A group's rows as of some snapshot; keys with a hash in `stale` have changed since."""

    segments: list[Segment]
    memory: int
    used: float
    stale: Hashes = field(default_factory=lambda: np.array([], np.uint64))

    @property
    def rows(self) -> int:
        return sum(segment.num_rows for segment in self.segments)

    @property
    def nbytes(self) -> int:
        return sum(segment.nbytes for segment in self.segments)


class PartialDimension(Dimension):
    """A table that is looked up by its primary key; see the module."""

    keyed = True

    def __init__(self, spec: DimensionSpec, options: CacheOptions) -> None:
        self._spec, self._options = spec, options
        self._columns = list(spec.lookup.columns)
        self._key = list(spec.lookup.table.primary_key)
        self._hash = KeyHash(physical(spec.lookup.table))
        self._version: Version | None = None
        self._chosen: Sequence[Partition] | None = None
        self._schema = pa.schema([])
        self._key_cache: KeyCache | None = None
        self._copies: dict[Group, _Copy] = {}
        self._lookup_counts: dict[Group, int] = {}
        self._reader: KeyReader | None = None

    def at(self, snapshot: int | None, chosen: Sequence[Partition] | None = None) -> None:
        self._chosen = chosen
        version = version_of(self._spec.open(), snapshot)
        if version == self._version:
            return
        # After a failure from here on, the next call starts with empty caches.
        before, self._version = self._version, None
        table = version.table
        if before is None or before.table.schema_id != table.schema_id or self._key_cache is None:
            self._schema = schema_of(table, self._columns, self._spec.address.schema_id)
            self._key_cache = KeyCache(
                self._schema,
                self._key,
                self._options.rows,
                self._options.memory // 2,
                self._options.retention_ms / 1000,
            )
            before = None
        self._follow(before, version)
        self._version = version

    def rows(self, keys: pa.Table | None) -> pa.Table:
        assert keys is not None and self._key_cache is not None
        if self._reader is None or keys.num_rows == 0:
            return self._schema.empty_table()
        # DuckDB's timestamps have microseconds, the table's may have fewer digits. A key that the
        # cast truncates has no equal row, and the join discards what is found for it.
        types = pa.schema([self._schema.field(name) for name in self._key])
        wanted = keys.select(self._key).cast(types, safe=False)
        if set(keys.column_names) - set(self._key):
            wanted = wanted.group_by(self._key).aggregate([])
        known, cached = self._key_cache.find(wanted)
        tables, uncached = [cached], wanted.filter(pa.array(~known))
        for group, numbers in self._reader.groups.split(uncached).items():
            tables += self._of_group(group, uncached.take(pa.array(numbers)))
        return self._of_partitions(pa.concat_tables(tables))

    def close(self) -> None:
        self._copies.clear()
        self._key_cache = None
        self._version = None
        self._hash.close()

    def _of_partitions(self, rows: pa.Table) -> pa.Table:
        """The rows of the chosen partitions; the primary key includes the partition keys."""
        assert self._version is not None
        if self._chosen is None:
            return rows
        return rows.filter(mask(rows, self._version.table, self._chosen))

    def _follow(self, before: Version | None, version: Version) -> None:
        """Forget cached rows that may be different at the version."""
        assert self._key_cache is not None
        reader, self._reader, changed_keys = self._reader, None, None
        if version.snapshot is not None:
            self._reader = KeyReader(
                version.table,
                version.snapshot.id,
                self._columns,
                self._key,
                self._spec.address.schema_id,
            )
            if before is not None and (len(self._key_cache) or self._copies):
                changed_keys = keys_changed_between(before, version, self._key)
        if (
            changed_keys is None
            or not reader
            or not self._reader
            or reader.groups != self._reader.groups
        ):
            self._key_cache.clear()
            self._copies.clear()
            self._lookup_counts.clear()
            return
        self._key_cache.drop(changed_keys)
        for group, row_numbers in reader.groups.split(changed_keys).items():
            self._stale(group, self._hash.of(changed_keys.take(pa.array(row_numbers)), self._key))
        expired = time.monotonic() - self._options.retention_ms / 1000
        self._copies = {g: copy for g, copy in self._copies.items() if copy.used >= expired}

    def _stale(self, group: Group, hashes: Hashes) -> None:
        copy = self._copies.get(group)
        if copy is not None:
            copy.stale = np.union1d(copy.stale, hashes)
            if len(copy.stale) > max(KEYS_PER_READ, copy.rows * _STALE_PART):
                del self._copies[group]

    def _of_group(self, group: Group, keys: pa.Table) -> Iterator[pa.Table]:
        """The rows of keys of one group."""
        assert self._key_cache is not None and self._reader is not None
        copy = self._copies.get(group) or self._copied(group, keys)
        if copy is not None:
            copy.used, hashes = time.monotonic(), self._hash.of(keys, self._key)
            stale = np.isin(hashes, copy.stale)
            yield found_in(copy.segments, distinct(hashes[~stale]), self._schema)
            keys = keys.filter(pa.array(stale))
        if keys.num_rows:
            rows = self._reader.rows_of_keys(group, keys)
            self._key_cache.add(keys, rows)
            yield rows

    def _copied(self, group: Group, keys: pa.Table) -> _Copy | None:
        """Copy the group if enough of its keys were looked up; None if it is not copied."""
        assert self._reader is not None
        rows = self._reader.estimated_rows(group)
        if not rows:
            return None
        lookup_count = self._lookup_counts[group] = (
            self._lookup_counts.get(group, 0) + keys.num_rows
        )
        few = lookup_count * ROWS_PER_KEY < rows and self._reader.filter(keys) is not None
        if few or lookup_count < 0:
            return None
        limit, size, memory = self._options.disk, 0, 0
        in_memory = sum(copy.memory for copy in self._copies.values())
        segments = []
        for piece in chunks(self._reader.rows_of_group(group), self._schema):
            segment = Segment.of(piece, self._hash.of(piece, self._key))
            size += segment.nbytes
            if in_memory + size <= self._options.memory // 4:
                memory = size
            else:
                segment = Segment(spilled(segment.table))
            segments.append(segment)
            if limit is not None and size > limit:
                # Larger than the disk limit: this group is always read by key.
                self._lookup_counts[group] = -(1 << 62)
                return None
        self._make_room(size)
        self._copies[group] = _Copy(segments, memory, time.monotonic())
        return self._copies[group]

    def _make_room(self, size: int) -> None:
        limit = self._options.disk
        while limit is not None and self._copies and size + self._copied_bytes() > limit:
            oldest = min(self._copies, key=lambda group: self._copies[group].used)
            del self._copies[oldest]

    def _copied_bytes(self) -> int:
        return sum(copy.nbytes for copy in self._copies.values())
