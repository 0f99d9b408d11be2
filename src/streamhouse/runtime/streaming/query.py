"""One continuous query: a Spark streaming query whose batches the driver commits exactly once."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from streamhouse.connectors import kept_records
from streamhouse.lookup.dimension import is_server
from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.paimon.maintenance.backpressure import Pressure
from streamhouse.paimon.storage.store_retries import retried
from streamhouse.runtime.monitoring.metrics import QueryMetrics
from streamhouse.runtime.query_description import QueryDescription
from streamhouse.runtime.query_spec import QuerySpec
from streamhouse.runtime.state import distinct_counts, lookup_journal, pending_rows
from streamhouse.runtime.state.checkpoint import Checkpoint
from streamhouse.runtime.state.checkpoint_claim import claim
from streamhouse.runtime.state.lineage import Lineage
from streamhouse.runtime.state.query_definition import definition_json
from streamhouse.runtime.state.retention_holds import RetentionHolds
from streamhouse.runtime.streaming import preload_reports
from streamhouse.runtime.streaming.batch_commit import BatchCommitter, CommittedBatch
from streamhouse.runtime.streaming.fused_source import FORMAT
from streamhouse.runtime.streaming.pacing import Pacing, Role
from streamhouse.runtime.streaming.planner import Planner
from streamhouse.runtime.streaming.shuffle import shuffled
from streamhouse.runtime.streaming.small_batches import is_small_batch
from streamhouse.runtime.streaming.stream_run import StreamRun
from streamhouse.runtime.streaming.task import RESULT
from streamhouse.source import Lag, Offset


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
            self._last: Offset = checkpoint.last_offset()
            self._spec: QuerySpec = replace(spec, query_id=checkpoint.query_id())
            claim(spec.target.warehouse, checkpoint)
            self._run = StreamRun(checkpoint.run_folder())
        except BaseException:
            checkpoint.release()
            raise
        self.description = _described(self._spec, checkpoint, pipeline)
        self.metrics = QueryMetrics()
        self._planner: Planner | None = None
        self._pressure: Pressure | None = None
        self._lineage: Lineage | None = None
        self._pacing: Pacing | None = None
        self._role = Role.SOURCE

    @property
    def last_offset(self) -> Offset:
        """The end offset of the last committed batch; `{}` before the first."""
        return self._last

    def use_shared(self, number: int, folder: Path) -> None:
        """Let a source read the folder that a `SharedReader` fills; call it before `prepare`.

        `number`: the index of the source in the description's `sources`.
        """
        sources = list(self._spec.sources)
        sources[number] = replace(sources[number], shared=folder)
        self._spec = replace(self._spec, sources=tuple(sources))

    @property
    def targets(self) -> list[TableAddress]:
        """The target, if that is a Paimon table."""
        return [self._spec.target] if self.description.writes_table else []

    @property
    def tables(self) -> list[str]:
        """The tables that the query writes, with its lineage, in its target's warehouse."""
        written = [address.identifier for address in self._spec.written]
        if self._spec.sink is None:
            written.append(self._spec.target.side_table("lineage").identifier)
        return written

    def change_notice(self) -> str | None:
        """A notice for the user if another SELECT ran with this checkpoint before; else None."""
        before = self._checkpoint.previous()
        if before is None or before["fingerprint"] == self._spec.query.fingerprint:
            return None
        named = self.description
        return (
            f"the SELECT of {named.target} in pipeline '{named.pipeline}' has changed; it goes on "
            "where the old one stopped, and rows written so far stay. To compute all of them "
            "anew, run the script once with --from-scratch"
        )

    def prepare(self) -> None:
        """Check the source, create the side tables, clean up after a crash; needs no Spark."""
        spec = self._spec
        if spec.pending is not None and spec.unmatched is not None:
            changelog = spec.query.changelog
            (source,) = spec.sources
            pending_rows.create_tables(
                spec.pending, spec.unmatched, source.columns, changelog, source.address
            )
        if spec.distinct is not None and spec.query.distinct is not None:
            distinct_counts.create_table(spec.distinct, spec.query.distinct, spec.target)
        if spec.bad_records is not None:
            kept_records.create_tables(spec.bad_records)
        if spec.lookup_journal is not None:
            lookup_journal.create_table(spec.lookup_journal)
            self._look_at_servers()
        self._planner = Planner(spec)
        inputs = self._planner.inputs
        inputs.check(self._last)
        for offset in self._checkpoint.unfinished():
            inputs.check(offset)
        if spec.shuffle is not None:
            ordered = spec.query.ordered and not spec.query.grouped
            gathered = ordered or spec.one_task(inputs.sources)
            spec = self._spec = replace(spec, gathered=gathered)
        self._holds = RetentionHolds(spec, self._checkpoint, inputs.sources)
        self._holds.prepare()
        if spec.sink is None:
            self._lineage = Lineage(spec)
            self._lineage.recover(self._checkpoint)
        self._committer = BatchCommitter(spec)
        self._committer.remove_leftovers(int(self._last.get("batch", -1)) + 1)
        self._checkpoint.remember(
            {
                "fingerprint": spec.query.fingerprint,
                "target": self.description.target,
                "definition": definition_json(spec),
            }
        )

    def _look_at_servers(self) -> None:
        """Raise the errors of lookup tables on servers, such as wrong options or no connection."""
        from streamhouse.lookup.strategies.server_lookup import open_table

        for lookup in self._spec.query.lookups:
            if is_server(lookup):
                open_table(lookup)[0].close()

    def relieve(self, pressure: Pressure) -> None:
        """Wait after a batch while a table that the query writes has too many level-0 files."""
        self._pressure = pressure

    def pace(self, pacing: Pacing, role: Role) -> None:
        """Pause after each batch as `pacing` decides; without it no batch waits."""
        self._pacing, self._role = pacing, role

    def start(self, spark: SparkSession) -> None:
        """Start the query; call `prepare` first.

        A batch begins as soon as the previous one has ended and there is something to read, or
        after the pause that `pace` decides. There is no trigger interval.
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
        retried(lambda: self._holds.batch_begins(self._last))
        is_shuffled = False
        if self._spec.shuffle is not None:
            whole = is_small_batch(self._run.folder, int(self._last.get("batch", -1)) + 1)
            is_shuffled = not whole
            frame = frame.select(*RESULT.names) if whole else shuffled(frame, self._spec)
        batch = self._committer.commit(frame)
        if batch is None:
            return
        if self._lineage is not None:
            self._lineage.add(batch.record)
        self._last = batch.record.end
        bad = sum(report.get("bad", 0) for report in batch.reports)
        # The tasks that write shuffled rows do not know how many changes were read.
        counts = [Counter[str](one["changes"]) for one in batch.reports]
        changes = None if is_shuffled else sum(counts, Counter[str]())
        took_s = time.monotonic() - began
        self.metrics.batch(batch.record.rows or 0, took_s, bad, changes, batch.commit)
        retried(lambda: self._holds.batch_done(self._last))
        preload_reports.write(self._run.folder, self._last, batch.reports)
        self._wait_for_room(batch)
        # Pause while no batch is planned: rows that arrive meanwhile are in the next batch.
        if self._pacing is not None:
            took_s = time.monotonic() - began
            self._run.pause(self._pacing.pause_s(self.description.part, self._role, took_s))

    def _wait_for_room(self, batch: CommittedBatch) -> None:
        """Wait for compaction between batches, so that no planned batch becomes stale."""
        if self._pressure is None:
            return
        tables = self._committer.tables
        for identifier, table in tables.items():
            if table.primary_key:
                # A task writes at most one file per bucket.
                files = min(len(batch.reports), batch.messages.get(identifier, 0))
                self._pressure.added(identifier, files)
        for identifier in tables:
            self._pressure.wait(identifier, lambda: self._run.is_holding)

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
            self._lineage.flush_if_due(0.0 if self._pacing is None else self._pacing.flush_s)
        retried(self._holds.tick)

    @property
    def replayed(self) -> bool:
        """Whether no interrupted batch of an earlier run is left to run again."""
        return self._holds.replayed

    def settled(self) -> Offset | None:
        """The last offset if nothing is left to do, else None."""
        assert self._planner is not None and self._run.started
        planner, last = self._planner, self._last
        return last if retried(lambda: planner.settled(last)) else None

    def lag(self) -> Lag | None:
        """How far it is behind its source; None if unknown."""
        return None if self._planner is None else self._planner.lag(self._last)

    def rows_left(self) -> int | None:
        """About how many rows of the first copy of its source are left; None once complete."""
        return None if self._planner is None else self._planner.rows_left(self._last)

    def hold(self) -> None:
        """Ask the query to start no further batch; does not wait."""
        self._run.hold()

    def stop(self, timeout_s: float = 30.0) -> None:
        """Stop between two batches; waits up to `timeout_s` seconds for the batch."""
        try:
            if self._run.stop(timeout_s) and self._lineage is not None:
                self._lineage.flush()
        finally:
            if self._planner is not None:
                self._planner.close()
                self._planner = None
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
