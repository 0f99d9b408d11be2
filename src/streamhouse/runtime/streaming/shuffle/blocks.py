"""The blocks of rows that tasks send to each other: which task joins a row, their numbers, schemas.

The numbers give the rows of a batch one order. Small batches skip the shuffle: the task that reads
the rows also joins them. The planner decides this for a batch before it begins. The decision
is in the batch's offset, under `whole`, where the driver finds it too.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from streamhouse.errors import StreamhouseError
from streamhouse.lookup.options import CacheOptions
from streamhouse.lookup.storage.bucket_key import BucketKey, bucket_key
from streamhouse.paimon.write.buckets import BucketRefusal
from streamhouse.runtime.query_operator import ROW, QueryOperator
from streamhouse.runtime.query_source import source_offset
from streamhouse.runtime.query_spec import QuerySpec
from streamhouse.runtime.streaming.tasks.task_protocol import RESULT
from streamhouse.source import Offset, Source

WHOLE = "whole"
_DIMENSION_ROWS = 100_000
"""With a larger dimension every batch is shuffled, since a join scans all its rows."""


def block_row(
    task: int, block: bytes | None, first_row: int = -1, rows: int | None = None
) -> pa.RecordBatch:
    """A row of `RESULT` for a task; `first_row`: the number of the block's first row.

    `rows`: how many rows were read for it and other blocks.
    """
    report = None if rows is None else str(rows)
    row = {"task": task, "first_row": first_row, "block": block, "report": report}
    return pa.RecordBatch.from_pylist([row], schema=RESULT)


ROW_BITS, SPLIT_BITS = 36, 14
"""Bits of a row number: for the row within its split, and for the split within its task."""


def join_task_count(spec: QuerySpec) -> int:
    """The number of join tasks."""
    assert spec.shuffle is not None
    return max(1, min(spec.parallelism, spec.choices[spec.shuffle].buckets))


class TaskOfRow:
    """Which of the `count` join tasks has the bucket of a row's key."""

    def __init__(self, spec: QuerySpec) -> None:
        assert spec.shuffle is not None
        dimension = spec.dimensions()[spec.shuffle]
        found = bucket_key(dimension, dimension.address.follow())
        if isinstance(found, BucketRefusal):
            raise StreamhouseError(
                f"lookup strategy 'bucket' is no longer possible: {found}; start the query again"
            )
        # The number of buckets at the start of the query.
        self._key = BucketKey(found.fields, spec.choices[spec.shuffle].buckets)
        self._sql = dimension.lookup.row_keys_sql or ""
        self.count = join_task_count(spec)

    def _of(self, src: pa.Table, operator: QueryOperator) -> tuple[Any, Any]:
        """The numbers of the rows that may be joined, and the task of each; -1: any task."""
        keys = operator.keys(self._sql, src)
        return keys.column(ROW).to_numpy(), self._key.tasks(keys, self.count)

    def shares(
        self, src: pa.Table, operator: QueryOperator, reader: int
    ) -> Iterator[tuple[int, Any]]:
        """The tasks that join rows of `src`, which a task `reader` has read, and their numbers."""
        numbers, tasks = self._of(src, operator)
        tasks[tasks < 0] = reader % self.count
        # NumPy's stable sort is a radix sort for 16-bit integers, and slower for longer ones.
        tasks = tasks.astype(np.int16 if self.count < 1 << 15 else np.int64)
        order = np.argsort(tasks, kind="stable")
        bounds = np.searchsorted(tasks[order], np.arange(self.count + 1))
        for task in range(self.count):
            own = np.sort(numbers[order[bounds[task] : bounds[task + 1]]])
            if len(own):
                yield task, own

    def due_rows(self, operator: QueryOperator, task: int, src: pa.Table) -> pa.Array:
        """Which due rows are of a task's buckets; all tasks number them in the same way."""
        numbers, tasks = self._of(src, operator)
        task_of_row = np.zeros(src.num_rows, np.int64)
        task_of_row[numbers[tasks >= 0] + src.num_rows] = tasks[tasks >= 0]
        return pa.array(task_of_row == task)


def first_row_number(task: int, split: int) -> int:
    """The number of a split's first row; row numbers increase through a batch."""
    if split >= 1 << SPLIT_BITS:
        raise StreamhouseError(
            f"a batch has more than {1 << SPLIT_BITS} splits of its source; choose a lookup "
            "strategy other than 'bucket'"
        )
    return (task << SPLIT_BITS | split) << ROW_BITS


def place_of(number: int) -> tuple[int, int, int]:
    """The task, the split, and the number within the split, of a row number."""
    task, row = number >> ROW_BITS + SPLIT_BITS, number & (1 << ROW_BITS) - 1
    return task, number >> ROW_BITS & (1 << SPLIT_BITS) - 1, row


def skips_shuffle(spec: QuerySpec, source: Source, start: Offset, end: Offset) -> bool:
    """Whether a batch of a shuffled query has few rows, and its dimension too; planner only.

    Pending rows are not counted.
    """
    assert spec.shuffle is not None
    lookup, table = spec.query.lookups[spec.shuffle], spec.lookups[spec.shuffle].follow()
    rows = source.rows(source_offset(start), source_offset(end)) if start else None
    least = CacheOptions.parse(table.options, lookup.options).shuffled_rows
    if rows is None or rows >= least:
        return False
    snapshot = int(end["dims"][lookup.relation])
    found = table.snapshots.find(snapshot) if snapshot else None
    known = 0 if not snapshot else None if found is None else found.total_record_count
    return known is not None and known <= _DIMENSION_ROWS
