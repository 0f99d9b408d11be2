"""Runs Spark jobs with few result rows, with a progress bar on a terminal."""

from __future__ import annotations

import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
_POLL_SECONDS = 0.2


def balanced(weights: Sequence[int], tasks: int) -> list[int]:
    """The task of each work item, so that all tasks have about the same total weight."""
    sums = [0] * tasks
    assignment = [0] * len(weights)
    for item in sorted(range(len(weights)), key=lambda index: -weights[index]):
        lightest = min(range(tasks), key=sums.__getitem__)
        assignment[item] = lightest
        sums[lightest] += weights[item] + 1
    return assignment


def slots(spark: SparkSession) -> int:
    """How many tasks Spark runs at the same time."""
    return int(spark.sparkContext.defaultParallelism)


def collected(frame: DataFrame, title: str, tasks: int) -> list[Any]:
    """All rows of a job's result; a terminal shows how many of its tasks are done."""
    if not sys.stderr.isatty():
        return list(frame.collect())
    return _watched(frame, title, tasks)


def _watched(frame: DataFrame, title: str, tasks: int) -> list[Any]:
    from pyspark import InheritableThread
    from rich.console import Console
    from rich.progress import Progress

    context = frame.sparkSession.sparkContext
    group = f"streamhouse-{uuid.uuid4()}"
    rows: list[Any] = []
    failed: list[BaseException] = []
    done = threading.Event()

    def run() -> None:
        try:
            context.setJobGroup(group, title)
            rows.extend(frame.collect())
        except BaseException as error:  # noqa: BLE001  # raised again below
            failed.append(error)
        finally:
            done.set()

    thread = InheritableThread(target=run, daemon=True)
    thread.start()
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=tasks)
        while not done.wait(_POLL_SECONDS):
            bar.update(task, completed=_completed(context, group, tasks))
    if failed:
        raise failed[0]
    return rows


def _completed(context: Any, group: str, tasks: int) -> int:
    tracker = context.statusTracker()
    count = 0
    for job in tracker.getJobIdsForGroup(group):
        info = tracker.getJobInfo(job)
        for stage in info.stageIds if info is not None else ():
            stage_info = tracker.getStageInfo(stage)
            count += stage_info.numCompletedTasks if stage_info is not None else 0
    return min(count, tasks)
