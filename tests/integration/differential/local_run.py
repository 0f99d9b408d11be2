"""Runs continuous queries without Spark: the same planner, tasks and commits, in one process.

A batch costs some ten milliseconds instead of many more, so that more cases are played in the same
time. What Spark does is left out: no task is repeated, and no process dies.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import Mock, patch

import pyarrow as pa

from streamhouse.runtime.streaming import spark_job
from streamhouse.runtime.streaming.query import JobQuery
from streamhouse.runtime.streaming.spark_job import Record
from streamhouse.runtime.streaming.tasks.worker_resources import close_resources

_RUN = JobQuery._run


class LocalRecords:
    """What the tasks of a batch return, as much of an RDD as commits need."""

    def __init__(self, run: Callable[[], Iterable[Record]]) -> None:
        self._run = run

    def collect(self) -> list[Record]:
        return list(self._run())


def task_records(context: Any, job: bytes, tasks: Sequence[Any]) -> LocalRecords:
    """As `spark_job.task_records`, in this process."""
    return LocalRecords(lambda: spark_job._run(job, tasks))


def shuffled(
    sent: LocalRecords,
    count: int,
    run: Callable[[int, Iterator[Record]], Iterator[pa.RecordBatch]],
) -> LocalRecords:
    """As `spark_job.shuffled`, in this process."""

    def received() -> Iterator[Record]:
        by_task: dict[int, list[Record]] = defaultdict(list)
        for record in sent.collect():
            by_task[(record["task"] or 0) % count].append(record)
        for task in range(count):
            yield from spark_job.records(run(task, iter(by_task[task])))

    return LocalRecords(received)


def _run(query: JobQuery, spark: Any, name: str) -> None:
    """As `JobQuery._run`; closes what its tasks have opened."""
    try:
        _RUN(query, spark, name)
    finally:
        # Some of the core's objects must go in the thread that has made them.
        spec: Any = query.spec
        close_resources(spec.query_id)


@contextmanager
def without_spark() -> Iterator[None]:
    """Let the tasks of this process's queries run in the threads of these, without Spark."""
    base = "streamhouse.runtime"
    with ExitStack() as stack:
        for name, stand_in in {
            f"{base}.streaming.query.JobQuery._run": _run,
            f"{base}.streaming.query.task_records": task_records,
            f"{base}.streaming.shuffle.shuffle.shuffled": shuffled,
            f"{base}.views.query.shuffled": shuffled,
            f"{base}.spark.session.begin_session": lambda *given: None,
            f"{base}.spark.session.start_session": lambda *given: Mock(),
            f"{base}.spark.session.check_cluster": lambda *given: None,
            f"{base}.spark.session.executor_watch": lambda *given: None,
        }.items():
            stack.enter_context(patch(name, stand_in))
        yield
