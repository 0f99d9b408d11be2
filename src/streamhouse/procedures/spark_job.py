"""Runs Spark jobs with few result rows, with a progress bar on a terminal."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

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


def collected(frame: DataFrame, title: str, tasks: int) -> list[Any]:
    """All rows of a job's result; a terminal shows how many of its tasks are done."""
    if not sys.stderr.isatty():
        return list(frame.collect())
    return _watched(frame, title, tasks)


def _watched(frame: DataFrame, title: str, tasks: int) -> list[Any]:
    from rich.console import Console
    from rich.progress import Progress

    context = frame.sparkSession.sparkContext
    group = f"streamhouse-{uuid.uuid4()}"

    def collect() -> list[Any]:
        context.setJobGroup(group, title)
        return list(frame.collect())

    with (
        ThreadPoolExecutor(1) as pool,
        Progress(console=Console(stderr=True), transient=True) as bar,
    ):
        job, task = pool.submit(collect), bar.add_task(title, total=tasks)
        try:
            while not wait([job], _POLL_SECONDS).done:
                bar.update(task, completed=_completed(context, group, tasks))
        except BaseException:
            # Else the pool would wait for the job.
            context.cancelJobGroup(group)
            raise
        return job.result()


def _completed(context: Any, group: str, tasks: int) -> int:
    tracker = context.statusTracker()
    count = 0
    for job in tracker.getJobIdsForGroup(group):
        info = tracker.getJobInfo(job)
        for stage in info.stageIds if info is not None else ():
            stage_info = tracker.getStageInfo(stage)
            count += stage_info.numCompletedTasks if stage_info is not None else 0
    return min(count, tasks)
