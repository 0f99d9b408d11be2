"""The work of a compaction by the Java core, on the driver or in the tasks of a Spark job."""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from streamhouse.paimon.java.bucket_compaction import compacted, serialised
from streamhouse.paimon.java.jars import JAR_VARIABLE, paimon_jar
from streamhouse.paimon.java.sidecar import Sidecar
from streamhouse.procedures.context import COMMIT_USER

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext


def send_jar(context: SparkContext) -> str | None:
    """Let Spark send the jar to executors on other hosts; returns its file name there."""
    master = str(context.master)
    if master.startswith("local") and not master.startswith("local-cluster"):
        return None
    jar = paimon_jar()
    context.addFile(os.fspath(jar))
    return jar.name


def use_sent_jar(name: str | None) -> None:
    """On an executor: use the jar that was sent under this name, unless the environment has one."""
    if name is None or JAR_VARIABLE in os.environ:
        return
    from pyspark import SparkFiles

    os.environ[JAR_VARIABLE] = SparkFiles.get(name)


_NICE = 5
_POLL_SECONDS = 0.2


@dataclass(frozen=True)
class CompactionTask:
    """Runs the tasks of a compaction; has the settings that they share.

    `append`: the payloads are the Java core's tasks for an append table; otherwise they are pairs
    of partition and bucket. `table_options` override the table's own. `jar`: see `send_jar`.
    """

    warehouse: Mapping[str, str] = field(repr=False)
    table: str
    table_options: Mapping[str, str | None]
    append: bool
    full: bool
    jar: str | None = None

    def run(self, sidecar: Sidecar, payloads: Sequence[tuple[bytes, int]]) -> list[bytes]:
        """Compact the buckets; returns serialised commit messages, which the driver commits."""
        work = self._append if self.append else self._buckets
        return sidecar.call(
            self.table, lambda jvm, table: work(jvm, table, payloads), self.table_options
        )

    def __call__(self, payloads: Sequence[tuple[bytes, int]]) -> list[bytes]:
        """Run as a task on an executor."""
        use_sent_jar(self.jar)
        with Sidecar(self.warehouse, nice=_NICE) as sidecar:
            return self.run(sidecar, payloads)

    def _buckets(self, jvm: Any, table: Any, payloads: Sequence[tuple[bytes, int]]) -> list[bytes]:
        deserialize = jvm.org.apache.paimon.utils.SerializationUtils.deserializeBinaryRow
        buckets = [(deserialize(partition), bucket) for partition, bucket in payloads]
        messages = compacted(jvm, table, buckets, self.full, COMMIT_USER)
        return serialised(jvm, messages)

    def _append(self, jvm: Any, table: Any, payloads: Sequence[tuple[bytes, int]]) -> list[bytes]:
        serializer = jvm.org.apache.paimon.table.sink.AppendCompactTaskSerializer()
        version = serializer.getVersion()
        with closing(table.store().newWrite(COMMIT_USER)) as write:
            tasks = [serializer.deserialize(version, payload) for payload, _ in payloads]
            return serialised(jvm, [task.doCompact(table, write) for task in tasks])


def balanced(weights: Sequence[int], tasks: int) -> list[int]:
    """The task of each work item, so that all tasks have about the same total weight."""
    sums = [0] * tasks
    assignment = [0] * len(weights)
    for item in sorted(range(len(weights)), key=lambda index: -weights[index]):
        lightest = min(range(tasks), key=sums.__getitem__)
        assignment[item] = lightest
        sums[lightest] += weights[item] + 1
    return assignment


def collected(result: RDD[bytes], title: str, tasks: int) -> list[bytes]:
    """What the tasks of a job return; a terminal shows how many of its tasks are done."""
    if not sys.stderr.isatty():
        return result.collect()
    return _watched(result, title, tasks)


def _watched(result: RDD[bytes], title: str, tasks: int) -> list[bytes]:
    from rich.console import Console
    from rich.progress import Progress

    context = result.context
    group = f"streamhouse-{uuid.uuid4()}"

    def collect() -> list[bytes]:
        context.setJobGroup(group, title)
        return result.collect()

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
