"""A view as a continuous query: a Spark streaming query whose batches are refreshes."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from streamhouse.connectors.base import BatchLog
from streamhouse.errors import DataLossError, TableError
from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.paimon.storage.object_store.store_retries import retried
from streamhouse.runtime.monitoring.metrics import QueryMetrics
from streamhouse.runtime.query_description import QueryDescription
from streamhouse.runtime.state.batch_logs import next_batch
from streamhouse.runtime.state.checkpoint import Checkpoint
from streamhouse.runtime.state.checkpoint_registry import register_checkpoint
from streamhouse.runtime.streaming.batch_commit import BatchCommitter
from streamhouse.runtime.streaming.job_data_source import FORMAT, JobDataSource
from streamhouse.runtime.streaming.progress import ContinuousProgress
from streamhouse.runtime.streaming.query import QueryFailed
from streamhouse.runtime.streaming.stream_run import StreamRun
from streamhouse.runtime.streaming.throttle import Throttle
from streamhouse.runtime.views.holds import ViewHolds
from streamhouse.runtime.views.planner import ViewPlanner
from streamhouse.runtime.views.spec import ViewSpec
from streamhouse.spark import register_source

_LONGEST_PAUSE_S = 10.0
VIEWS = "materialized views"
"""The folder of the checkpoints of views, in the place of a pipeline's name."""


class ViewQuery:
    """Runs a `ViewSpec` with a checkpoint, as a query of a `Pipeline`; on the driver.

    A refresh that was interrupted at any point runs again. A new checkpoint loses nothing: its
    first refresh writes what differs.
    """

    def __init__(self, spec: ViewSpec, checkpoint: Checkpoint, pipeline: str) -> None:
        self._checkpoint = checkpoint
        checkpoint.acquire()
        try:
            self._spec = _with_current_log(spec, checkpoint)
            self.progress = ContinuousProgress(checkpoint.logs.last_offset())
            register_checkpoint(spec.target.warehouse, checkpoint)
            self._run = StreamRun(checkpoint.run_folder())
        except BaseException:
            checkpoint.release()
            raise
        self.description = _described(self._spec, checkpoint, pipeline)
        self.metrics = QueryMetrics()
        self._planner: ViewPlanner | None = None
        self._throttle = Throttle()

    @property
    def targets(self) -> list[TableAddress]:
        """The view's table."""
        return [self._spec.target]

    @property
    def tables(self) -> list[str]:
        """The name of the view's table."""
        return [self._spec.target.identifier]

    def use_shared(self, number: int, folder: Path) -> None:
        raise AssertionError("a view shares no source")

    def set_throttle(self, throttle: Throttle) -> None:
        """Wait for compaction after a refresh."""
        self._throttle = throttle

    def check_first_start(self) -> None:
        """Raise `TableError` if the table has rows that a query of another checkpoint wrote."""
        if not self.progress.last_offset and self._spec.target.open().latest_snapshot_id():
            self._checkpoint.release()
            raise TableError(
                f"table {self._spec.target.identifier} has rows already, and this query would "
                "remove those that its SELECT does not return; run the script once with "
                "--from-scratch to empty the table, or INSERT into a new one"
            )

    def prepare(self) -> None:
        """Create the consumers, and clean up after a crash; needs no Spark."""
        self._planner = ViewPlanner(self._spec)
        self._holds = ViewHolds(self._spec, self._checkpoint)
        self._holds.tick()
        self.progress.prepared(self._planner, self._holds)
        self._committer = BatchCommitter(self._spec)
        self._committer.remove_leftovers(next_batch(self.progress.last_offset))
        self._checkpoint.remember(
            {
                "id": self._spec.query_id,
                "fingerprint": self._spec.plan.fingerprint,
                "target": self.description.target,
                "definition": self._spec.definition,
            }
        )

    def start(self, spark: SparkSession) -> None:
        """Start the query; call `prepare` first."""
        self.metrics.begin()
        register_source(spark, JobDataSource)
        name = self.description.name
        self._run.start(spark, FORMAT, self._spec, name, self._checkpoint.path, self._commit)

    def _commit(self, frame: DataFrame, spark_batch: int) -> None:
        began = time.monotonic()
        self._checkpoint.logs.sync(spark_batch)
        with self.progress.batch():
            batch = self._committer.commit(frame)
        if batch is None:
            return
        end = batch.record.end
        self.progress.committed(end)
        changes = sum((Counter(report["changes"]) for report in batch.reports), Counter[str]())
        took_s = time.monotonic() - began
        self.metrics.count_batch(changes.total(), took_s, changes=changes, commit=batch.commit)
        self._holds.batch_done(end)
        files = {self._spec.target.identifier: 1} if batch.messages else {}
        self._throttle.wait_for_compaction(files, lambda: self._run.is_stopping)
        # A refresh leaves half of the time to other queries.
        self._run.pause(min(time.monotonic() - began, _LONGEST_PAUSE_S))

    def check(self) -> None:
        """Raise `QueryFailed` if the query has failed; a call into Spark's JVM."""
        failure = self._run.failure()
        if failure is not None:
            raise QueryFailed(failure, self.description.part)

    def tick(self) -> None:
        """Move the consumers if that is due."""
        if self._run.started:
            retried(self._holds.tick)

    def request_stop(self) -> None:
        """Let the query start no further refresh; does not wait."""
        self._run.request_stop()

    def stop(self, timeout_s: float = 30.0) -> None:
        """Stop between two refreshes; waits up to `timeout_s` seconds for the current one."""
        try:
            self._run.stop(timeout_s)
        finally:
            if self._planner is not None:
                self._planner.close()
                self._planner = None
                self.progress.closed()
            self._run.close()
            self._checkpoint.release()


def _with_current_log(spec: ViewSpec, checkpoint: Checkpoint) -> ViewSpec:
    """The view with the id of its checkpoint, which is replaced if its table has later batches.

    Then the checkpoint is an older copy, or lost its newest files. The next refresh of a new query
    writes what differs.
    """
    own = replace(spec, query_id=checkpoint.query_id())
    try:
        log = BatchLog(checkpoint.path, checkpoint.logs.last_batch())
        BatchCommitter(own).check_log(log)
    except DataLossError:
        checkpoint.clear()
        return replace(spec, query_id=checkpoint.query_id())
    return own


def _described(spec: ViewSpec, checkpoint: Checkpoint, pipeline: str) -> QueryDescription:
    scans = spec.plan.query.scans
    return QueryDescription(
        pipeline,
        checkpoint.path.name,
        spec.target.identifier,
        spec.target,
        checkpoint.path,
        scans[0].table.name if scans else (),
        source_tables=tuple(spec.tables.values()),
        strategy="recomputed",
    )
