"""The query of an INSERT over one stream: it joins, aggregates and writes in its tasks."""

import contextlib
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from pyspark import RDD

from streamhouse.connectors.bad_records import create_tables
from streamhouse.connectors.base import BatchLog
from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.paimon.changelog.stream_source import PaimonSource
from streamhouse.paimon.storage.object_store.store_retries import retried
from streamhouse.runtime.monitoring.metrics import CountedBatch
from streamhouse.runtime.query_description import QueryDescription
from streamhouse.runtime.query_source import source_offset
from streamhouse.runtime.query_spec import QuerySpec
from streamhouse.runtime.state import lookup_journal, pending_rows
from streamhouse.runtime.state.batch_logs import next_batch
from streamhouse.runtime.state.checkpoint import Checkpoint, LastCommit
from streamhouse.runtime.state.lineage import Lineage
from streamhouse.runtime.state.recorded_query import BoundTables, definition_json
from streamhouse.runtime.state.retention_holds import HeldTables, RetentionHolds
from streamhouse.runtime.streaming.batch_commit import BatchCommitter, TaskResults
from streamhouse.runtime.streaming.batch_planner import BatchPlanner
from streamhouse.runtime.streaming.dimensions.versions import report_loaded
from streamhouse.runtime.streaming.query import JobQuery, acquired
from streamhouse.runtime.streaming.shuffle.blocks import WHOLE
from streamhouse.runtime.streaming.shuffle.shuffle import ShuffledBatch
from streamhouse.runtime.streaming.spark_job import Record
from streamhouse.runtime.streaming.tasks.task_protocol import RowFiles
from streamhouse.runtime.streaming.watermark import note_found
from streamhouse.state.manifest import Manifest
from streamhouse.state.segment import SegmentFile
from streamhouse.state.store import LOOKUPS, StateStore


class ContinuousQuery(JobQuery):
    """Runs a `QuerySpec` with a checkpoint; on the driver. `batch_commit` commits its batches."""

    spec: QuerySpec

    def __init__(self, spec: QuerySpec, checkpoint: Checkpoint) -> None:
        with acquired(checkpoint):
            self.spec = replace(spec, query_id=checkpoint.query_id())
            super().__init__(checkpoint, _described(self.spec, checkpoint))
        target = self.spec.target if self.spec.sink is None else None
        self._last_commit = LastCommit(target, self.spec.query_id, checkpoint.path)
        self._lineage: Lineage | None = None
        self._reported: TaskResults | None = None
        self._open = ExitStack()

    def use_shared(self, folder: Path) -> None:
        self.spec = replace(self.spec, source=replace(self.spec.source, shared=folder))

    @property
    def targets(self) -> list[TableAddress]:
        return [self.spec.target] if self.spec.sink is None else []

    @property
    def tables(self) -> list[str]:
        written = [address.identifier for address in self.spec.written]
        if self.spec.sink is None:
            written.append(self.spec.target.auxiliary_table("lineage").identifier)
        return written

    def prepare(self) -> None:
        spec = self.spec
        if spec.pending is not None and spec.unmatched is not None:
            changelog, source = spec.query.scan.changelog, spec.source
            pending_rows.create_tables(
                spec.pending, spec.unmatched, source.columns, changelog, source.address
            )
        if spec.dead_letters is not None:
            create_tables(spec.dead_letters)
        if spec.lookup_journal is not None:
            lookup_journal.create_table(spec.lookup_journal)
            from streamhouse.lookup.strategies.server_lookup import open_table

            for lookup in spec.query.lookups:
                if lookup.on_server:
                    # Raises for wrong options, or without a connection.
                    open_table(lookup)[0].close()
        self._last_commit.check()
        log = BatchLog(self.checkpoint.path, self.checkpoint.logs.last_batch())
        planner = self.progress.planner = BatchPlanner(spec)
        planner.check(self.progress.last_offset)
        for offset in self.checkpoint.logs.unfinished():
            planner.check(offset)
        if spec.shuffle is not None:
            ordered = spec.query.ordered and not spec.query.merging.grouped
            gathered = ordered or spec.one_task(planner.source)
            spec = self.spec = replace(spec, gathered=gathered)
        self._source = planner.source
        tables = HeldTables.of(spec, planner.source)
        self._holds = RetentionHolds(spec.query_id, tables, self.checkpoint, self.progress)
        self._holds.prepare()
        if spec.sink is None:
            self._lineage = Lineage(spec)
            self._lineage.check_log(log)
            self._lineage.recover(self.checkpoint)
        self._committer = BatchCommitter(spec)
        self._open.callback(self._committer.close)
        self._committer.check_log(log)
        self._committer.remove_leftovers(next_batch(self.progress.last_offset))
        self.checkpoint.remember(
            {
                "id": spec.query_id,
                "fingerprint": spec.query.fingerprint,
                "target": self.description.target,
                "definition": definition_json(spec),
                "tables": BoundTables.of(spec).record(),
            }
        )

    def commit(self, sent: RDD[Record]) -> CountedBatch | None:
        before = self.progress.last_offset
        retried(self._holds.batch_begins)
        planned = {} if self.spec.shuffle is None else self.checkpoint.logs.newest()
        shuffled = planned != before and not planned.get(WHOLE, True)
        if shuffled:
            shared = RowFiles.at(self.run_folder)
            sent = ShuffledBatch(self.spec, before, planned, shared).of(sent)
        batch = self._committer.commit(sent)
        if batch is None:
            return None
        if self._lineage is not None:
            self._lineage.add(batch.record)
        end = batch.end
        if self.spec.query.scan.watermarks:
            note_found(self.checkpoint.path, end, batch.reports)
        self.progress.committed(end)
        if isinstance(source := self._source, PaimonSource):
            retried(lambda: source.store_progress(source_offset(end)))
        report_loaded(self.run_folder, end, batch.reports)
        self._reported = batch
        # The tasks that write shuffled rows do not know how many changes were read.
        changes = None if shuffled else batch.total("changes")
        bad = sum(report.get("bad", 0) for report in batch.reports)
        files = self._files_of(batch)
        return CountedBatch(batch.record.rows or 0, changes, batch.commit, files, bad)

    def pause(self, took_s: float) -> None:
        self.wait(self.pacing.pause_s(self.description.part, self.role, took_s))

    def release(self) -> None:
        self._open.close()

    def _files_of(self, batch: TaskResults) -> dict[str, int]:
        """At most how many level-0 files the batch added to a bucket of each table."""
        return {
            # A task writes at most one file per bucket.
            identifier: min(len(batch.reports), len(batch.messages.get(identifier, ())))
            for identifier, table in self._committer.tables.items()
            if table.primary_key
        }

    def tick(self) -> None:
        if not self.started:
            return
        if self._lineage is not None:
            self._lineage.flush_if_due(self.pacing.flush_s)
        if retried(self._holds.tick):
            self._last_commit.note()
            self._save_lookups()

    def stopped(self) -> None:
        self._save_lookups()
        if self._lineage is not None:
            self._lineage.flush()
            self._last_commit.note()

    def _save_lookups(self) -> None:
        """Write what workers keep of the tables that the query looks up, as tasks last reported it.

        Each process keeps rows of its own, so the manifest is that of the process with the most
        bytes. Its segments are in the memory of that process, or in its local files.
        """
        batch, self._reported = self._reported, None
        if batch is None:
            return
        kept, labels, vector = {}, {}, {}
        for lookup, address in self.spec.pinned:
            name = lookup.relation
            held = [report["kept"][name] for report in batch.reports if report["kept"]]
            if held:
                most = max(held, key=lambda segments: sum(size for _, size in segments))
                kept[name] = tuple(
                    SegmentFile(f"{name}-{number}", rows, size, 0)
                    for number, (rows, size) in enumerate(most)
                )
                labels[name] = f"lookup of {address.identifier} by {', '.join(lookup.keys)}"
                vector[f"#{address.identifier}"] = {"snapshot": batch.end["dims"][name]}
        store = StateStore(self.checkpoint_path / LOOKUPS)
        view = {"snapshot": 0, "time": 0, "wrote": 0}
        # The query goes on without the report.
        with contextlib.suppress(OSError):
            if kept and store.usable:
                store.save(
                    Manifest(batch.number, batch.end, view, kept, labels, {"vector": vector})
                )


def _described(spec: QuerySpec, checkpoint: Checkpoint) -> QueryDescription:
    return QueryDescription(
        checkpoint.pipeline,
        checkpoint.path.name,
        spec.target.identifier,
        spec.target,
        checkpoint.path,
        spec.query.source.name,
        tuple(".".join(lookup.table.name[-2:]) for lookup in spec.query.lookups),
        spec.source,
        tuple(spec.source_tables),
        tuple(at for _, at in spec.pinned),
    )
