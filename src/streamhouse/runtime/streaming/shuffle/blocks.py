"""The blocks of rows that tasks send to each other: which task joins a row, and the schema."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from streamhouse.errors import StreamhouseError
from streamhouse.lookup.storage.bucket_key import BucketKey, bucket_key
from streamhouse.paimon.write.buckets import BucketRefusal
from streamhouse.runtime.query_spec import QuerySpec
from streamhouse.runtime.streaming.tasks.result_types import BLOCKS_TYPE

BLOCKS: pa.Schema = to_arrow_schema(BLOCKS_TYPE)
"""The output of read tasks: blocks of source rows for task `task`, or JSON for this task in
`task_report` (offsets and number of rows); for small batches, results for the driver (`RESULT`)."""


def block_row(task: int, block: bytes | None, report: str | None) -> pa.RecordBatch:
    """A row of `BLOCKS` for join task `task`."""
    row = {"task": task, "block": block, "task_report": report}
    return pa.RecordBatch.from_pylist([row], schema=BLOCKS)


def join_task_count(spec: QuerySpec) -> int:
    """The number of join tasks."""
    assert spec.shuffle is not None
    return max(1, min(spec.parallelism, spec.choices[spec.shuffle].buckets))


def shuffle_key(spec: QuerySpec) -> BucketKey:
    """The bucket function, with the number of buckets at the start of the query."""
    assert spec.shuffle is not None
    dimension = spec.dimensions()[spec.shuffle]
    found = bucket_key(dimension, dimension.open())
    if isinstance(found, BucketRefusal):
        raise StreamhouseError(
            f"lookup strategy 'bucket' is no longer possible: {found}; start the query again"
        )
    return BucketKey(found.fields, spec.choices[spec.shuffle].buckets)
