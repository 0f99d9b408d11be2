"""The tasks of a micro-batch as a Spark job: Spark distributes them, and runs lost ones again.

A task reads, computes and writes, and returns only commit messages. So a batch is one small job of
an RDD, however much it reads, and its rows never pass the JVM.
"""

import gc
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pkgutil import resolve_name
from typing import Any, Protocol, TypeAlias

import pyarrow as pa
from pyspark import RDD, SparkContext, TaskContext
from pyspark.serializers import BatchedSerializer, CPickleSerializer, pack_long

from streamhouse.paimon.storage.object_store.store_retries import retried_task

Record: TypeAlias = Mapping[str, Any]
"""A row of `task_protocol.RESULT`."""
_PICKLER: Any = CPickleSerializer()
_begun: set[int] = set()
"""The jobs of which this process has run a task."""


class Job(Protocol):
    """The specification of a query, picklable; `max_rows`: how many rows a batch may have."""

    @property
    def max_rows(self) -> int | None: ...

    # By name: the driver's planner does not need what tasks import, nor the reverse.
    @property
    def planner(self) -> str:
        """`module:name` of what makes the `Planner` of a job and its folder, on the driver."""

    @property
    def task(self) -> str:
        """`module:name` of what runs a task of a job, on executors; yields rows of `RESULT`."""

    @property
    def retried_in(self) -> Mapping[str, str]:
        """The options of the warehouse whose temporary errors let a task run again."""


def task_records(context: SparkContext, job: bytes, tasks: Sequence[Any]) -> "RDD[Record]":
    """What the tasks of a batch return; `job` is the pickled `Job`."""
    if not tasks:
        return context.emptyRDD()
    return context.parallelize(tasks, len(tasks)).mapPartitions(partial(_run, job))


def _run(pickled: bytes, tasks: Iterable[Any]) -> Iterator[Record]:
    job: Job = pickle.loads(pickled)
    run = resolve_name(job.task)
    for task in tasks:
        yield from records(retried_task(job.retried_in, partial(run, job, task)))
    if hash(pickled) not in _begun:
        _begun.add(hash(pickled))
        # PySpark collects garbage after each task, and what the first one imported and planned
        # lives on: visiting it took a fifth of the time of small tasks.
        gc.collect()
        gc.freeze()


def records(batches: Iterable[pa.RecordBatch]) -> Iterator[Record]:
    """The rows of record batches."""
    for batch in batches:
        yield from batch.to_pylist()


def shuffled(
    sent: "RDD[Record]",
    count: int,
    run: Callable[[int, Iterator[Record]], Iterator[pa.RecordBatch]],
) -> "RDD[Record]":
    """Run `count` tasks on the records that are sent to them, each to the task number `task`, or 0.

    Spark shuffles pickled records. `RDD.partitionBy` would collect thousands of them in the memory
    of the sender, and a record may have a block of many rows.
    """
    context: Any = sent.context
    keyed: Any = sent.mapPartitions(_keyed, preservesPartitioning=True)
    keyed._bypass_serializer = True
    java = context._jvm
    pairs = java.PairwiseRDD(keyed._jrdd.rdd()).asJavaPairRDD()
    partitioner = java.PythonPartitioner(count, id(run))
    received = java.PythonRDD.valueOfPair(pairs.partitionBy(partitioner))
    batches: Any = BatchedSerializer(_PICKLER)  # type: ignore[no-untyped-call]
    by_task: RDD[Record] = RDD(received, context, batches)
    return by_task.mapPartitions(partial(_run_received, run))


def _keyed(sent: Iterable[Record]) -> Iterator[bytes]:
    for record in sent:
        yield pack_long(record["task"] or 0)  # type: ignore[no-untyped-call]
        yield _PICKLER.dumps([record])


def _run_received(
    run: Callable[[int, Iterator[Record]], Iterator[pa.RecordBatch]], received: Iterable[Record]
) -> Iterator[Record]:
    context = TaskContext.get()
    assert context is not None
    return records(run(context.partitionId(), iter(received)))
