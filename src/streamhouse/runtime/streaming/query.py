"""One continuous query: a Spark streaming query whose batches the driver commits exactly once."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from streamhouse.connectors import dead_letter_table
from streamhouse.connectors.base import BatchLog
from streamhouse.lookup.dimension import is_server
from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.paimon.storage.object_store.store_retries import retried
from streamhouse.runtime.monitoring.metrics import QueryMetrics
from streamhouse.runtime.query_description import QueryDescription
from streamhouse.runtime.query_spec import QuerySpec
from streamhouse.runtime.state import distinct_counts, lookup_journal, pending_rows
from streamhouse.runtime.state.batch_logs import next_batch
from streamhouse.runtime.state.bound_tables import BoundTables
from streamhouse.runtime.state.checkpoint import Checkpoint
from streamhouse.runtime.state.checkpoint_registry import register_checkpoint
from streamhouse.runtime.state.last_commit import LastCommit
from streamhouse.runtime.state.lineage import Lineage
from streamhouse.runtime.state.recorded_query import definition_json
from streamhouse.runtime.state.retention_holds import RetentionHolds
from streamhouse.runtime.streaming.batch_commit import BatchCommitter, CommittedBatch
from streamhouse.runtime.streaming.batch_planner import BatchPlanner
from streamhouse.runtime.streaming.dimensions import preload_reports
from streamhouse.runtime.streaming.first_read import unordered_first_read
from streamhouse.runtime.streaming.progress import ContinuousProgress
from streamhouse.runtime.streaming.shared_keys import shared_keys
from streamhouse.runtime.streaming.shuffle.shuffle import shuffled
from streamhouse.runtime.streaming.shuffle.small_batches import is_small_batch
from streamhouse.runtime.streaming.spark_data_source import FORMAT
from streamhouse.runtime.streaming.stream_run import StreamRun
from streamhouse.runtime.streaming.tasks.row_files import RowFiles
from streamhouse.runtime.streaming.tasks.task_results import RESULT
from streamhouse.runtime.streaming.throttle import Throttle


class QueryFailed(Exception):
    """A continuous query has failed; the text is Spark's, which contains our own error message."""

    def __init__(self, text: str, query: str) -> None:
        super().__init__(text)
        self.query = query
        """The `part` of the failed query's description."""


class ContinuousQuery:
    """Runs a `QuerySpec` with a checkpoint; on the driver.

    A batch that was interrupted at any point runs again with the same input; `batch_commit` makes
    its commits exactly-once.
    """

    def __init__(self, spec: QuerySpec, checkpoint: Checkpoint, pipeline: str) -> None:
        self._checkpoint = checkpoint
        checkpoint.acquire()
        try:
            self.progress = ContinuousProgress(checkpoint.logs.last_offset())
            self._spec: QuerySpec = replace(spec, query_id=checkpoint.query_id())
            register_checkpoint(spec.target.warehouse, checkpoint)
            self._run = StreamRun(checkpoint.run_folder())
        except BaseException:
            checkpoint.release()
            raise
        self._last_commit = LastCommit(self._spec, checkpoint.path)
        self.description = _described(self._spec, checkpoint, pipeline)
        self.metrics = QueryMetrics()
        self._planner: BatchPlanner | None = None
        self._lineage: Lineage | None = None
        self._throttle = Throttle()

    def use_shared(self, number: int, folder: Path) -> None:
        """Let a source read the folder that a `SharedReader` fills; call it before `prepare`.

        `number`: the index of the source in the description's `sources`.
        """
        sources = list(self._spec.sources)
        sources[number] = replace(sources[number], shared=folder)
        self._spec = replace(self._spec, sources=tuple(sources))

    @property
    def spec(self) -> QuerySpec:
        """The query, with the id of its checkpoint."""
        return self._spec

    @property
    def targets(self) -> list[TableAddress]:
        """The target, if that is a Paimon table."""
        return [self._spec.target] if self.description.writes_table else []

    @property
    def tables(self) -> list[str]:
        """The tables that the query writes, with its lineage, in its target's warehouse."""
        written = [address.identifier for address in self._spec.written]
        if self._spec.sink is None:
            written.append(self._spec.target.auxiliary_table("lineage").identifier)
        return written

    def first_notice(self) -> str | None:
        """A notice of `first_read` or of `shared_keys`, at the first start of the query."""
        if self.progress.last_offset:
            return None
        return unordered_first_read(self._spec) or shared_keys(self._spec)

    def prepare(self) -> None:
        """Check the source, create the auxiliary tables, clean up after a crash; needs no Spark."""
        spec = self._spec
        if spec.pending is not None and spec.unmatched is not None:
            changelog = spec.query.changelog
            (source,) = spec.sources
            pending_rows.create_tables(
                spec.pending, spec.unmatched, source.columns, changelog, source.address
            )
        if spec.distinct is not None and spec.query.distinct is not None:
            distinct_counts.create_table(spec.distinct, spec.query.distinct, spec.target)
        if spec.dead_letters is not None:
            dead_letter_table.create_tables(spec.dead_letters)
        if spec.lookup_journal is not None:
            lookup_journal.create_table(spec.lookup_journal)
            self._check_lookup_servers()
        self._last_commit.check()
        log = BatchLog(self._checkpoint.path, self._checkpoint.logs.last_batch())
        self._planner = BatchPlanner(spec)
        inputs = self._planner.inputs
        inputs.check(self.progress.last_offset)
        for offset in self._checkpoint.logs.unfinished():
            inputs.check(offset)
        if spec.shuffle is not None:
            ordered = spec.query.ordered and not spec.query.grouped
            gathered = ordered or spec.one_task(inputs.sources)
            spec = self._spec = replace(spec, gathered=gathered)
        self._holds = RetentionHolds(spec, self._checkpoint, inputs.sources)
        self._holds.prepare()
        self.progress.prepared(self._planner, self._holds)
        if spec.sink is None:
            self._lineage = Lineage(spec)
            self._lineage.check_log(log)
            self._lineage.recover(self._checkpoint)
        self._committer = BatchCommitter(spec)
        self._committer.check_log(log)
        self._committer.remove_leftovers(next_batch(self.progress.last_offset))
        self._checkpoint.remember(
            {
                "id": spec.query_id,
                "fingerprint": spec.query.fingerprint,
                "target": self.description.target,
                "definition": definition_json(spec),
                "tables": BoundTables.of(spec).record(),
            }
        )

    def _check_lookup_servers(self) -> None:
        """Raise the errors of lookup tables on servers, such as wrong options or no connection."""
        from streamhouse.lookup.strategies.server_lookup import open_table

        for lookup in self._spec.query.lookups:
            if is_server(lookup):
                open_table(lookup)[0].close()

    def set_throttle(self, throttle: Throttle) -> None:
        """Wait after each batch as the throttle says; without it no batch waits."""
        self._throttle = throttle

    def start(self, spark: SparkSession) -> None:
        """Start the query; call `prepare` first.

        A batch begins as soon as the previous one has ended and there is something to read, or
        after the pause of its throttle. There is no trigger interval.
        """
        self.metrics.begin()
        options = {} if self._spec.shuffle is None else {"shuffled": "true"}
        self._run.start(
            spark,
            FORMAT,
            self._spec,
            self.description.name,
            self._checkpoint.path,
            self._commit,
            options,
        )

    def _commit(self, frame: DataFrame, spark_batch: int) -> None:
        began = time.monotonic()
        before = self.progress.last_offset
        self._checkpoint.logs.sync(spark_batch)
        retried(lambda: self._holds.batch_begins(before))
        is_shuffled = False
        if self._spec.shuffle is not None:
            whole = is_small_batch(self._run.folder, next_batch(self.progress.last_offset))
            is_shuffled = not whole
            if whole:
                frame = frame.select(*RESULT.names)
            else:
                frame = shuffled(frame, self._spec, RowFiles.at(self._run.folder))
        with self.progress.batch():
            batch = self._committer.commit(frame)
        if batch is None:
            return
        if self._lineage is not None:
            self._lineage.add(batch.record)
        end = batch.record.end
        self.progress.committed(end)
        bad = sum(report.get("bad", 0) for report in batch.reports)
        # The tasks that write shuffled rows do not know how many changes were read.
        counts = [Counter[str](report["changes"]) for report in batch.reports]
        changes = None if is_shuffled else sum(counts, Counter[str]())
        took_s = time.monotonic() - began
        self.metrics.count_batch(batch.record.rows or 0, took_s, bad, changes, batch.commit)
        retried(lambda: self._holds.batch_done(end))
        preload_reports.write(self._run.folder, end, batch.reports)
        self._throttle.wait_for_compaction(self._files_of(batch), lambda: self._run.is_stopping)
        took_s = time.monotonic() - began
        self._run.pause(self._throttle.pause_s(self.description.part, took_s))

    def _files_of(self, batch: CommittedBatch) -> dict[str, int]:
        """At most how many level-0 files the batch added to a bucket of each table."""
        return {
            # A task writes at most one file per bucket.
            identifier: min(len(batch.reports), batch.messages.get(identifier, 0))
            for identifier, table in self._committer.tables.items()
            if table.primary_key
        }

    def check(self) -> None:
        """Raise `QueryFailed` if the query has failed; a call into Spark's JVM."""
        failure = self._run.failure()
        if failure is not None:
            raise QueryFailed(failure, self.description.part)

    def tick(self) -> None:
        """Flush lineage and move consumers if due."""
        if not self._run.started:
            return
        if self._lineage is not None:
            self._lineage.flush_if_due(self._throttle.flush_s)
        if retried(self._holds.tick):
            self._last_commit.note()

    def request_stop(self) -> None:
        """Let the query start no further batch; does not wait."""
        self._run.request_stop()

    def stop(self, timeout_s: float = 30.0) -> None:
        """Stop between two batches; waits up to `timeout_s` seconds for the batch."""
        try:
            if self._run.stop(timeout_s) and self._lineage is not None:
                self._lineage.flush()
                self._last_commit.note()
        finally:
            if self._planner is not None:
                self._planner.close()
                self._planner = None
                self.progress.closed()
            self._run.close()
            self._checkpoint.release()


def _described(spec: QuerySpec, checkpoint: Checkpoint, pipeline: str) -> QueryDescription:
    return QueryDescription(
        pipeline,
        checkpoint.path.name,
        spec.target.identifier,
        spec.target,
        checkpoint.path,
        spec.query.source.name,
        spec.sink is None,
        tuple(".".join(lookup.table.name[-2:]) for lookup in spec.query.lookups),
        spec.sources,
        tuple(spec.source_tables),
        spec.lookups,
        tuple(at for _, at in spec.pinned),
    )
