"""The full-cache strategy: the whole dimension in each worker process, at a pinned snapshot.

A small table is passed to the join as it is. In a larger one, the rows for the keys of each chunk
are found by their hashes, in memory or, beyond the memory limit, in local files. For a new snapshot
of the table, rows whose key has changed are skipped, and an overlay has their current rows. After
many changes these are merged into the segments, so the table is read only once.

With a bucket shuffle, a process holds only the buckets of the tasks that it has run.
"""

from collections.abc import Iterable, Iterator, Sequence
from copy import copy as shallow_copy
from typing import Self

import numpy as np
import pyarrow as pa

from streamhouse.errors import StreamhouseError
from streamhouse.lookup.dimension import DimensionSpec
from streamhouse.lookup.options import CacheOptions, size_text
from streamhouse.lookup.storage.bucket_key import BucketKey, hashed_fields
from streamhouse.lookup.storage.changed_keys import Version
from streamhouse.lookup.storage.key_location import (
    ALL_ROWS,
    ANY,
    Group,
    GroupReader,
    Groups,
    rows_changed_between,
)
from streamhouse.lookup.storage.overlay import Overlay
from streamhouse.lookup.strategies.table_dimension import NO_COLUMNS, TableDimension
from streamhouse.paimon.write.buckets import BucketRefusal
from streamhouse.state.segment import Segment, distinct, found_in

WHOLE_ROWS = 50_000
"""Up to this size, joining the whole table is faster than collecting the keys of a chunk."""
WHOLE_BUCKETS_ROWS = 2_000_000
"""The same for the chunks of a bucket shuffle, which have eight times as many rows."""
MOST_CHANGES = 50_000
_CHANGED_PART = 0.1


class FullDimension(TableDimension):
    """A table that is kept whole, or of which `take` selects the buckets; see the module."""

    def __init__(self, spec: DimensionSpec, options: CacheOptions, buckets: int = 0) -> None:
        """`buckets`: the number by which the rows of the stream are shuffled; 0: they are not."""
        self._selected = [(ANY, bucket) for bucket in range(buckets)] or [ALL_ROWS]
        memory = None if options.cache == "MEMORY" else options.memory
        key: tuple[str, ...] = ()
        if buckets:
            fields = hashed_fields(spec.address.follow())
            if isinstance(fields, BucketRefusal):
                raise StreamhouseError(f"lookup of {spec.address.identifier} by bucket: {fields}")
            self._bucket_key = BucketKey(fields, buckets)
            key = tuple(field.name for field in fields)
        super().__init__(spec, options, memory, spec.lookup.key_columns, key, buckets)

    @property
    def keyed(self) -> bool:
        """Whether the rows are so many that they are found by key; valid after a call of `at`."""
        rows = sum(segment.num_rows for segment in self._selected_segments)
        most = WHOLE_BUCKETS_ROWS if self._buckets else WHOLE_ROWS
        return rows > most and self._spec.lookup.keys_sql is not None

    @property
    def should_merge(self) -> bool:
        """Whether it has applied over half of the changes after which they are merged."""
        return 2 * self._overlay.size > self._max_changes()

    def next_version(self) -> Self:
        """Another one that has loaded nothing yet; its `at` is called in another thread."""
        successor = type(self)(self._spec, self._options, self._buckets)
        # A process may run any task: the next version has all that this one has loaded.
        successor._selected = sorted({*self._held, *self._selected})
        return successor

    def copied(self) -> Self:
        """Another one with the same rows, which can be merged in another thread."""
        copy = self.next_version()
        copy._version, copy._chosen, copy._schema = self._version, self._chosen, self._schema
        copy._held, copy._overlay = dict(self._held), shallow_copy(self._overlay)
        copy._beside = copy._overlay
        copy._reader = self._reader
        return copy

    def merge(self) -> None:
        """Merge the changes into the segments."""
        overlay, held = self._overlay, self._held
        numbers = self._groups.split(overlay.rows)
        self._drop(self._schema)
        for group in list(held):
            own = overlay.rows.take(pa.array(numbers.get(group, []), pa.int64()))
            self._fill(group, _merged(overlay, held.pop(group).segments, own))

    def take(self, task: int, count: int) -> None:
        if self._buckets:
            self._selected = [(ANY, bucket) for bucket in range(task, self._buckets, count)]
            # After a failure, the next call of `at` loads the table again.
            version, self._version = self._version, None
            if version is not None:
                self._load_missing()
            self._version = version

    def rows(self, keys: pa.Table | None) -> pa.Table:
        columns = list(self._spec.lookup.columns)
        if keys is not None:
            hashes = distinct(self._hashes(keys))
            rows = found_in(self._selected_segments, hashes, self._schema)
            return self._overlay.over(rows).select(columns)
        selected = tuple(self._selected)
        if selected not in self._whole:
            tables = [each.table.select(self._schema.names) for each in self._selected_segments]
            whole = pa.concat_tables([self._schema.empty_table(), *tables])
            self._whole[selected] = self._overlay.over(whole).select(columns)
        return self._whole[selected]

    @property
    def _selected_segments(self) -> Iterator[Segment]:
        held = (self._held[group] for group in self._selected if group in self._held)
        return (segment for group in held for segment in group.segments)

    @property
    def _groups(self) -> Groups:
        """How changed rows are grouped."""
        return Groups(bucket=self._bucket_key if self._buckets else None)

    def _drop(self, schema: pa.Schema = NO_COLUMNS) -> None:
        super()._drop(schema)
        self._beside = self._overlay = Overlay(schema, self._key if schema.names else ())
        self._whole: dict[tuple[Group, ...], pa.Table] = {}

    def _load_missing(self) -> None:
        missing = [group for group in self._selected if group not in self._held]
        if missing and self._overlay.size:
            # They are read as of the version, with all changes.
            self.merge()
        if missing and self._buckets and self._reader.groups.bucket is None:
            # The table had another number of buckets at times: each task holds all rows.
            self._buckets, self._selected = 0, [ALL_ROWS]
            self._drop(self._schema)
            missing = self._selected
        for group in missing:
            self._fill(group, self._reader.rows_of_group(group))

    def _fill(self, group: Group, batches: Iterable[pa.RecordBatch]) -> None:
        held = self._segments(batches, self._disk_left())
        if held is None:
            raise StreamhouseError(
                f"the lookup table {self._spec.address.identifier} needs more than "
                f"{size_text(self._options.memory)} of memory and "
                f"{size_text(self._options.disk or 0)} of local "
                "disk; raise lookup.cache-max-memory-size or lookup.cache-max-disk-size, or look "
                "it up by its primary key with LOOKUP('strategy'='partial')"
            )
        self._held[group] = held

    def _follow(self, before: Version, after: Version, reader: GroupReader) -> bool:
        planned = self._spec.address.schema_id
        change = rows_changed_between(
            before, after, self._columns, self._key, planned, MOST_CHANGES
        )
        if change is None:
            return False
        keys, rows = map(self._of_held, change)
        rows = reader.of_chosen(rows.cast(self._schema))
        if keys.num_rows or rows.num_rows:
            self._whole.clear()
            self._overlay.add(keys, rows)
        if self._overlay.size > self._max_changes():
            self.merge()
        return True

    def _max_changes(self) -> int:
        """How many changes the overlay may have."""
        rows = sum(group.rows for group in self._held.values())
        return min(MOST_CHANGES, max(1000, int(rows * _CHANGED_PART)))

    def _of_held(self, rows: pa.Table) -> pa.Table:
        """The rows of the groups that are held."""
        if not self._buckets:
            return rows
        found = [
            numbers for group, numbers in self._groups.split(rows).items() if group in self._held
        ]
        return rows.take(pa.array(np.concatenate(found) if found else [], pa.int64()))


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
