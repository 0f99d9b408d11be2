"""A view as a continuous query, whose batches are refreshes."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa
from pyspark import RDD

from streamhouse.connectors.base import BatchLog
from streamhouse.errors import DataLossError, TableError
from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.paimon.storage.object_store.store_retries import retried
from streamhouse.runtime.monitoring.metrics import CountedBatch
from streamhouse.runtime.query_description import QueryDescription
from streamhouse.runtime.state.batch_logs import next_batch, note
from streamhouse.runtime.state.checkpoint import Checkpoint, LastCommit
from streamhouse.runtime.state.checkpoint_registry import shared_folder
from streamhouse.runtime.state.replica import ReplicatedStore
from streamhouse.runtime.state.retention_holds import HeldTables, RetentionHolds
from streamhouse.runtime.state.table_writers import has_rows
from streamhouse.runtime.streaming.batch_commit import BatchCommitter
from streamhouse.runtime.streaming.query import JobQuery, acquired
from streamhouse.runtime.streaming.spark_job import Record, shuffled
from streamhouse.runtime.views.build import Builder
from streamhouse.runtime.views.planner import OPEN_SINCE, ViewPlanner
from streamhouse.runtime.views.spec import PROGRESS, ViewSpec
from streamhouse.runtime.views.staged.planning import (
    PARALLEL_ROWS,
    StageInput,
    inputs_of,
    staged_tree,
    tasks_of,
)
from streamhouse.runtime.views.task import run
from streamhouse.state.store import FOLDER, StateStore

_BUILD_SHARE = 3.0
"""A view that was recomputed waits so many times as long as that took for what it keeps.

To recompute it once more meanwhile would slow down both. The next refresh is one from changes.
"""
_LOOK_S = 0.05
_MOST_COUNTED = 5_000_000
"""So many records of a view are counted at the start of its query, which takes about a second."""


class ViewQuery(JobQuery):
    """Runs a `ViewSpec` with a checkpoint; on the driver.

    A new checkpoint loses nothing: its first refresh writes what differs.
    """

    spec: ViewSpec
    _replica: ReplicatedStore | None = None

    def __init__(self, spec: ViewSpec, checkpoint: Checkpoint, pipeline: str) -> None:
        with acquired(checkpoint):
            self.spec = _with_current_log(spec, checkpoint)
            super().__init__(checkpoint, _described(self.spec, checkpoint, pipeline))
            self.spec = replace(
                self.spec,
                progress=str(self.run_folder / PROGRESS),
                state=str(StateStore.of(checkpoint.path).folder),
            )
            self._builder = Builder(self.spec.target.identifier, self.run_folder)
            appended = self.spec.target if self.spec.plan.keyless else None
            self._last_commit = LastCommit(appended, self.spec.query_id, checkpoint.path)

    @property
    def targets(self) -> list[TableAddress]:
        return [self.spec.target]

    @property
    def builds(self) -> bool:
        """Whether what the view keeps is being computed, or about to be."""
        return self._builder.awaited

    def check_first_start(self) -> None:
        """Raise `TableError` if the table has rows of statements or of another pipeline's query."""
        name = self.spec.target.identifier
        writer = (self.checkpoint.previous() or {}).get("pipeline", self.description.pipeline)
        if writer != self.description.pipeline:
            self.checkpoint.release()
            raise TableError(
                f"table {name} has the result of an INSERT of pipeline '{writer}', which this "
                f"query would remove; INSERT into a table of its own, or SET 'pipeline.name' = "
                f"'{writer}' if this query replaces that one"
            )
        if not self.progress.last_offset and has_rows(self.spec.target.open()):
            self.checkpoint.release()
            raise TableError(
                f"table {name} has rows already, and this query would "
                "remove those that its SELECT does not return; run the script once with "
                "--from-scratch to empty the table, or INSERT into a new one"
            )

    def use_cluster(self) -> None:
        """Let large refreshes use several hosts, and all hosts find the kept rows."""
        if self.spec.parallel_rows is None:
            self.spec = replace(self.spec, parallel_rows=PARALLEL_ROWS)
        folder = shared_folder(self.spec.target.warehouse, self.checkpoint)
        if folder is not None:
            self.spec = replace(self.spec, replica=f"{folder}/{FOLDER}")
            self._replica = self.spec.open_replica()
            self._replica.remove_leftovers()

    def prepare(self) -> None:
        self._last_commit.check()
        self.progress.planner = ViewPlanner(self.spec)
        spec = self.spec
        tables = HeldTables([spec.target], spec.read_positions, recognised=spec.plan.keyless)
        self._holds = RetentionHolds(spec.query_id, tables, self.checkpoint, self.progress)
        self._holds.prepare()
        self._committer, self._recomputed = BatchCommitter(self.spec), True
        self._moved_at = time.monotonic()
        self._committer.remove_leftovers(next_batch(self.progress.last_offset))
        self._count_rows()
        self.checkpoint.remember(
            {
                "id": self.spec.query_id,
                "pipeline": self.description.pipeline,
                "fingerprint": self.spec.fingerprint,
                "target": self.description.target,
                "definition": self.spec.definition,
            }
        )

    def _count_rows(self) -> None:
        """Count the rows of the view for its metrics, unless that takes long, or others append."""
        if self.spec.plan.keyless:
            return
        table = self.spec.target.open()
        latest = table.latest_snapshot_id()
        records = table.snapshot(latest).total_record_count or 0 if latest else 0
        if records <= _MOST_COUNTED:
            batches = table.read([table.primary_key[0]]) if records else iter(())
            self.metrics.count_view(sum(batch.num_rows for batch in batches))

    def commit(self, sent: RDD[Record]) -> CountedBatch | None:
        retried(self._holds.batch_begins)
        batch = self._committer.commit(retried(lambda: self._staged(sent)))
        if batch is None:
            return None
        end = batch.end
        if self._replica is not None:
            # For those who ask this host what the view keeps.
            self._replica.fetch(segments=False)
        self._recomputed = any(each["strategy"] == "recompute" for each in batch.reports)
        for report in batch.reports:
            self._builder.batch_done(report)
            if report["open_since"] is not None:
                note(self.run_folder / OPEN_SINCE, end, report["open_since"])
        self.progress.committed(end)
        self._moved_at = time.monotonic()
        changes = batch.total("changes")
        levels = batch.messages and not self.spec.plan.keyless
        files = {self.spec.target.identifier: len(batch.reports)} if levels else {}
        late = sum(report["late"] for report in batch.reports)
        return CountedBatch(changes.total(), changes, batch.commit, files, late=late)

    def _staged(self, sent: RDD[Record]) -> RDD[Record]:
        """What the tasks of the last level return; `sent` is what those of the first send."""
        spec, before, end = self.spec, self.progress.last_offset, self.checkpoint.logs.newest()
        count = 0 if end == before else tasks_of(spec, end)
        for level in range(1, staged_tree(spec.plan).last + 1 if count else 1):
            own = partial(_run_own, spec, inputs_of(spec, before, end, count, level))
            sent = shuffled(sent, count, own)
        return sent

    def pause(self, took_s: float) -> None:
        # A refresh from changes is as short as a batch of a stream.
        if not self._recomputed:
            return
        began = time.monotonic()
        rest_s, longest_s = self.pacing.refresh_pause_s(took_s), _BUILD_SHARE * took_s
        while not self.is_stopping:
            waited_s = time.monotonic() - began
            if waited_s >= (longest_s if self._builder.awaited else rest_s):
                return
            self.wait(_LOOK_S)

    def stopped(self) -> None:
        self._last_commit.note()

    def release(self) -> None:
        self._builder.stop()

    def tick(self) -> None:
        if self.started:
            if retried(self._holds.tick):
                self._last_commit.note()
            self._builder.tick(self.spec, self._holds)
            self._expire()

    def _expire(self) -> None:
        """Delete the kept rows of an idle view; they are computed again when they are needed."""
        idle_ms = (time.monotonic() - self._moved_at) * 1000
        if 0 < self.spec.state_ttl_ms <= idle_ms:
            self.spec.open_store().clear()
            self._moved_at = time.monotonic()


def _run_own(
    spec: ViewSpec, inputs: Sequence[StageInput], index: int, sent: Iterator[Record]
) -> Iterator[pa.RecordBatch]:
    """Run a task of a level on the records that were sent to it; executors."""
    return run(spec, inputs[index], sent)


def _with_current_log(spec: ViewSpec, checkpoint: Checkpoint) -> ViewSpec:
    """The view with the id of its checkpoint, which is replaced if its table has later batches.

    Then the checkpoint is an older copy, or lost its newest files. The next refresh of a new query
    writes what differs. For a table without a key raises the `DataLossError`.
    """
    own = replace(spec, query_id=checkpoint.query_id())
    try:
        log = BatchLog(checkpoint.path, checkpoint.logs.last_batch())
        BatchCommitter(own).check_log(log)
    except DataLossError:
        if spec.plan.keyless:
            raise
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
