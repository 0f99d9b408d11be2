"""Rejects rows that would overflow a `sum` column.

Paimon's Rust and Java cores both add without an overflow check when they merge: a BIGINT wraps
round to a negative number, a DECIMAL becomes NULL. So rows are checked before they are merged,
those of one writer by `AddedRows` and each commit by `SumLimits`. An upper bound of all sums is
enough in nearly all cases; only where it exceeds the type are rows added up key by key.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.paimon.read.key_set import KeySet
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.read.visibility import hides_new_rows
from streamhouse.paimon.schema.evolution import name_mapping
from streamhouse.paimon.storage.data_files import UNKNOWN, data_files, magnitudes
from streamhouse.paimon.storage.lock import LOCK_WAIT_S
from streamhouse.paimon.storage.split_files import SplitFile, SplitFrame
from streamhouse.paimon.write.merge_rules.sum_columns import (
    absolute_values,
    check_sum,
    scale,
    summed_columns,
    values_by_key,
)
from streamhouse.paimon.write.rows import VALUE_KIND
from streamhouse.source import ROW_KIND, ROW_KINDS

_NEAR = 0.001
"""Share of a limit up to which a writer only keeps a total over all keys, and not the rows."""
_SURE = 1 - 1e-6
"""Share of a limit below which a floating-point sum is within it despite rounding errors."""

BucketId = tuple[bytes, int]
"""A serialised partition, and the number of a bucket in it."""
Bounds: TypeAlias = Counter[str]
"""By column, an upper bound of the absolute values of all sums, perhaps `UNKNOWN`."""


class AddedRows:
    """Checks the rows of one writer, which it may merge in memory before it writes a file."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._limits = summed_columns(table)
        self._totals = dict.fromkeys(self._limits, 0.0)
        self._kept: list[pa.Table] = []
        self._before: dict[str, float] = {}

    def take(self, rows: pa.RecordBatch) -> None:
        """Add the next rows, as `to_table` returns them."""
        if not self._limits:
            return
        names = list(self._limits)
        before = dict(self._totals)
        for name in names:
            self._totals[name] += pc.sum(absolute_values(rows.column(name))).as_py() or 0.0
        # Below this, no sum is near its limit, and the rows need not be kept.
        if any(self._totals[name] > limit * _NEAR for name, limit in self._limits.items()):
            self._before = self._before or before
            names = [*self._table.primary_key, *names]
            kept = pa.table([rows.column(name) for name in names], names)
            if VALUE_KIND in rows.schema.names:
                kinds = pa.array(ROW_KINDS).take(rows.column(VALUE_KIND))
                kept = kept.append_column(ROW_KIND, kinds)
            self._kept.append(kept)

    def check(self) -> None:
        """Raise `TableError` if a sum of the rows exceeds its type."""
        for name, limit in self._limits.items():
            if self._totals[name] > limit * _SURE:
                rows = pa.concat_tables(self._kept, promote_options="default")
                self._check_column(name, rows, limit)

    def _check_column(self, name: str, rows: pa.Table, limit: int) -> None:
        keys, before = list(self._table.primary_key), self._before[name]
        sized = rows.select(keys).append_column("", absolute_values(rows.column(name)))
        sums = sized.group_by(keys).aggregate([("", "sum")])
        large = sums.filter(pc.greater(sums.column("_sum"), limit * _SURE - before))
        if not large.num_rows:
            return
        rows = KeySet(large.select(keys)).rows(rows)
        for key, values in values_by_key([rows], keys, name).items():
            check_sum(self._table, name, key, [int(before), *values], limit)


class SumLimits:
    """Checks the commits of one committer to a table.

    `written` is the table with its writers' options: its splits include files that readers do not
    see yet. `alone` ignores the rows that the table has, as an overwrite replaces them.
    """

    def __init__(self, table: Table, written: Table, alone: bool = False) -> None:
        self._table = table
        self._written = written
        self._alone = alone
        self._limits = summed_columns(table)
        self._checked_snapshot: int | None = None
        self._bounds = Bounds()
        """Those of the bucket with the greatest sums."""

    def check(self, messages: Sequence[bytes]) -> None:
        """Raise `TableError` if a sum would exceed its type.

        Unless `alone`, the caller holds the table's commit lock.
        """
        if not self._limits:
            return
        new = [SplitFrame.added(message) for message in messages]
        added = self._largest(new)
        self._refresh_bounds()
        bounds = self._bounds + added
        if self._exceeding(bounds):
            # Compactions may have lowered the bounds in the meantime.
            self._checked_snapshot = None
            self._refresh_bounds()
            bounds = self._bounds + added
        limits = self._exceeding(bounds)
        if limits:
            self._check_by_key(new, limits)
        self._bounds = bounds

    def committed(self) -> None:
        """Record that the newest snapshot has what was checked last; the lock is still held."""
        if self._limits:
            self._checked_snapshot = self._table.latest_snapshot_id(LOCK_WAIT_S) or 0

    def _refresh_bounds(self) -> None:
        """Update the bounds to the newest snapshot."""
        # The committer has just looked for newer ones, under the lock.
        latest = self._table.latest_snapshot_id(LOCK_WAIT_S) or 0
        checked = self._checked_snapshot
        if (
            checked is None
            or checked > latest
            or self._table.snapshots.changed_rows(checked, latest)
        ):
            files = [] if self._alone or not latest else self._files()
            self._bounds = self._largest(files)
        self._checked_snapshot = latest

    def _files(self) -> list[SplitFrame]:
        return [SplitFrame.parse(split) for split in self._written.splits()]

    def _largest(self, frames: Iterable[SplitFrame]) -> Bounds:
        """The greatest bounds that any bucket has for its files."""
        by_bucket: dict[BucketId, list[SplitFile]] = defaultdict(list)
        for frame in frames:
            by_bucket[frame.bucket_id] += frame.files
        largest = Bounds()
        for group in by_bucket.values():
            largest |= self._bound(group)
        return largest

    def _bound(self, files: Iterable[SplitFile]) -> Bounds:
        """The bounds for files of one bucket.

        Files of one level above 0 do not overlap, so only their maximum counts.
        """
        bound, levels = Bounds(), defaultdict[int, Bounds](Bounds)
        for file in files:
            if file.level == 0:
                bound += self._magnitudes(file)
            else:
                levels[file.level] |= self._magnitudes(file)
        return sum(levels.values(), bound)

    def _magnitudes(self, file: SplitFile) -> Bounds:
        table = self._table
        if file.schema_id == table.schema_id:
            return magnitudes(file, table.arrow_schema, list(self._limits))
        old_schema = table.find_version(file.schema_id)
        if old_schema is None:
            return Bounds(dict.fromkeys(self._limits, UNKNOWN))
        current_names = name_mapping(table, file.schema_id, old_schema.arrow_schema.names)
        schema = pa.schema(
            field.with_name(current)
            for field in old_schema.arrow_schema
            if (current := current_names[field.name]) is not None
        )
        bounds = magnitudes(file, schema, list(self._limits))
        for name in self._limits:
            index = schema.get_field_index(name)
            if index >= 0 and scale(schema.field(index).type) != scale(
                table.arrow_schema.field(name).type
            ):
                bounds[name] = UNKNOWN
        return bounds

    def _exceeding(self, bounds: Bounds) -> dict[str, int]:
        """The columns with a sum that may exceed its limit, with these limits."""
        return {name: limit for name, limit in self._limits.items() if bounds[name] > limit}

    def _check_by_key(self, new: Sequence[SplitFrame], limits: Mapping[str, int]) -> None:
        """Raise `TableError` if a key's sum in one of these columns would exceed its limit."""
        frames = [] if self._alone else self._files()
        merged: dict[BucketId, list[bytes]] = defaultdict(list)
        for split in self._table.splits() if frames else ():
            merged[SplitFrame.parse(split).bucket_id].append(split)
        files = data_files(self._table.files, self._table.location)
        folders = {name: folder for folder, name in files}
        written: dict[BucketId, list[bytes]] = defaultdict(list)
        for frame in new:
            written[frame.bucket_id] += [
                replace(frame, folder=folders.get(file.name, ""), files=(file,)).serialize()
                for file in frame.files
            ]
        for bucket_id, added in written.items():
            recent = [
                part.serialize()
                for frame in frames
                if frame.bucket_id == bucket_id
                for part in frame.on_levels(0).each_written()
            ]
            self._check_bucket(added, recent, merged[bucket_id], limits)

    def _check_bucket(
        self,
        added: Sequence[bytes],
        recent: Sequence[bytes],
        merged: Sequence[bytes],
        limits: Mapping[str, int],
    ) -> None:
        """Check the keys of the files that are `added` to a bucket.

        `recent` are its files of level 0, `merged` all its splits.
        """
        keys = list(self._table.primary_key)
        read = partial(self._table.rows, [*keys, *limits])
        changes = [read(splits=[split], row_kind=True) for split in added]
        touched = KeySet(pa.concat_tables(changes).select(keys))
        uncompacted = [touched.rows(read(splits=[split], row_kind=True)) for split in recent]
        rows, hidden = touched.rows(read(splits=merged)), hides_new_rows(self._table)
        for name, limit in limits.items():
            current = values_by_key([rows], keys, name)
            before = values_by_key(uncompacted, keys, name)
            for key, values in values_by_key(changes, keys, name).items():
                parts, base = before.get(key, []), 0
                # A key that has only retractions has no merged row.
                if key in current:
                    base = sum(current[key]) - (0 if hidden else sum(parts))
                check_sum(self._table, name, key, [base, *parts, *values], limit)
