"""Runs continuous queries without Spark: the same planner, tasks and commits, in one process.

A batch costs some ten milliseconds instead of hundreds, so that more cases are played in the same
time. What Spark does is left out: its offset log is written as it would, but no task is repeated,
and no process dies.
"""

from __future__ import annotations

import json
import os
import pickle
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
from pyspark.sql.streaming.datasource import ReadLimit

from streamhouse.runtime.streaming.shuffle.blocks import join_task_count
from streamhouse.runtime.streaming.shuffle.shuffle import ShuffledBatch
from streamhouse.runtime.streaming.spark_data_source import SPEC, JobReader
from streamhouse.runtime.streaming.stream_run import StreamRun
from streamhouse.runtime.streaming.tasks import worker_resources
from streamhouse.source import Offset

_IDLE_S = 0.05


class LocalFrame:
    """The result of a batch's tasks, as much of a DataFrame as commits need."""

    def __init__(self, run: Callable[[], list[pa.RecordBatch]]) -> None:
        self.run = run

    def collect(self) -> list[dict[str, Any]]:
        return [row for batch in self.run() for row in batch.to_pylist()]


def shuffled(batch: ShuffledBatch, frame: LocalFrame) -> LocalFrame:
    """As `ShuffledBatch.of`, in this process."""

    def run() -> list[pa.RecordBatch]:
        by_task: dict[int, list[pa.RecordBatch]] = defaultdict(list)
        for read in frame.run():
            for number in range(read.num_rows):
                row = read.slice(number, 1)
                by_task[row.column("task")[0].as_py()].append(row)
        tasks = range(join_task_count(batch.spec))
        joined = [out for task in tasks for out in batch.join(task, iter(by_task[task]))]
        return list(batch.write(iter(joined))) if batch.spec.gathered else joined

    return LocalFrame(run)


class LocalRun(StreamRun):
    """A thread instead of a Spark streaming query."""

    def start(
        self,
        spark: Any,
        job: Any,
        name: str,
        checkpoint: Path,
        commit: Callable[[Any, int], None],
    ) -> None:
        (self.folder / SPEC).write_bytes(pickle.dumps(job))
        self._error: BaseException | None = None
        self._spec, self._checkpoint, self._commit = job, checkpoint, commit
        self._thread = threading.Thread(target=self._caught, name=name)
        self._thread.start()

    @property
    def started(self) -> bool:
        return getattr(self, "_thread", None) is not None

    def failure(self) -> str | None:
        return None if self._error is None else f"{type(self._error).__name__}: {self._error}"

    def request_stop(self) -> None:
        self._stopping.set()

    @property
    def has_stopped(self) -> bool:
        return not self.started or not self._thread.is_alive()

    def stop(self, timeout_s: float) -> bool:
        if not self.started:
            return False
        self.request_stop()
        self._thread.join(timeout_s)
        return True

    def _caught(self) -> None:
        try:
            self._loop()
        except BaseException as error:  # noqa: BLE001  # the pipeline asks for it
            self._error = error
        finally:
            # Some of the core's objects must go in the thread that has made them.
            opened = worker_resources._open.pop((os.getpid(), self._spec.query_id), None)
            if opened is not None:
                opened.close()

    def _loop(self) -> None:
        reader = JobReader(self.folder)
        limit: ReadLimit = reader.getDefaultReadLimit()
        try:
            for folder in ("offsets", "commits"):
                (self._checkpoint / folder).mkdir(exist_ok=True)
            # Spark, which may have run before, writes files of checksums, too.
            names = [path.name for path in (self._checkpoint / "commits").iterdir()]
            done = [int(name) for name in names if name.isdigit()]
            number = max(done, default=-1) + 1
            start: Offset = self._logged(number - 1) if number else {}
            while not self._stopping.is_set():
                # Spark logs an empty batch 0 too if the source is empty when the query starts.
                if (self._checkpoint / "offsets" / str(number)).exists():
                    end = self._logged(number)
                elif (end := reader.latestOffset(start, limit)) == start:
                    self._stopping.wait(_IDLE_S)
                    continue
                self._batch(reader, number, start, end)
                number, start = number + 1, end
        finally:
            reader.stop()

    def _batch(self, reader: JobReader, number: int, start: Offset, end: Offset) -> None:
        log = self._checkpoint / "offsets" / str(number)
        log.write_text(f"v1\n{{}}\n{json.dumps(end)}")

        def run() -> list[pa.RecordBatch]:
            return [
                batch
                for partition in reader.partitions(start, end)
                for batch in reader.read(partition)
            ]

        self._commit(LocalFrame(run), number)
        (self._checkpoint / "commits" / str(number)).write_text("v1\n{}")
        reader.commit(end)

    def _logged(self, number: int) -> Offset:
        text = (self._checkpoint / "offsets" / str(number)).read_text()
        offset: Offset = json.loads(text.splitlines()[-1])
        return offset


@contextmanager
def without_spark() -> Iterator[None]:
    """Let queries of this process run in threads instead of Spark."""
    base = "streamhouse.runtime"
    with ExitStack() as stack:
        for name, stand_in in {
            f"{base}.streaming.query.StreamRun": LocalRun,
            f"{base}.streaming.shuffle.shuffle.ShuffledBatch.of": shuffled,
            f"{base}.spark.session.begin_session": lambda *given: None,
            f"{base}.spark.session.start_session": lambda *given: None,
            f"{base}.spark.session.check_cluster": lambda *given: None,
            f"{base}.spark.session.executor_watch": lambda *given: None,
            f"{base}.streaming.spark_data_source._IDLE_WAIT_S": 0.0,
        }.items():
            stack.enter_context(patch(name, stand_in))
        yield
