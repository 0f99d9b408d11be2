"""Splits rows of a primary-key table by bucket into groups that can be written in parallel."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pyarrow as pa

from streamhouse.paimon.read.table import Table
from streamhouse.paimon.write.bucket_hash import bucket_of, hashable
from streamhouse.paimon.write.rows import column

MOST_GROUPS = 8
"""Most groups of a table: more than there are cores help little, and each task stages a file per
group."""


class BucketRefusal(str):
    """Why something is not possible, as a part of a sentence; returned where that is no error."""


@dataclass(frozen=True)
class BucketGroups:
    """Assigns each row to one of `count` groups, by the bucket of its bucket key.

    All rows of a key are in one group. The hash is Paimon's own, so all rows of a bucket are in one
    group too, and thus in one file. `fields` are the bucket key's fields with their types in the
    table named `table`. Values are cast to these before they are hashed, so that values which
    become the same key are in the same group.
    """

    table: str
    fields: tuple[pa.Field, ...]
    buckets: int
    count: int

    @classmethod
    def of(cls, table: Table) -> Self | None:
        """The grouping of a table; None if its rows cannot be grouped.

        So it is with one bucket, a `bucket` below 0, a bucket function other than the default, and
        a bucket key with nested types or with columns outside the primary key.
        """
        fields = bucket_fields(table)
        if isinstance(fields, BucketRefusal) or not {field.name for field in fields} <= set(
            table.primary_key
        ):
            return None
        count = min(table.bucket, MOST_GROUPS)
        return cls(table.identifier, fields, table.bucket, count)

    def split(self, batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The batch's rows by group, in their order within a group; without empty groups."""
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


def bucket_fields(table: Table) -> tuple[pa.Field, ...] | BucketRefusal:
    """The fields of a table's bucket key, if they determine the bucket."""
    if table.bucket < 2:
        return BucketRefusal(f"table {table.identifier} has no fixed number of buckets above 1")
    function = table.options.get("bucket-function.type", "default").lower()
    if function != "default":
        return BucketRefusal(f"table {table.identifier} has the bucket function '{function}'")
    bucket_key = table.options.get("bucket-key")
    names = (
        tuple(name.strip() for name in bucket_key.split(","))
        if bucket_key
        else tuple(key for key in table.primary_key if key not in table.partition_keys)
    )
    fields = tuple(table.arrow_schema.field(name) for name in names)
    if not fields or not all(hashable(field.type) for field in fields):
        return BucketRefusal(f"table {table.identifier} has no bucket key without nested types")
    return fields
