"""Runs continuous queries without Spark: the same planner, tasks and commits, in one process.

A batch costs some ten milliseconds instead of hundreds, so that more cases are played in the same
time. What Spark does is left out: its offset log is written as it would, but no task is repeated,
and no process dies.
"""

from __future__ import annotations

import json
import threading
import time
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
from streamhouse.runtime.streaming.spark_data_source import STOPPED, JobReader
from streamhouse.runtime.streaming.tasks.worker_resources import close_resources
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


class LocalStream:
    """A thread instead of a Spark streaming query."""

    def __init__(
        self,
        spark: Any,
        folder: Path,
        name: str,
        checkpoint: Path,
        process: Callable[[Any, int], None],
    ) -> None:
        self._folder, self._checkpoint, self._process = folder, checkpoint, process
        self._error: str | None = None
        self._thread = threading.Thread(target=self._caught, name=name)
        self._thread.start()

    @property
    def isActive(self) -> bool:
        return self._thread.is_alive()

    def exception(self) -> str | None:
        return self._error

    def stop(self) -> None:
        self._thread.join()

    def _caught(self) -> None:
        reader = JobReader(self._folder)
        try:
            self._loop(reader)
        except BaseException as error:  # noqa: BLE001  # the pipeline asks for it
            self._error = f"{type(error).__name__}: {error}"
        finally:
            reader.stop()
            # Some of the core's objects must go in the thread that has made them.
            spec: Any = reader._spec()
            close_resources(spec.query_id)

    def _loop(self, reader: JobReader) -> None:
        limit: ReadLimit = reader.getDefaultReadLimit()
        for folder in ("offsets", "commits"):
            (self._checkpoint / folder).mkdir(exist_ok=True)
        # Spark, which may have run before, writes files of checksums, too.
        names = [path.name for path in (self._checkpoint / "commits").iterdir()]
        done = [int(name) for name in names if name.isdigit()]
        number = max(done, default=-1) + 1
        start: Offset = self._logged(number - 1) if number else {}
        while not (self._folder / STOPPED).exists():
            # Spark logs an empty batch 0 too if the source is empty when the query starts.
            if (self._checkpoint / "offsets" / str(number)).exists():
                end = self._logged(number)
            elif (end := reader.latestOffset(start, limit)) == start:
                time.sleep(_IDLE_S)
                continue
            self._batch(reader, number, start, end)
            number, start = number + 1, end

    def _batch(self, reader: JobReader, number: int, start: Offset, end: Offset) -> None:
        log = self._checkpoint / "offsets" / str(number)
        log.write_text(f"v1\n{{}}\n{json.dumps(end)}")

        def run() -> list[pa.RecordBatch]:
            return [
                batch
                for partition in reader.partitions(start, end)
                for batch in reader.read(partition)
            ]

        self._process(LocalFrame(run), number)
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
            f"{base}.streaming.query.started_stream": LocalStream,
            f"{base}.streaming.shuffle.shuffle.ShuffledBatch.of": shuffled,
            f"{base}.spark.session.begin_session": lambda *given: None,
            f"{base}.spark.session.start_session": lambda *given: None,
            f"{base}.spark.session.check_cluster": lambda *given: None,
            f"{base}.spark.session.executor_watch": lambda *given: None,
            f"{base}.streaming.spark_data_source._IDLE_WAIT_S": 0.0,
        }.items():
            stack.enter_context(patch(name, stand_in))
        yield
