"""Reads rows of a dimension as of one snapshot, by bucket and by key."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

import pyarrow as pa
from pypaimon_rust.datafusion import Split

from streamhouse.lookup.storage.key_location import Group, Groups
from streamhouse.paimon.read.conditions import Filter
from streamhouse.paimon.read.pushdown import keys_filter
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.schema.evolution import current_columns

KEYS_PER_READ = 5_000


class KeyReader:
    """Reads `columns` of one snapshot; they have the names of schema version `planned`.

    `key` are the columns of the primary key, all of them among `columns`.
    """

    def __init__(
        self,
        table: Table,
        snapshot: int,
        columns: Sequence[str],
        key: Sequence[str],
        planned: int | None,
    ) -> None:
        self._table, self._snapshot = table, snapshot
        self._key = list(key)
        self._current_names = current_columns(table, planned, columns)
        self.schema = schema_of(table, columns, planned)

    @cached_property
    def _splits(self) -> list[bytes]:
        return self._table.splits(self._snapshot)

    @cached_property
    def groups(self) -> Groups:
        """How keys are grouped by partition and bucket."""
        return Groups.of(self._table, self._key, self._splits)

    @cached_property
    def _splits_by_group(self) -> dict[Group, list[bytes]]:
        splits_by_group: dict[Group, list[bytes]] = {}
        for split in self._splits:
            splits_by_group.setdefault(self.groups.group_of(split), []).append(split)
        return splits_by_group

    def estimated_rows(self, group: Group) -> int:
        """About how many rows a group has."""
        splits = self._splits_by_group.get(group, [])
        return sum(Split.deserialize(split).row_count() for split in splits)

    def rows_of_group(self, group: Group) -> Iterator[pa.RecordBatch]:
        """All rows of a group."""
        yield from self._read(self._splits_by_group.get(group, []), None)

    def rows_of_keys(self, group: Group, keys: pa.Table) -> Iterator[pa.RecordBatch]:
        """At least the rows of some keys of a group, and maybe others."""
        splits = self._splits_by_group.get(group, [])
        if self.filter(keys) is None:
            yield from self._read(splits, None)
            return
        for first in range(0, keys.num_rows, KEYS_PER_READ):
            yield from self._read(splits, self.filter(keys.slice(first, KEYS_PER_READ)))

    def filter(self, keys: pa.Table) -> Filter | None:
        """The filter by which the Rust core finds keys; None if it has none for their types."""
        return keys_filter((self._table.arrow_schema.field(name) for name in self._key), keys)

    def _read(self, splits: Sequence[bytes], filter: Filter | None) -> Iterator[pa.RecordBatch]:
        if splits:
            for batch in self._table.read(self._current_names, splits=splits, filter=filter):
                yield pa.RecordBatch.from_arrays(batch.columns, schema=self.schema)


def schema_of(table: Table, columns: Sequence[str], planned: int | None) -> pa.Schema:
    """The current types of columns, under their planned names, all nullable."""
    fields = zip(columns, table.read_schema(current_columns(table, planned, columns)), strict=True)
    return pa.schema([field.with_name(name).with_nullable(True) for name, field in fields])
