"""A Paimon table that is looked up: its version, and groups of its rows in segments.

The strategies differ in which groups they hold, and in how they follow a new snapshot.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from streamhouse.duckdb_connection import LastingConnection
from streamhouse.lookup.dimension import DimensionSpec
from streamhouse.lookup.options import CacheOptions
from streamhouse.lookup.partitions import Partition
from streamhouse.lookup.storage.changed_keys import Version, version_of
from streamhouse.lookup.storage.key_location import Group, GroupReader
from streamhouse.lookup.storage.overlay import KeyCache, Overlay
from streamhouse.sql.expressions.binder import quote
from streamhouse.sql.resolution.columns import physical
from streamhouse.state.segment import Hashes, Segment, chunks, spilled

NO_COLUMNS = pa.schema([])


@dataclass
class HeldGroup:
    """The rows of a group in segments: the bytes of those in memory, and of those in files.

    `used` is when it was looked up last (monotonic seconds). Keys with a hash in `stale` have
    changed since it was read.
    """

    segments: list[Segment] = field(default_factory=list)
    memory: int = 0
    disk: int = 0
    used: float = 0.0
    stale: Hashes = field(default_factory=lambda: np.array([], np.uint64))

    @property
    def rows(self) -> int:
        """How many rows it has, also of keys that have changed."""
        return sum(segment.num_rows for segment in self.segments)


class TableDimension(ABC):
    """The table of one lookup in one process; executors. Not thread-safe.

    All strategies give the same join result: a batch reads the table as of the snapshot that the
    batch recorded, whenever it runs.
    """

    _reader: GroupReader
    _beside: Overlay | KeyCache

    def __init__(
        self,
        spec: DimensionSpec,
        options: CacheOptions,
        memory: int | None,
        hashed: Sequence[str],
        group_key: Sequence[str],
        buckets: int = 0,
    ) -> None:
        """Groups are held in memory up to `memory` bytes (None: all), the rest in local files.

        Rows are found by the columns `hashed`. `group_key` and `buckets` as for `GroupReader`.
        """
        self._spec, self._options, self._memory = spec, options, memory
        self._hashed, self._group_key, self._buckets = hashed, group_key, buckets
        table = spec.lookup.table
        self._key = list(table.primary_key)
        more = [*table.primary_key, *table.partitioned_by]
        self._columns = list(dict.fromkeys([*spec.lookup.columns, *more]))
        types = physical(table)
        keys = ", ".join(f"TRY_CAST({quote(name)} AS {types[name]})" for name in hashed)
        self._hash_sql, self._db = f"SELECT hash({keys}) FROM keys", LastingConnection()
        self._version: Version | None = None
        self._chosen: tuple[Partition, ...] | None = None
        self._drop()

    @property
    @abstractmethod
    def keyed(self) -> bool:
        """Whether `rows` needs the keys of each chunk; valid after a call of `at`."""

    @abstractmethod
    def rows(self, keys: pa.Table | None) -> pa.Table:
        """At least the rows that have one of these keys, with the lookup's `columns`, each once.

        `keys` is the result of `LookupJoin.keys_sql`, or None if not `keyed`. The result may have
        other rows: the join compares again. Without `keys`, it is the same object as long as
        nothing changes.
        """

    def at(self, snapshot: int | None, chosen: Sequence[Partition] | None = None) -> None:
        """Switch to a snapshot (None: before the first) and the `chosen` partitions (None: all)."""
        version = version_of(self._spec.address.follow(), snapshot)
        # After a failure from here on, the next call reads the table again.
        before, self._version = self._version, None
        partitions = None if chosen is None else tuple(chosen)
        if before != version or partitions != self._chosen:
            planned, key = self._spec.address.schema_id, self._group_key
            reader = GroupReader(version, self._columns, key, planned, partitions, self._buckets)
            same = before is not None and before.table.schema_id == version.table.schema_id
            same, self._chosen = same and partitions == self._chosen, partitions
            if before is None or not same or not self._follow(before, version, reader):
                self._drop(reader.schema)
            self._reader = reader
        self._load_missing()
        self._version = version

    def take(self, task: int, count: int) -> None:
        """Use the buckets of one task of `count`, if the lookup is a bucket shuffle."""
        return

    def kept(self) -> list[tuple[int, int]]:
        """The rows and bytes of each segment that it holds, and of the rows beside them."""
        held = [segment for group in self._held.values() for segment in group.segments]
        parts = [*held, self._beside.rows]
        return [(part.num_rows, part.nbytes) for part in parts if part.num_rows]

    def close(self) -> None:
        """Free memory and files."""
        self._drop()
        self._version = None
        self._db.close()

    @abstractmethod
    def _follow(self, before: Version, after: Version, reader: GroupReader) -> bool:
        """Apply the changes between two versions; False if what is held must be dropped."""

    def _load_missing(self) -> None:
        """Read the groups that every batch needs, and that are not held yet."""
        return

    def _drop(self, schema: pa.Schema = NO_COLUMNS) -> None:
        self._schema = schema
        self._held: dict[Group, HeldGroup] = {}

    def _segments(
        self, batches: Iterable[pa.RecordBatch], most_disk: int | None
    ) -> HeldGroup | None:
        """Rows as a group to be held; None if it needs more than `most_disk` bytes of files."""
        group, others = HeldGroup(), sum(held.memory for held in self._held.values())
        for piece in chunks(batches, self._schema):
            segment = Segment.of(piece, self._hashes(piece))
            if self._memory is None or others + group.memory + segment.nbytes <= self._memory:
                group.memory += segment.nbytes
            else:
                rows = segment.table
                segment = Segment(spilled(rows.schema, rows.to_batches()))
                group.disk += segment.nbytes
            group.segments.append(segment)
            if most_disk is not None and group.disk > most_disk:
                return None
        return group

    def _hashes(self, rows: pa.Table) -> Hashes:
        """The hash of each row's values of the columns `hashed`, cast to their DuckDB types."""
        if rows.num_rows == 0 or not self._hashed:
            return np.zeros(rows.num_rows, np.uint64)
        found = self._db.run(self._hash_sql, keys=rows.select(list(self._hashed)))
        return np.asarray(found.column(0).to_numpy(), np.uint64)

    def _disk_left(self) -> int | None:
        """How many more bytes of files may be held; None: no limit."""
        limit = self._options.disk
        return None if limit is None else limit - sum(held.disk for held in self._held.values())
