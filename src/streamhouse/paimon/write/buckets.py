"""Rows of a keyed table in groups that can be written at once: by bucket, hence by key."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from streamhouse.paimon.read.table import Table
from streamhouse.paimon.write.bucket_hash import bucket_of, hashable
from streamhouse.paimon.write.rows import column

MOST_GROUPS = 8
"""More groups than cores are of little use, and each is a file of each task."""


@dataclass(frozen=True)
class Grouping:
    """Which of `count` groups a row belongs to: that of its bucket, by its bucket key.

    All rows of one key are of one group, whatever the hash; that the hash is Paimon's own makes
    a bucket's rows meet in one group, and so in one file. `fields` are the bucket key's as the
    table named `table` has them: two values that are cast to one key must meet, too.
    """

    table: str
    fields: tuple[pa.Field, ...]
    buckets: int
    count: int

    @classmethod
    def of(cls, table: Table) -> Grouping | None:
        """None where there is one group only: one bucket, or dynamic ones."""
        fields = bucket_fields(table)
        if isinstance(fields, str) or not {one.name for one in fields} <= set(table.primary_key):
            return None
        count = min(table.bucket, MOST_GROUPS)
        return cls(table.identifier, fields, table.bucket, count)

    def split(self, batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The batch's rows by group, each group's in their order; empty groups are left out."""
        groups = self._groups(batch)
        order = np.argsort(groups, kind="stable")
        sizes = np.bincount(groups, minlength=self.count)
        sorted_rows = batch.take(pa.array(order))
        start = 0
        for group, size in enumerate(sizes.tolist()):
            if size:
                yield group, sorted_rows.slice(start, size)
            start += size

    def only(self, batch: pa.RecordBatch, group: int) -> pa.RecordBatch:
        """The rows of one group."""
        return batch.filter(pa.array(self._groups(batch) == group))

    def _groups(self, batch: pa.RecordBatch) -> Any:
        keys = [column(batch, field, self.table) for field in self.fields]
        return (bucket_of(keys, self.buckets) % self.count).astype(np.uint8)


def bucket_fields(table: Table) -> tuple[pa.Field, ...] | str:
    """The fields of a table's bucket key, whose values say the bucket; or why they do not."""
    if table.bucket < 2:
        return f"table {table.identifier} has no fixed number of buckets above 1"
    function = table.options.get("bucket-function.type", "default").lower()
    if function != "default":
        return f"table {table.identifier} has the bucket function '{function}'"
    given = table.options.get("bucket-key")
    names = (
        tuple(name.strip() for name in given.split(","))
        if given
        else tuple(key for key in table.primary_key if key not in table.partition_keys)
    )
    fields = tuple(table.arrow_schema.field(name) for name in names)
    if not fields or not all(hashable(field.type) for field in fields):
        return f"table {table.identifier} has no bucket key of plain columns"
    return fields
