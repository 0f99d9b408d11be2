"""The partial strategy: reads only the keys that arrive, from the buckets that have them.

A few keys of a bucket are read with a filter on the table's files and cached, also if they have no
row (`storage.overlay`). For more keys, the bucket is copied to memory or a local file, sorted by
key hash: then a lookup is a search in that copy. For a new snapshot of the table, only keys that
it changes are read again.
"""

import time
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from streamhouse.lookup.dimension import DimensionSpec
from streamhouse.lookup.options import CacheOptions
from streamhouse.lookup.storage.changed_keys import Version, keys_changed_between
from streamhouse.lookup.storage.key_location import KEYS_PER_READ, Group, GroupReader
from streamhouse.lookup.storage.overlay import KeyCache
from streamhouse.lookup.strategies.table_dimension import NO_COLUMNS, HeldGroup, TableDimension
from streamhouse.state.segment import Hashes, distinct, found_in

ROWS_PER_KEY = 50_000
"""Reading one key costs about as much as copying this many rows of its bucket."""
_STALE_PART = 0.05
_NEVER = -(1 << 62)
"""The count of looked up keys of a group that is larger than the disk limit."""


class PartialDimension(TableDimension):
    """A table that is looked up by its primary key; see the module."""

    keyed = True

    def __init__(self, spec: DimensionSpec, options: CacheOptions) -> None:
        key = spec.lookup.table.primary_key
        super().__init__(spec, options, options.memory // 4, key, key)

    def rows(self, keys: pa.Table | None) -> pa.Table:
        assert keys is not None
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
        return pa.concat_tables(tables).select(list(self._spec.lookup.columns))

    def _drop(self, schema: pa.Schema = NO_COLUMNS) -> None:
        super()._drop(schema)
        self._lookup_counts: dict[Group, int] = {}
        options = self._options
        self._beside = self._key_cache = KeyCache(
            schema,
            self._key if schema.names else (),
            options.rows,
            options.memory // 2,
            options.retention_ms / 1000,
        )

    def _follow(self, before: Version, after: Version, reader: GroupReader) -> bool:
        """Forget cached rows that may be different at the version."""
        if not len(self._key_cache) and not self._held:
            return False
        changed_keys = keys_changed_between(before, after, self._key)
        if changed_keys is None or reader.groups != self._reader.groups:
            return False
        self._key_cache.drop(changed_keys)
        for group, row_numbers in reader.groups.split(changed_keys).items():
            if group in self._held:
                self._stale(group, self._hashes(changed_keys.take(pa.array(row_numbers))))
        expired = time.monotonic() - self._options.retention_ms / 1000
        self._held = {group: held for group, held in self._held.items() if held.used >= expired}
        return True

    def _stale(self, group: Group, hashes: Hashes) -> None:
        held = self._held[group]
        held.stale = np.union1d(held.stale, hashes)
        if len(held.stale) > max(KEYS_PER_READ, held.rows * _STALE_PART):
            del self._held[group]

    def _of_group(self, group: Group, keys: pa.Table) -> Iterator[pa.Table]:
        """The rows of keys of one group."""
        held = self._held.get(group) or self._copied(group, keys)
        if held is not None:
            held.used, hashes = time.monotonic(), self._hashes(keys)
            stale = np.isin(hashes, held.stale)
            yield found_in(held.segments, distinct(hashes[~stale]), self._schema)
            keys = keys.filter(pa.array(stale))
        if keys.num_rows:
            rows = self._reader.rows_of_keys(group, keys)
            self._key_cache.add(keys, rows)
            yield rows

    def _copied(self, group: Group, keys: pa.Table) -> HeldGroup | None:
        """Copy the group if enough of its keys were looked up; None if it is not copied."""
        rows = self._reader.estimated_rows(group)
        count = self._lookup_counts[group] = self._lookup_counts.get(group, 0) + keys.num_rows
        few = count * ROWS_PER_KEY < rows and self._reader.filter(keys) is not None
        if few or count < 0 or not rows:
            return None
        copy = self._segments(self._reader.rows_of_group(group), self._options.disk)
        if copy is None:
            # This group is always read by key.
            self._lookup_counts[group] = _NEVER
            return None
        self._make_room(copy.disk)
        self._held[group] = copy
        return copy

    def _make_room(self, size: int) -> None:
        """Drop the groups that were looked up longest ago, until a new one may have its files."""
        while self._held and (left := self._disk_left()) is not None and size > left:
            del self._held[min(self._held, key=lambda group: self._held[group].used)]
