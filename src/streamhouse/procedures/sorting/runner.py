"""Runs the steps of a sort in this process, or in the tasks of a Spark job."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from streamhouse.procedures.sorting.shuffle import (
    RANGES,
    SAMPLE,
    WRITTEN,
    RangePartitioner,
    Sample,
    Write,
)
from streamhouse.procedures.spark_job import collected, slots

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
