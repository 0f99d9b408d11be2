"""The bucket-shuffle strategy: each task holds only its buckets of the dimension.

The rows of the stream are shuffled to tasks by the dimension's own bucket function, so the rows
that one of them may join are in a bucket of its task. A process caches what it has read, bucket by
bucket, and reads a bucket again only if its files have changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.lookup import partitions
from streamhouse.lookup.dimension import DimensionSpec
from streamhouse.lookup.options import CacheOptions
from streamhouse.lookup.partitions import Partition
from streamhouse.lookup.storage.changed_keys import Version, version_of
from streamhouse.lookup.storage.key_location import hashed_fields
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.schema.evolution import current_columns
from streamhouse.paimon.storage.split_files import BucketHeader, without_snapshot
from streamhouse.paimon.write.bucket_hash import bucket_of
from streamhouse.paimon.write.buckets import BucketRefusal
from streamhouse.state.segment import spilled


@dataclass(frozen=True)
class BucketKey:
    """The bucket function of a table: the fields of its bucket key, and how many buckets."""

    fields: tuple[pa.Field, ...]
    buckets: int

    def tasks(self, keys: pa.Table, count: int) -> Any:
        """The task of `count` for each row of keys (columns of the fields' names); -1 for nulls."""
        columns = [_in_column_type(keys.column(field.name), field) for field in self.fields]
        if not any(column.null_count for column in columns):
            return bucket_of(columns, self.buckets) % count
        valid = np.ones(keys.num_rows, bool)
        for column in columns:
            valid &= pc.is_valid(column).to_numpy(zero_copy_only=False)
        tasks = np.full(keys.num_rows, -1, np.int64)
        rows = pa.array(valid)
        if valid.any():
            tasks[valid] = bucket_of([c.filter(rows) for c in columns], self.buckets) % count
        return tasks


def bucket_key(spec: DimensionSpec, table: Table) -> BucketKey | BucketRefusal:
    """The bucket function by which the rows of a stream can be shuffled."""
    fields = hashed_fields(table)
    if isinstance(fields, BucketRefusal):
        return fields
    names = [field.name for field in fields]
    missing = [name for name in names if name not in spec.lookup.key_columns]
    if missing:
        return BucketRefusal(
            f"ON does not compare {', '.join(missing)} of the bucket key ({', '.join(names)})"
        )
    if spec.lookup.row_keys_sql is None:
        return BucketRefusal("its keys come from another lookup, or the rows from a UNION ALL")
    return BucketKey(fields, table.bucket)


@dataclass(frozen=True)
class _Bucket:
    """The rows of a bucket, and its splits without their snapshot id (`content`).

    `memory` is the size of the rows in bytes, 0 for those in a local file.
    """

    content: bytes
    rows: pa.Table
    memory: int


class BucketDimension:
    """A table of which `take` selects the part of one task; by default all of it.

    Rows beyond `lookup.cache-max-memory-size` are in local files.
    """

    keyed = False

    def __init__(self, spec: DimensionSpec, buckets: int, options: CacheOptions) -> None:
        self._spec, self._buckets, self._options = spec, buckets, options
        self._part = 0, 1
        self._version: tuple[Version | None, Sequence[Partition] | None] = None, None
        self._shape: tuple[object, ...] = ()
        self._cached: dict[str, _Bucket] = {}
        self._whole: dict[tuple[int, int], tuple[list[pa.Table], pa.Table]] = {}
        self._folders: dict[tuple[int, int], set[str]] = {}
        self._current_rows: pa.Table | None = None

    def next_version(self) -> BucketDimension:
        """Another one, which shares the buckets that this one has read."""
        successor = BucketDimension(self._spec, self._buckets, self._options)
        successor._part, successor._shape, successor._cached = (
            self._part,
            self._shape,
            dict(self._cached),
        )
        successor._whole, successor._folders = dict(self._whole), dict(self._folders)
        return successor

    def fill(self) -> None:
        """Read all parts that were used so far, in any order."""
        for part in [*self._folders] or [self._part]:
            self.take(*part)
            self.rows(None)

    def take(self, task: int, count: int) -> None:
        """From now on, rows are those of the buckets of one task of `count`."""
        if (task, count) != self._part:
            self._part, self._current_rows = (task, count), None

    def at(self, snapshot: int | None, chosen: Sequence[Partition] | None = None) -> None:
        version = version_of(self._spec.open(), snapshot), chosen
        if version != self._version:
            self._version, self._current_rows = version, None

    def rows(self, keys: pa.Table | None) -> pa.Table:
        if self._current_rows is None:
            self._current_rows = self._joined()
        return self._current_rows

    def close(self) -> None:
        self._cached.clear()
        self._whole.clear()
        self._folders.clear()
        self._current_rows = None

    def _joined(self) -> pa.Table:
        """The part's rows; the same object as the last time if none of its files has changed."""
        table = self._spec.open()
        columns = list(self._spec.lookup.columns)
        chosen = self._version[1]
        shape = table.schema_id, None if chosen is None else tuple(chosen)
        if shape != self._shape:
            self.close()
            self._shape = shape
        splits = self._splits(table)
        parts = [self._bucket(table, *entry) for entry in splits.items()]
        self._forget(splits)
        cached = self._whole.get(self._part)
        if cached is not None and [id(rows) for rows in cached[0]] == [id(part) for part in parts]:
            return cached[1]
        schema = table.read_schema(current_columns(table, self._spec.planned, columns))
        whole = pa.concat_tables([schema.empty_table(), *parts]).rename_columns(columns)
        self._whole[self._part] = parts, whole
        return whole

    def _forget(self, splits: Mapping[str, object]) -> None:
        """Drop buckets that no part has any more."""
        self._folders[self._part] = set(splits)
        in_use = set().union(*self._folders.values())
        self._cached = {folder: read for folder, read in self._cached.items() if folder in in_use}

    def _splits(self, table: Table) -> dict[str, list[bytes]]:
        """The part's splits, by the folder of their bucket."""
        version, chosen = self._version
        splits_by_folder: dict[str, list[bytes]] = {}
        if version is None or version.snapshot is None or (chosen is not None and not chosen):
            return splits_by_folder
        pruned = None if chosen is None else partitions.condition(table, chosen)
        task, count = self._part
        for split in table.splits(version.snapshot.id, filter=pruned):
            bucket = BucketHeader.parse(split)
            # Partitions that were written with another number of buckets belong to all tasks.
            if bucket.total != self._buckets or bucket.number % count == task:
                splits_by_folder.setdefault(bucket.folder, []).append(split)
        return splits_by_folder

    def _bucket(self, table: Table, folder: str, splits: list[bytes]) -> pa.Table:
        content = b"".join(map(without_snapshot, splits))
        chosen = self._version[1]
        cached = self._cached.get(folder)
        if cached is not None and cached.content == content:
            return cached.rows
        current_names = current_columns(table, self._spec.planned, self._spec.lookup.columns)
        read_columns = (
            current_names
            if chosen is None
            else list(dict.fromkeys([*current_names, *table.partition_keys]))
        )
        rows = pa.Table.from_batches(
            table.read(read_columns, splits=splits), schema=table.read_schema(read_columns)
        )
        if chosen is not None:
            rows = rows.filter(partitions.mask(rows, table, chosen)).select(current_names)
        size = rows.nbytes
        if size + sum(bucket.memory for name, bucket in self._cached.items() if name != folder) > (
            self._options.memory
        ):
            rows, size = spilled(rows), 0
        self._cached[folder] = _Bucket(content, rows, size)
        return rows


def _in_column_type(column: pa.ChunkedArray, field: pa.Field) -> pa.Array:
    """The column in the table's type; a timestamp is truncated if it has too many digits.

    Such a timestamp equals none of the table, so its bucket does not matter.
    """
    return column.cast(field.type, safe=not pa.types.is_temporal(field.type)).combine_chunks()
