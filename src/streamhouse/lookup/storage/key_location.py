"""Finds the rows of keys, and their changes, in the partitions and buckets of a table."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.lookup import partitions
from streamhouse.lookup.partitions import Partition
from streamhouse.lookup.storage.bucket_key import BucketKey, hashed_fields
from streamhouse.lookup.storage.changed_keys import Version, keys_changed_between, last_changes
from streamhouse.paimon.read.conditions import Filter, keys_filter
from streamhouse.paimon.read.key_set import KeySet
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.schema.evolution import current_columns
from streamhouse.paimon.storage.split_files import SplitFrame
from streamhouse.paimon.storage.split_groups import row_count
from streamhouse.paimon.write.buckets import BucketRefusal
from streamhouse.source import ROW_KIND

ANY = "*"
Group = tuple[str, int]
"""A partition's folder and a bucket; `ANY` and -1 where the key does not determine them."""
ALL_ROWS: Group = (ANY, -1)
KEYS_PER_READ = 5_000


@dataclass(frozen=True)
class Groups:
    """How the rows of a table are grouped: by partition, by bucket, by both, or not at all."""

    partition: tuple[str, ...] = ()
    bucket: BucketKey | None = None
    blank: str = "__DEFAULT_PARTITION__"

    @classmethod
    def of(
        cls, table: Table, key: Sequence[str], splits: Sequence[bytes], buckets: int = 0
    ) -> Self:
        """Groups by partition and bucket if `key` has the columns that determine them.

        `splits` are those of the version that is to be read, `buckets` is the number of buckets, by
        default that of the table.
        """
        names = table.partition_keys
        by_partition = all(
            name in key and _is_plain_text(table.arrow_schema.field(name).type) for name in names
        )
        fields, count = hashed_fields(table), buckets or table.bucket
        # A partition may still have another number of buckets, with which it was written.
        bucket = None if isinstance(fields, BucketRefusal) else BucketKey(fields, count)
        if bucket is not None and not (
            {field.name for field in bucket.fields} <= set(key)
            and all(SplitFrame.parse(split).total_buckets == count for split in splits)
        ):
            bucket = None
        blank = table.options.get("partition.default-name", cls.blank)
        return cls(names if by_partition else (), bucket, blank)

    def split(self, keys: pa.Table) -> dict[Group, Any]:
        """The row numbers of the keys of each group; a bucket key with a null has bucket -1."""
        if keys.num_rows == 0:
            return {}
        buckets, count = np.full(keys.num_rows, -1, np.int64), 0
        if self.bucket is not None:
            count = self.bucket.buckets
            buckets = self.bucket.tasks(keys, count)
        codes, folders = self._folders(keys)
        group_codes = codes * (count + 1) + buckets + 1
        order = np.argsort(group_codes, kind="stable")
        bounds = np.flatnonzero(np.diff(group_codes[order])) + 1
        groups: dict[Group, Any] = {}
        for row_numbers in np.split(order, bounds):
            first = row_numbers[0]
            groups[folders[int(codes[first])], int(buckets[first])] = row_numbers
        return groups

    def group_of(self, split: bytes) -> Group:
        """The group of a serialised split."""
        frame = SplitFrame.parse(split)
        number = -1 if self.bucket is None else frame.bucket_id[1]
        if not self.partition:
            return ANY, number
        parts = frame.folder.split("/")[-1 - len(self.partition) : -1]
        return "/".join(unquote(part) for part in parts), number

    def _folders(self, keys: pa.Table) -> tuple[Any, list[str]]:
        if not self.partition:
            return np.zeros(keys.num_rows, np.int64), [ANY]
        parts = []
        for name in self.partition:
            text = keys.column(name).cast(pa.string())
            empty = pc.equal(pc.utf8_trim_whitespace(text), "")
            text = pc.if_else(empty, self.blank, text)
            parts.append(pc.binary_join_element_wise(name, text, "="))
        joined = pc.binary_join_element_wise(*parts, "/").combine_chunks().dictionary_encode()
        return joined.indices.to_numpy().astype(np.int64), joined.dictionary.to_pylist()


def _is_plain_text(data_type: pa.DataType) -> bool:
    """Whether a partition's folder shows the value as text, unlike dates and timestamps."""
    return bool(pa.types.is_integer(data_type) or pa.types.is_string(data_type))


class GroupReader:
    """Reads `columns` of one version of a table, group by group, or by key."""

    def __init__(
        self,
        version: Version,
        columns: Sequence[str],
        key: Sequence[str],
        planned: int | None,
        chosen: Sequence[Partition] | None = None,
        buckets: int = 0,
    ) -> None:
        """Rows are grouped by the columns `key`, and by their buckets only if all have `buckets`.

        To read by key, `key` is the primary key. It is among `columns`, as are the partition keys
        if only the partitions `chosen` are read. Columns have the names of schema version
        `planned`. `buckets`: by default, the table's number of buckets.
        """
        self._version, self._table = version, version.table
        self._key, self._chosen, self._buckets = list(key), chosen, buckets
        self._current_names = current_columns(version.table, planned, columns)
        self.schema = schema_of(version.table, columns, planned)

    @cached_property
    def _condition(self) -> Filter | None:
        chosen = self._chosen
        return None if chosen is None else partitions.condition(self._table, chosen)

    @cached_property
    def _splits(self) -> list[bytes]:
        snapshot = self._version.snapshot
        if snapshot is None or (self._chosen is not None and not self._chosen):
            return []
        return self._table.splits(snapshot.id, filter=self._condition)

    @cached_property
    def groups(self) -> Groups:
        """How keys are grouped by partition and bucket."""
        return Groups.of(self._table, self._key, self._splits, self._buckets)

    @cached_property
    def _splits_by_group(self) -> dict[Group, list[bytes]]:
        splits_by_group: dict[Group, list[bytes]] = {}
        for split in self._splits:
            splits_by_group.setdefault(self.groups.group_of(split), []).append(split)
        return splits_by_group

    def estimated_rows(self, group: Group) -> int:
        """About how many rows a group has."""
        return row_count(self._splits_by_group.get(group, []))

    def rows_of_group(self, group: Group) -> Iterator[pa.RecordBatch]:
        """All rows of a group."""
        yield from self._read(self._splits_by_group.get(group, []), None)

    def rows_of_keys(self, group: Group, keys: pa.Table) -> pa.Table:
        """The rows of some keys of a group; `keys` has the columns of the key, in their types."""
        splits, step = self._splits_by_group.get(group, []), KEYS_PER_READ
        parts = [keys.slice(first, step) for first in range(0, keys.num_rows, step)]
        filters = [self.filter(part) for part in parts]
        if None in filters:
            filters = [None]
        batches = [batch for each in filters for batch in self._read(splits, each)]
        rows = pa.Table.from_batches(batches, self.schema)
        return KeySet(keys).rows(rows) if rows.num_rows else rows

    def rows_of(self, keys: pa.Table) -> pa.Table:
        """The rows of some keys, without duplicates."""
        groups = self.groups.split(keys) if keys.num_rows else {}
        rows = [self.rows_of_keys(each, keys.take(pa.array(n))) for each, n in groups.items()]
        return pa.concat_tables([self.schema.empty_table(), *rows])

    def filter(self, keys: pa.Table) -> Filter | None:
        """The filter by which the Rust core finds keys; None if it has none for their types."""
        return keys_filter((self._table.arrow_schema.field(name) for name in self._key), keys)

    def of_chosen(self, rows: pa.Table) -> pa.Table:
        """The rows of the chosen partitions."""
        if self._chosen is None:
            return rows
        return rows.filter(partitions.mask(rows, self._table, self._chosen))

    def _read(self, splits: Sequence[bytes], filter: Filter | None) -> Iterator[pa.RecordBatch]:
        found = filter or self._condition
        for batch in self._table.read(self._current_names, splits=splits, filter=found):
            rows = pa.Table.from_arrays(batch.columns, schema=self.schema)
            yield from self.of_chosen(rows).to_batches()


def rows_changed_between(
    before: Version,
    after: Version,
    columns: Sequence[str],
    key: Sequence[str],
    planned: int | None,
    most: int,
) -> tuple[pa.Table, pa.Table] | None:
    """The keys of all rows that have changed between two versions, and their rows at the later one.

    `columns` have the names of schema version `planned` and include the primary key, `key`. For a
    table without one, no keys and the rows that were added. None if that is not known, or if the
    rows of more than `most` changed keys would have to be found in the table.
    """
    changes = last_changes(before, after, columns, planned)
    if changes is not None:
        rows = changes.drop_columns([ROW_KIND])
        if not key:
            return rows.slice(0, 0), rows
        return rows.select(key), rows.filter(pc.equal(changes.column(ROW_KIND), "+I"))
    keys = keys_changed_between(before, after, key)
    if keys is None or after.snapshot is None or keys.num_rows > most:
        return None
    keys = keys.group_by(list(key)).aggregate([])
    return keys, GroupReader(after, columns, key, planned).rows_of(keys)


def schema_of(table: Table, columns: Sequence[str], planned: int | None) -> pa.Schema:
    """The current types of columns, under their planned names, all nullable."""
    fields = zip(columns, table.read_schema(current_columns(table, planned, columns)), strict=True)
    return pa.schema([field.with_name(name).with_nullable(True) for name, field in fields])
