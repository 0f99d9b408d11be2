"""The partial strategy: only the keys that arrive, from the buckets that hold them.

Few keys of a bucket are read by a filter on the table's files, and kept with the answer that there
is no row (`lookup.near`). A bucket that is asked for more of them is copied, in the order of its
keys' hashes, to memory or a local file: then a key costs a search in it. When the table moves on,
keys that its new snapshots touch are asked anew, and all the rest stays.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from pypaimon_rust.datafusion import Split

from streamhouse.lookup.dimension import DimensionSpec
from streamhouse.lookup.groups import Group, Groups
from streamhouse.lookup.hashing import Hashes, KeyHash
from streamhouse.lookup.moved import moved_keys
from streamhouse.lookup.near import Near
from streamhouse.lookup.options import CacheOptions
from streamhouse.lookup.partitions import Partition, mask
from streamhouse.lookup.segment import Segment, found_in, pieces
from streamhouse.paimon.evolution import columns_now
from streamhouse.paimon.pushdown import one_of
from streamhouse.paimon.table import Filter, Table
from streamhouse.sql.columns import physical

ROWS_A_KEY = 50_000
"""Reading one key costs about as much as copying so many rows of its bucket."""
KEYS_A_READ = 5_000
_STALE_PART = 0.05


@dataclass
class _Copy:
    """A group's rows as of some snapshot; keys with a hash in `stale` have changed since."""

    segments: list[Segment]
    used: float
    stale: Hashes = field(default_factory=lambda: np.array([], np.uint64))

    @property
    def rows(self) -> int:
        return sum(segment.num_rows for segment in self.segments)

    @property
    def nbytes(self) -> int:
        return sum(segment.nbytes for segment in self.segments)


class PartialDimension:
    """A table that is read by its primary key; see the module."""

    keyed = True

    def __init__(self, spec: DimensionSpec, options: CacheOptions) -> None:
        self._spec, self._options = spec, options
        self._columns = list(spec.lookup.columns)
        self._key = list(spec.lookup.table.primary_key)
        self._hash = KeyHash(physical(spec.lookup.table))
        self._snapshot: int | None = None
        self._chosen: Sequence[Partition] | None = None
        self._table: Table | None = None
        self._schema = pa.schema([])
        self._near: Near | None = None
        self._copies: dict[Group, _Copy] = {}
        self._cold: dict[Group, int] = {}
        self._groups: Groups | None = None
        self._splits: dict[Group, list[bytes]] = {}

    def at(self, snapshot: int | None, chosen: Sequence[Partition] | None = None) -> None:
        self._chosen = chosen
        if snapshot == self._snapshot and self._table is not None:
            return
        before, self._snapshot = self._snapshot, snapshot
        table, self._table = self._table, self._spec.open()
        if table is None or table.schema_id != self._table.schema_id or self._near is None:
            names = columns_now(self._table, self._spec.planned, self._columns)
            fields = zip(self._columns, self._table.read_schema(names), strict=True)
            self._schema = pa.schema([one.with_name(name) for name, one in fields])
            self._schema = pa.schema([one.with_nullable(True) for one in self._schema])
            self._near = Near(self._schema, self._key, self._options.rows, self._options.memory)
            before = None
        self._follow(before, snapshot)

    def rows(self, keys: pa.Table | None) -> pa.Table:
        assert keys is not None and self._near is not None
        if self._snapshot is None or keys.num_rows == 0:
            return self._schema.empty_table()
        wanted = keys.select(self._key)
        if set(keys.column_names) - set(self._key):
            wanted = wanted.group_by(self._key).aggregate([])
        now = time.monotonic()
        wanted, hashes = self._sorted(wanted)
        known, near = self._near.find(wanted, hashes, now)
        found = [near]
        rest = np.flatnonzero(~known)
        if len(rest):
            left = wanted.take(pa.array(rest))
            for group, places in self._now().split(left).items():
                part = left.take(pa.array(places))
                found += self._of_group(group, part, hashes[rest[places]], now)
        return self._of_partitions(pa.concat_tables(found))

    def close(self) -> None:
        self._copies.clear()
        self._near = None
        self._table = None
        self._hash.close()

    def _of_partitions(self, rows: pa.Table) -> pa.Table:
        """Those of the chosen partitions; their keys are of the primary key, so they are there."""
        assert self._table is not None
        if self._chosen is None:
            return rows
        return rows.filter(mask(rows, self._table, self._chosen))

    def _follow(self, before: int | None, snapshot: int | None) -> None:
        """Forget what may be different at the snapshot."""
        assert self._table is not None and self._near is not None
        groups, self._groups, self._splits = self._groups, None, {}
        moved = None
        if before is not None and snapshot is not None and (len(self._near) or self._copies):
            moved = moved_keys(self._table, before, snapshot, self._key)
        now = time.monotonic()
        if moved is None or groups is None or groups != self._now():
            self._near.clear()
            self._copies.clear()
            self._cold.clear()
            return
        self._near.drop(self._hash.of(moved, self._key))
        for group, places in groups.split(moved).items():
            self._stale(group, self._hash.of(moved.take(pa.array(places)), self._key))
        expired = now - self._options.retention_ms / 1000
        self._near.expire(expired)
        self._copies = {g: copy for g, copy in self._copies.items() if copy.used >= expired}

    def _stale(self, group: Group, hashes: Hashes) -> None:
        copy = self._copies.get(group)
        if copy is not None:
            copy.stale = np.union1d(copy.stale, hashes)
            if len(copy.stale) > max(KEYS_A_READ, copy.rows * _STALE_PART):
                del self._copies[group]

    def _now(self) -> Groups:
        """How keys are grouped at the snapshot; its splits are planned when the first is needed."""
        if self._groups is None:
            assert self._table is not None
            splits = self._table.splits(self._snapshot)
            self._groups = Groups.of(self._table, self._key, splits)
            for split in splits:
                self._splits.setdefault(self._groups.group_of(split), []).append(split)
        return self._groups

    def _of_group(
        self, group: Group, keys: pa.Table, hashes: Hashes, now: float
    ) -> Iterator[pa.Table]:
        """The rows of keys that all are of one group; `hashes` are sorted."""
        copy = self._copies.get(group) or self._copied(group, keys, now)
        if copy is not None:
            copy.used = now
            stale = np.isin(hashes, copy.stale)
            yield found_in(copy.segments, np.unique(hashes[~stale]), self._schema)
            keys, hashes = keys.filter(pa.array(stale)), hashes[stale]
        for first in range(0, keys.num_rows, KEYS_A_READ):
            part = keys.slice(first, KEYS_A_READ)
            yield self._read_keys(group, part, hashes[first : first + KEYS_A_READ], now)

    def _copied(self, group: Group, keys: pa.Table, now: float) -> _Copy | None:
        """The group's copy, if it is asked for often enough to be worth one."""
        splits = self._splits.get(group)
        if not splits:
            return None
        asked = self._cold[group] = self._cold.get(group, 0) + keys.num_rows
        rows = sum(Split.deserialize(split).row_count() for split in splits)
        if asked < 0 or (asked * ROWS_A_KEY < rows and self._filter(keys) is not None):
            return None
        limit, size = self._options.disk, 0
        segments = []
        for piece in pieces(self._read(splits, None), self._schema):
            segment = Segment.of(piece, self._hash.of(piece, self._key))
            size += segment.nbytes
            small = self._in_memory() + size <= self._options.memory // 2
            segments.append(segment if small else segment.spilled())
            if limit is not None and size > limit:
                # Too much to be kept: this group is read by its keys, however many they are.
                self._cold[group] = -(1 << 62)
                return None
        self._make_room(size)
        self._copies[group] = _Copy(segments, now)
        return self._copies[group]

    def _make_room(self, size: int) -> None:
        limit = self._options.disk
        while limit is not None and self._copies and size + self._copied_bytes() > limit:
            oldest = min(self._copies, key=lambda group: self._copies[group].used)
            del self._copies[oldest]

    def _in_memory(self) -> int:
        copies = self._copies.values()
        return sum(one.nbytes for copy in copies for one in copy.segments if not one.on_disk)

    def _copied_bytes(self) -> int:
        return sum(copy.nbytes for copy in self._copies.values())

    def _read_keys(self, group: Group, keys: pa.Table, hashes: Hashes, now: float) -> pa.Table:
        """The rows of some keys from the table itself, kept for the next time."""
        assert self._near is not None
        batches = self._read(self._splits.get(group, []), self._filter(keys))
        wanted = np.unique(hashes)
        kept, found = [], []
        for batch in batches:
            rows = pa.Table.from_batches([batch], self._schema)
            own = self._hash.of(rows, self._key)
            asked = np.isin(own, wanted)
            kept.append(rows.filter(pa.array(asked)))
            found.append(own[asked])
        rows = pa.concat_tables([self._schema.empty_table(), *kept])
        row_hashes = np.concatenate([np.array([], np.uint64), *found])
        self._near.add(keys, hashes, rows, row_hashes, now)
        return rows

    def _filter(self, keys: pa.Table) -> Filter | None:
        assert self._table is not None
        found = []
        for name in self._key:
            values = keys.column(name).unique().to_pylist()
            condition = one_of(self._table.arrow_schema.field(name), values)
            if condition is not None:
                found.append(condition)
        if len(found) > 1:
            return {"method": "and", "children": found}
        return found[0] if found else None

    def _read(self, splits: list[bytes], filter: Filter | None) -> Iterator[pa.RecordBatch]:
        """Rows of splits under the names of the query."""
        assert self._table is not None
        if not splits:
            return
        now = columns_now(self._table, self._spec.planned, self._columns)
        for batch in self._table.read(now, splits=splits, filter=filter):
            yield pa.RecordBatch.from_arrays(batch.columns, schema=self._schema)

    def _sorted(self, keys: pa.Table) -> tuple[pa.Table, Any]:
        """The keys in the order of their hashes, and these."""
        hashes = self._hash.of(keys, self._key)
        order = np.argsort(hashes)
        return keys.take(pa.array(order)), hashes[order]
