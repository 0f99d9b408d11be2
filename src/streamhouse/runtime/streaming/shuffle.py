"""Bucket shuffle: sends the rows of a batch to tasks by the buckets of one dimension.

It has two or three steps; small batches skip it (`runtime.streaming.small_batches`). First, tasks
read the source and send each row, in Arrow blocks, to the task that holds the bucket of its key
(rows without a key go to any task). Second, that task joins the row. If the order of rows does not
matter, it also writes the result. Else a last task sorts all rows into the order of the source and
writes them, so that the changes of a key keep their order.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.arrow_batches import gathered
from streamhouse.errors import StreamhouseError
from streamhouse.lookup.strategies.bucket import BucketKey, bucket_key
from streamhouse.paimon.storage.object_store.store_retries import retried, retried_task
from streamhouse.runtime.kernel import ROW, numbered, only
from streamhouse.runtime.query_spec import QuerySpec
from streamhouse.runtime.streaming.planner import TaskInput
from streamhouse.runtime.streaming.task import (
    CHUNK_ROWS,
    RESULT,
    Task,
    chunks,
    kernel_for,
    sources_for,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BLOCKS = pa.schema(
    [
        pa.field("part", pa.int32()),
        pa.field("place", pa.int64()),
        pa.field("block", pa.binary()),
        pa.field("task_report", pa.string()),
        *RESULT,
    ]
)
"""The output of read tasks: blocks of source rows for task `part`, or JSON for this task in
`task_report` (offsets and number of rows); for small batches, results for the driver (`RESULT`)."""
_RESULT = "table STRING, message BINARY, report STRING"
_JOINED = f"{_RESULT}, block BINARY"
_JOINED_SCHEMA = RESULT.append(pa.field("block", pa.binary()))
_ROW_BITS, _PIECE_BITS = 36, 14
_JOIN_ROWS = 8 * CHUNK_ROWS


def shuffled(frame: DataFrame, spec: QuerySpec) -> DataFrame:
    """Join, and write, the blocks of a batch; returns a frame of `RESULT` rows."""
    count = parts(spec)
    placed = frame.repartitionById(count, frame["part"])
    if not spec.gathered:
        return placed.mapInArrow(JoinStep(spec), _RESULT)
    joined = placed.mapInArrow(JoinStep(spec), _JOINED)
    return joined.coalesce(1).mapInArrow(GatherStep(spec), _RESULT)


def parts(spec: QuerySpec) -> int:
    """The number of join tasks."""
    assert spec.shuffle is not None
    return max(1, min(spec.parallelism, spec.choices[spec.shuffle].buckets))


class ReadTask:
    """Reads the splits of a `TaskInput` and yields blocks; executors."""

    def __init__(self, spec: QuerySpec, task: TaskInput) -> None:
        assert spec.shuffle is not None
        self._spec, self._task = spec, task
        self._count = parts(spec)
        self._key = _key(spec)
        sql = spec.query.lookups[spec.shuffle].row_keys_sql
        assert sql is not None
        self._sql = sql
        self._kernel = kernel_for(spec)

    def run(self) -> Iterator[pa.RecordBatch]:
        self._kernel.bind(self._task.now_ms, {})
        sources = sources_for(self._spec)
        if self._spec.retry is not None:
            # Rows that may become pending need all columns.
            sources = [source.open() for source in self._spec.sources]
        rows = 0
        for number, piece in enumerate(self._task.pieces):
            first = _first(self._task.index, number)
            for chunk in chunks(sources[piece.source].read(piece.partition)):
                yield from self._blocks(numbered(chunk, first))
                first += chunk.num_rows
                rows += chunk.num_rows
        if self._spec.retry is not None:
            for source in sources:
                source.close()
        report = json.dumps({"start": self._task.start, "end": self._task.end, "rows": rows})
        anybody = self._task.index % self._count
        nothing = json.dumps({"start": self._task.start, "end": self._task.end, "rows": 0})
        for part in range(self._count):
            yield _block(part, -1, None, report if part == anybody else nothing)

    def _blocks(self, src: pa.Table) -> Iterator[pa.RecordBatch]:
        keys = self._kernel.keys(self._sql, src)
        part = self._key.tasks(keys, self._count)
        part[part < 0] = self._task.index % self._count
        numbers = keys.column(ROW).to_numpy()
        # NumPy's stable sort is a radix sort for 16-bit integers, and slower for longer ones.
        part = part.astype(np.int16 if self._count < 1 << 15 else np.int64)
        order = np.argsort(part, kind="stable")
        bounds = np.searchsorted(part[order], np.arange(self._count + 1))
        first = src.column(ROW)[0].as_py()
        for task in range(self._count):
            mine = np.sort(numbers[order[bounds[task] : bounds[task + 1]]])
            if len(mine):
                rows = src.take(pa.array(mine - first))
                if not _numbers_matter(self._spec):
                    rows = rows.drop_columns([ROW])
                yield _block(task, int(mine[0]), _packed(rows), None)


class WholeTask(Task):
    """Reads, joins and writes a small batch in one task, with all buckets; executors."""

    def __init__(self, spec: QuerySpec, task: TaskInput) -> None:
        super().__init__(replace(spec, gathered=False), task)

    def run(self) -> Iterator[pa.RecordBatch]:
        """Rows of `BLOCKS`."""
        self._dimensions.take(0, 1)
        for batch in super().run():
            nothing = [pa.nulls(batch.num_rows, field.type) for field in BLOCKS]
            columns = [*nothing[: -len(RESULT)], *batch.columns]
            yield pa.RecordBatch.from_arrays(columns, schema=BLOCKS)


@dataclass(frozen=True)
class JoinStep:
    """Runs a `JoinTask` on the blocks of one task; picklable."""

    spec: QuerySpec

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        blocks: list[tuple[int, pa.Table]] = []
        reports: list[dict[str, Any]] = []
        part = 0
        for batch in batches:
            for row in batch.to_pylist():
                part = row["part"]
                if row["task_report"] is not None:
                    reports.append(json.loads(row["task_report"]))
                else:
                    blocks.append((row["place"], _unpacked(row["block"])))
        if reports:
            blocks.sort(key=lambda one: one[0])
            end = reports[0]["end"]
            task = TaskInput(part, reports[0]["start"], end, (), due=end["pending"] > 0)
            rows = sum(one["rows"] for one in reports)
            tables = [table for _, table in blocks]
            warehouse = self.spec.target.warehouse
            yield from retried_task(
                warehouse, lambda: JoinTask(self.spec, task, rows).joined(tables)
            )


class JoinTask(Task):
    """Joins the source rows that were sent to it, and writes the result unless it is gathered."""

    def __init__(self, spec: QuerySpec, task: TaskInput, rows: int) -> None:
        super().__init__(spec, task)
        self._out.read = rows
        self._count = parts(spec)

    def joined(self, blocks: list[pa.Table]) -> Iterator[pa.RecordBatch]:
        """Yields rows of `RESULT`; if `gathered`, with a column `block` of joined rows."""
        gathered = self._spec.gathered
        try:
            self._join_all(blocks)
            messages = self._write_waiting() if gathered else self._write()
        finally:
            self._close()
        result = self._result(messages)
        if not gathered:
            yield result
            return
        nothing = pa.nulls(result.num_rows, pa.binary())
        yield pa.RecordBatch.from_arrays([*result.columns, nothing], schema=_JOINED_SCHEMA)
        for table in self._out.rows:
            if table.num_rows:
                yield pa.RecordBatch.from_pylist([{"block": _packed(table)}], _JOINED_SCHEMA)

    def _join_all(self, blocks: list[pa.Table]) -> None:
        self._dimensions.take(self._task.index, self._count)
        self._bind()
        if self._task.due:
            self._retry()
        for src in _together(blocks):
            if ROW not in src.column_names:
                src = numbered(src, 0)
            misses = self._joined(src)
            if len(misses):
                self._keep(only(src, misses))

    def _due_rows(self) -> tuple[pa.Table, pa.Table]:
        """The due pending rows of this task's buckets.

        All tasks number them in the same way, with negative numbers, before the source rows.
        """
        due, src = super()._due_rows()
        spec = self._spec
        assert spec.shuffle is not None
        src = src.set_column(
            src.column_names.index(ROW), ROW, pc.subtract(src.column(ROW), due.num_rows)
        )
        sql = spec.query.lookups[spec.shuffle].row_keys_sql
        assert sql is not None
        keys = self._kernel.keys(sql, src)
        part = _key(spec).tasks(keys, self._count)
        places = keys.column(ROW).to_numpy() + due.num_rows
        whose = np.zeros(due.num_rows, np.int64)
        whose[places[part >= 0]] = part[part >= 0]
        mine = pa.array(whose == self._task.index)
        return due.filter(mine), src.filter(mine)

    def _keep(self, src: pa.Table) -> None:
        """Collect rows without a match for the pending table."""
        ids = [
            f"{self._task.batch:012d}-{number >> (_ROW_BITS + _PIECE_BITS):04d}-"
            f"{(number >> _ROW_BITS) & ((1 << _PIECE_BITS) - 1):06d}-"
            f"{number & ((1 << _ROW_BITS) - 1):012d}"
            for number in src.column(ROW).to_pylist()
        ]
        attempts = pa.array(np.zeros(len(ids), np.int32))
        self._put(src.drop_columns([ROW]), pa.array(ids), attempts, "+I")
        self._out.missed += len(ids)


@dataclass(frozen=True)
class GatherStep:
    """Runs a `GatherTask` on the joined rows of a batch; picklable."""

    spec: QuerySpec

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        blocks: list[pa.Table] = []
        report: dict[str, Any] | None = None
        for batch in batches:
            for row in batch.to_pylist():
                if row["block"] is not None:
                    blocks.append(_unpacked(row["block"]))
                elif row["report"] is not None:
                    report = json.loads(row["report"])
            passed = batch.filter(pc.is_null(batch.column("block")))
            yield pa.RecordBatch.from_arrays(passed.columns[:3], schema=RESULT)
        if report is not None:
            task = TaskInput(0, report["start"], report["end"], (), due=False)
            yield retried(lambda: GatherTask(self.spec, task).write(blocks))


class GatherTask(Task):
    """Sorts the joined rows of a whole batch and writes them."""

    def _loaded(self) -> list[str] | None:
        return None

    def write(self, blocks: list[pa.Table]) -> pa.RecordBatch:
        """Rows of `RESULT`."""
        rows = self._kernel.combine(blocks)
        if ROW in rows.column_names:
            rows = rows.take(pc.sort_indices(rows.column(ROW))).drop_columns([ROW])
        return self._result(self._write_target(rows))


def _numbers_matter(spec: QuerySpec) -> bool:
    """Whether rows must keep their numbers: for sorting, or for the ids of pending rows."""
    return spec.gathered or spec.retry is not None


def _key(spec: QuerySpec) -> BucketKey:
    """The bucket function, with the number of buckets at the start of the query."""
    assert spec.shuffle is not None
    dimension = spec.dimensions()[spec.shuffle]
    found = bucket_key(dimension, dimension.open())
    if not isinstance(found, BucketKey):
        raise StreamhouseError(f"{found} any more; start the query again")
    return BucketKey(found.fields, spec.choices[spec.shuffle].buckets)


def _first(index: int, number: int) -> int:
    """The number of a split's first row; row numbers increase through a batch."""
    if number >= 1 << _PIECE_BITS:
        raise StreamhouseError(
            f"a batch has more than {1 << _PIECE_BITS} pieces of its source; take another lookup "
            "strategy than 'bucket'"
        )
    return (index << _PIECE_BITS | number) << _ROW_BITS


def _together(blocks: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Concatenate blocks, since each join scans all rows of the dimension."""
    for group in gathered(blocks, _JOIN_ROWS):
        yield pa.concat_tables(group)


def _block(part: int, place: int, block: bytes | None, report: str | None) -> pa.RecordBatch:
    row = {"part": part, "place": place, "block": block, "task_report": report}
    return pa.RecordBatch.from_pylist([row], schema=BLOCKS)


def _packed(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as out:
        out.write_table(rows)
    return bytes(sink.getvalue())


def _unpacked(block: bytes) -> pa.Table:
    return pa.ipc.open_stream(block).read_all()
