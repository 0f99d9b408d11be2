"""The bucket function of a dimension: which task of a bucket shuffle has the rows of a key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.lookup.dimension import DimensionSpec
from streamhouse.lookup.storage.key_location import hashed_fields
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.write.bucket_hash import bucket_of
from streamhouse.paimon.write.buckets import BucketRefusal


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


def _in_column_type(column: pa.ChunkedArray, field: pa.Field) -> pa.Array:
    """The column in the table's type; a timestamp is truncated if it has too many digits.

    Such a timestamp equals none of the table, so its bucket does not matter.
    """
    return column.cast(field.type, safe=not pa.types.is_temporal(field.type)).combine_chunks()
