"""The tasks of a sort: sample rows, divide them by ranges of a curve, write each range sorted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa

from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.write.table_writer import TableWriter, file_prefix
from streamhouse.procedures.sorting.space_filling_curves import Curve
from streamhouse.procedures.spark_job import collected, slots

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


SAMPLE = "sample BINARY, rows BIGINT"
RANGES = "range INT, rows BINARY"
WRITTEN = "message BINARY, rows BIGINT"
_BLOB_BYTES = 1 << 20
_IDENTIFIER = 2**63 - 1
"""The commit identifier of bounded writes, as Paimon's Java core sets it."""


@dataclass(frozen=True)
class Sample:
    """Task that reads `columns` of every `step`th row, and counts all rows."""

    warehouse: Mapping[str, str] = field(repr=False)
    table: str
    columns: Sequence[str]
    step: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        table = Warehouse(self.warehouse).table(self.table)
        schema = table.read_schema(self.columns)
        sampled, seen = [], 0
        for split in _splits(batches):
            for batch in table.read(self.columns, splits=[split]):
                indices = np.arange(-seen % self.step, batch.num_rows, self.step)
                sampled.append(batch.take(pa.array(indices)))
                seen += batch.num_rows
        rows = pa.Table.from_batches(sampled, schema)
        yield pa.record_batch(
            [pa.array([_packed(rows)], pa.binary()), pa.array([seen], pa.int64())],
            names=["sample", "rows"],
        )


@dataclass(frozen=True)
class RangePartitioner:
    """Task that assigns each row to a range.

    `cuts` has for each partition (the values of `keys`) the number of its first range, and the
    positions on the curve where its further ranges start; there are `count` ranges in all.
    """

    warehouse: Mapping[str, str] = field(repr=False)
    table: str
    keys: Sequence[str]
    curve: Curve
    cuts: Mapping[tuple[Any, ...], tuple[int, tuple[int, ...]]]
    count: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        table = Warehouse(self.warehouse).table(self.table)
        buffers = _RangeBuffers(table.arrow_schema)
        for split in _splits(batches):
            for batch in table.read(splits=[split]):
                if batch.num_rows:
                    for number, rows in self._by_range(batch):
                        yield from buffers.add(number, rows)
        yield from buffers.rest()

    def _by_range(self, batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        owner = tuple(batch.column(key)[0].as_py() for key in self.keys)
        first, bounds = self.cuts[owner]
        if not bounds:
            yield first, batch
            return
        starts = np.array(bounds, dtype=np.uint64)
        numbers = np.searchsorted(starts, self.curve.positions(batch), side="right")
        order = np.argsort(numbers, kind="stable")
        range_numbers, offsets = np.unique(numbers[order], return_index=True)
        ends = [*offsets[1:].tolist(), len(order)]
        for number, start, end in zip(range_numbers.tolist(), offsets.tolist(), ends, strict=True):
            yield first + number, batch.take(pa.array(order[start:end]))


class _RangeBuffers:
    """Buffers the rows of each range until they fill a row of the shuffle (1 MiB)."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._rows: dict[int, list[pa.RecordBatch]] = {}
        self._bytes: dict[int, int] = {}

    def add(self, number: int, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        self._rows.setdefault(number, []).append(rows)
        self._bytes[number] = self._bytes.get(number, 0) + rows.nbytes
        if self._bytes[number] >= _BLOB_BYTES:
            yield self._blob(number)

    def rest(self) -> Iterator[pa.RecordBatch]:
        for number in list(self._rows):
            yield self._blob(number)

    def _blob(self, number: int) -> pa.RecordBatch:
        self._bytes.pop(number)
        rows = pa.Table.from_batches(self._rows.pop(number), self._schema)
        return pa.record_batch(
            [pa.array([number], pa.int32()), pa.array([_packed(rows)], pa.binary())],
            names=["range", "rows"],
        )


@dataclass(frozen=True)
class Write:
    """Task that sorts the rows of each range and writes them; the driver commits."""

    warehouse: Mapping[str, str] = field(repr=False)
    table: str
    curve: Curve
    user: str
    options: Mapping[str, str]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        ranges: dict[int, list[pa.Table]] = {}
        for batch in batches:
            numbers, blobs = batch.column("range").to_pylist(), batch.column("rows").to_pylist()
            for number, blob in zip(numbers, blobs, strict=True):
                ranges.setdefault(number, []).append(pa.ipc.open_stream(blob).read_all())
        for number in sorted(ranges):
            yield self._written(pa.concat_tables(ranges.pop(number)))

    def _written(self, rows: pa.Table) -> pa.RecordBatch:
        writer = TableWriter(
            self.warehouse, self.table, self.user, file_prefix(self.user), self.options
        )
        batches = self.curve.sorted(rows).to_batches(max_chunksize=65_536)
        messages = writer.write_all(batches, _IDENTIFIER)
        # The first message has the number of rows, which the driver adds up.
        counts = [len(rows)] + [0] * (len(messages) - 1)
        return pa.record_batch(
            [pa.array(messages, pa.binary()), pa.array(counts[: len(messages)], pa.int64())],
            names=["message", "rows"],
        )


def _splits(batches: Iterator[pa.RecordBatch]) -> Iterator[bytes]:
    for batch in batches:
        yield from batch.column("split").to_pylist()


def _packed(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(
        sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")
    ) as out:
        out.write_table(rows)
    return bytes(sink.getvalue())


class SortRunner(Protocol):
    """Runs the steps of a sort over the splits of a table; returns the rows of their results."""

    def sampled(self, splits: Sequence[bytes], sample: Sample) -> Sequence[Any]: ...

    def sort(
        self, splits: Sequence[bytes], partitioner: RangePartitioner, write: Write
    ) -> Sequence[Any]: ...


class LocalSort:
    """Sorts in this process, with all rows in memory: for tables too small for a Spark job."""

    def sampled(self, splits: Sequence[bytes], sample: Sample) -> Sequence[Mapping[str, Any]]:
        return _rows(sample(_split_batches(splits)))

    def sort(
        self, splits: Sequence[bytes], partitioner: RangePartitioner, write: Write
    ) -> Sequence[Mapping[str, Any]]:
        return _rows(write(partitioner(_split_batches(splits))))


@dataclass(frozen=True)
class SparkSort:
    """Sorts the table `name` in a Spark job.

    `parallelism`: tasks that read, and the most that write; None: up to four per slot that read,
    and one per range that writes.
    """

    spark: SparkSession
    name: str
    parallelism: int | None

    def sampled(self, splits: Sequence[bytes], sample: Sample) -> Sequence[Any]:
        tasks = self._tasks(splits)
        result = self._frame(splits, tasks).mapInArrow(sample, SAMPLE)
        return collected(result, f"sample {self.name}", tasks)

    def sort(
        self, splits: Sequence[bytes], partitioner: RangePartitioner, write: Write
    ) -> Sequence[Any]:
        tasks = self.parallelism or self._tasks(splits)
        writers = (
            partitioner.count
            if self.parallelism is None
            else min(partitioner.count, self.parallelism)
        )
        frame = self._frame(splits, tasks).mapInArrow(partitioner, RANGES)
        result = frame.repartitionById(writers, "range").mapInArrow(write, WRITTEN)
        return collected(result, f"sort {self.name}", tasks + writers)

    def _tasks(self, splits: Sequence[bytes]) -> int:
        return max(1, min(len(splits), 4 * slots(self.spark)))

    def _frame(self, splits: Sequence[bytes], tasks: int) -> Any:
        data = [(index % tasks, split) for index, split in enumerate(splits)]
        frame = self.spark.createDataFrame(data, "task INT, split BINARY")
        return frame.repartitionById(tasks, "task")


def _split_batches(splits: Sequence[bytes]) -> Iterator[pa.RecordBatch]:
    yield pa.record_batch({"split": pa.array(splits, pa.binary())})


def _rows(batches: Iterable[pa.RecordBatch]) -> list[Mapping[str, Any]]:
    return [row for batch in batches for row in batch.to_pylist()]
