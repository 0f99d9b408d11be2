"""The bucket function of a dimension: which task of a bucket shuffle has the rows of a key."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.lookup.dimension import DimensionSpec
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.schema.evolution import name_mapping
from streamhouse.paimon.write.bucket_hash import bucket_of
from streamhouse.paimon.write.buckets import BucketRefusal, bucket_fields


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


def hashed_fields(table: Table) -> tuple[pa.Field, ...] | BucketRefusal:
    """The fields whose values determine the bucket of a key, if the table has such fields."""
    fields = bucket_fields(table)
    if isinstance(fields, BucketRefusal):
        return fields
    for field in fields:
        if pa.types.is_timestamp(field.type) and field.type.unit == "ns":
            return BucketRefusal(
                f"timestamps are compared in microseconds, and {field.name} has more digits"
            )
    for schema_id in range(table.schema_id):
        changed = _changed(table, schema_id, fields)
        if changed is not None:
            return BucketRefusal(
                f"the type of {changed} has changed, and files have buckets by both"
            )
    return fields


def _changed(table: Table, schema_id: int, fields: Sequence[pa.Field]) -> str | None:
    """The first of these columns that had another type in an older version of the schema."""
    old = table.find_version(schema_id)
    if old is None:
        return None
    names = name_mapping(table, schema_id, old.arrow_schema.names)
    types = {names[field.name]: field.type for field in old.arrow_schema}
    return next((f.name for f in fields if types.get(f.name, f.type) != f.type), None)


def _in_column_type(column: pa.ChunkedArray, field: pa.Field) -> pa.Array:
    """The column in the table's type; a timestamp is truncated if it has too many digits.

    Such a timestamp equals none of the table, so its bucket does not matter.
    """
    return column.cast(field.type, safe=not pa.types.is_temporal(field.type)).combine_chunks()
