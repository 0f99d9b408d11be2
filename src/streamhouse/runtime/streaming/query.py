"""A query of a pipeline: a thread of the driver plans its micro-batches and commits them.

Each batch is a job of Spark. Its offset is logged before it runs, so a batch that was interrupted
at any point runs again with the same input.
"""

import pickle
import shutil
import threading
import time
import traceback
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from pkgutil import resolve_name

from pyspark import RDD, InheritableThread, SparkContext

from streamhouse.connectors.specs import SourceSpec
from streamhouse.errors import StreamhouseError
from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.paimon.maintenance.backpressure import Backpressure
from streamhouse.paimon.readers import woken_by
from streamhouse.paimon.storage.object_store.store_retries import retried
from streamhouse.runtime.monitoring.metrics import CountedBatch, QueryMetrics
from streamhouse.runtime.query_description import Planner, QueryDescription, QueryProgress
from streamhouse.runtime.query_source import source_offset
from streamhouse.runtime.state.checkpoint import Checkpoint
from streamhouse.runtime.state.checkpoint_registry import register_checkpoint
from streamhouse.runtime.streaming.pacing import Pacing, Role
from streamhouse.runtime.streaming.spark_job import Job, Record, task_records
from streamhouse.source import Offset

_CANCEL_S = 20.0


class QueryFailed(Exception):
    """A continuous query has failed; the text names the error, and that of its task if it has."""

    def __init__(self, text: str, query: str) -> None:
        super().__init__(text)
        self.query = query
        """The `part` of the failed query's description."""


@contextmanager
def acquired(checkpoint: Checkpoint) -> Iterator[None]:
    """Lock a checkpoint for a query; releases it again if the query cannot be made."""
    checkpoint.acquire()
    try:
        yield
    except BaseException:
        checkpoint.release()
        raise


class JobQuery(ABC):
    """Runs a `Job` with a checkpoint, as a query of a `Pipeline`; on the driver.

    A batch may run again with the same input, so `commit` must be exactly-once.
    """

    spec: Job
    """It plans and runs the tasks."""
    pacing = Pacing(1)
    role = Role.SOURCE
    pressure: Backpressure | None = None
    """Waits after a batch for compaction that is behind; None: it does not."""

    def __init__(self, checkpoint: Checkpoint, description: QueryDescription) -> None:
        """`checkpoint` is locked; see `acquired`."""
        self.description = description
        self.metrics = QueryMetrics()
        logs = checkpoint.logs
        logs.create()
        replayed = logs.last_logged() <= logs.last_committed()
        self.progress = QueryProgress(logs.last_offset(), replayed)
        self.checkpoint = checkpoint
        register_checkpoint(description.address.warehouse, checkpoint)
        self.run_folder = checkpoint.run_folder()
        """The folder of this run, for files that its tasks and its driver exchange."""
        self._stopping = threading.Event()
        self._woken = threading.Event()
        self._job_group = uuid.uuid4().hex
        self._thread: threading.Thread | None = None
        self._failure: QueryFailed | None = None

    # -- what differs between the kinds of queries

    @property
    @abstractmethod
    def targets(self) -> list[TableAddress]:
        """The Paimon tables that it is there to write."""

    @property
    def tables(self) -> list[str]:
        """The names of all tables that it writes, in its target's warehouse."""
        return [target.identifier for target in self.targets]

    @abstractmethod
    def prepare(self) -> None:
        """Check the sources, create what is missing, clean up after a crash; needs no Spark."""

    @abstractmethod
    def commit(self, sent: RDD[Record]) -> CountedBatch | None:
        """Run the tasks of a batch, and commit what they wrote; None if there were none."""

    @abstractmethod
    def tick(self) -> None:
        """Called often while the query runs: move consumers if due, check what runs beside."""

    def pause(self, took_s: float) -> None:
        """Pause after a batch of `took_s` seconds, at most until the query is to stop."""
        return

    def stopped(self) -> None:
        """Called once the query, which had been started, begins no further batch."""
        return

    def release(self) -> None:
        """Release what the query holds besides its progress and checkpoint; called in any case."""
        return

    def use_cluster(self) -> None:
        """Prepare for tasks on other hosts than the driver's; call it before `start`."""
        return

    # -- what is the same: a `SharingSource`

    @property
    def source_spec(self) -> SourceSpec | None:
        """The source, if a pipeline can share it."""
        return self.description.source

    @property
    def checkpoint_path(self) -> Path:
        """The folder of the checkpoint."""
        return self.checkpoint.path

    @property
    def last_offset(self) -> Offset:
        """The source's offset after the last committed batch; `{}` before the first."""
        return source_offset(self.progress.last_offset)

    def use_shared(self, folder: Path) -> None:
        """Let the source read the folder that a shared reader fills; call it before `start`."""
        return

    @property
    def started(self) -> bool:
        """Whether the query has been started, and not stopped since."""
        return self._thread is not None

    def start(self, spark: SparkContext) -> None:
        """Start the query; call `prepare` first.

        A batch begins as soon as the previous one has ended and there is something to read, or
        after `pause`. There is no trigger interval.
        """
        self.metrics.begin()
        name = f"{self.description.pipeline}: {self.description.part}"
        run = partial(self._run, spark, name)
        self._spark, self._thread = spark, InheritableThread(target=run, name=name, daemon=True)
        self._thread.start()

    def _run(self, spark: SparkContext, name: str) -> None:
        try:
            spark.setJobGroup(self._job_group, name)
            sources = [table.identifier for table in self.description.source_tables]
            with (
                closing(resolve_name(self.spec.planner)(self.spec, self.run_folder)) as planner,
                woken_by(sources, self._woken),
            ):
                self._run_batches(spark, planner)
        except BaseException as error:  # noqa: BLE001  # `check` raises it
            # Read the text now: it may come from Spark's JVM, which may be gone later.
            text = "".join(traceback.format_exception_only(error))
            self._failure = QueryFailed(text, self.description.part)
            self._failure.__cause__ = error

    def _run_batches(self, spark: SparkContext, planner: Planner) -> None:
        job, logs, start = pickle.dumps(self.spec), self.checkpoint.logs, self.progress.last_offset
        unfinished = logs.unfinished()
        while unfinished or not self.is_stopping:
            if unfinished:
                end = unfinished.pop(0)
            else:
                self._woken.clear()
                began = time.monotonic()
                end = retried(partial(planner.latest_offset, start, self.spec.max_rows))
                if end == start:
                    # Other threads need the interpreter, too.
                    self._woken.wait(max(self.pacing.poll_s(self.role), time.monotonic() - began))
                    continue
                logs.plan(end)
            tasks = retried(partial(planner.tasks, start, end))
            self.run_batch(task_records(spark, job, tasks))
            logs.commit()
            planner.committed(end)
            start = end

    def run_batch(self, sent: RDD[Record]) -> None:
        """Run the tasks of a planned batch, commit it, then pause."""
        began = time.monotonic()
        with self.progress.batch():
            batch = self.commit(sent)
        if batch is None:
            return
        self.metrics.count_batch(batch, time.monotonic() - began)
        if self.pressure is not None:
            for table, count in batch.files.items():
                self.pressure.added(table, count)
            for table in batch.files:
                self.pressure.wait(table, lambda: self.is_stopping)
        self.pause(time.monotonic() - began)

    def check(self) -> None:
        """Raise `QueryFailed` if the query has failed."""
        if self._failure is not None:
            raise self._failure

    def wait(self, seconds: float) -> None:
        """Wait between two batches, at most until `request_stop`."""
        self._stopping.wait(seconds)

    def request_stop(self) -> None:
        """Let the query start no further batch; does not wait."""
        self._stopping.set()
        self._woken.set()

    @property
    def is_stopping(self) -> bool:
        """Whether no further batch is to begin."""
        return self._stopping.is_set()

    @property
    def has_stopped(self) -> bool:
        """After `request_stop`: whether no batch runs any more."""
        return self._thread is None or not self._thread.is_alive()

    def stop(self, timeout_s: float = 30.0) -> None:
        """Stop between two batches; after `timeout_s` seconds, cancel the tasks of a batch.

        Raises `StreamhouseError` if the batch does not end then either.
        """
        try:
            if self._thread is not None:
                self.request_stop()
                self._thread.join(timeout_s)
                if self._thread.is_alive():
                    self._spark.cancelJobGroup(self._job_group)
                    self._thread.join(_CANCEL_S)
                if self._thread.is_alive():
                    raise StreamhouseError(f"query {self.description.part} does not stop")
                self.stopped()
        finally:
            self._thread = None
            self.release()
            self.progress.close()
            shutil.rmtree(self.run_folder, ignore_errors=True)
            self.checkpoint.release()
