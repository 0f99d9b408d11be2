"""Exactly-once commits of micro-batches: the sink's, and those of the query's auxiliary tables."""

from __future__ import annotations

import json
import logging
from collections import defaultdict
from collections.abc import Collection, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from pyspark.sql import DataFrame

from streamhouse.connectors.base import BatchLog, Message, Sink, WrittenBatch
from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.write.commit import TableCommitter
from streamhouse.paimon.write.table_writer import query_tag
from streamhouse.runtime.failpoint import LOOKUP_JOURNAL_STEP, reached
from streamhouse.runtime.monitoring.commit_times import Commit, timed
from streamhouse.runtime.state.lineage import BatchRecord
from streamhouse.runtime.streaming.tasks.task_results import message_of

log = logging.getLogger("streamhouse.query")

Messages: TypeAlias = Mapping[str, list[Message]]
"""Commit messages of a batch's tasks, by table."""


@dataclass(frozen=True)
class CommittedBatch:
    """One micro-batch after its commit.

    `messages` are counted by table, and `reports` are what its tasks reported. `commit`: that to
    the target; None if that is not a Paimon table, or got no rows.
    """

    record: BatchRecord
    messages: Mapping[str, int]
    reports: list[dict[str, Any]]
    commit: Commit | None


class WrittenQuery(Protocol):
    """What a committer needs of a query's specification; see `QuerySpec` and `ViewSpec`."""

    @property
    def target(self) -> TableAddress: ...

    @property
    def query_id(self) -> str: ...

    @property
    def lookup_journal(self) -> TableAddress | None: ...

    @property
    def auxiliary_tables(self) -> tuple[TableAddress, ...]: ...

    def open_sink(self) -> Sink: ...


class BatchCommitter:
    """Commits the micro-batches of one query; driver only.

    Every batch makes one commit per table, with the query's id as the commit user and the batch
    number as the commit identifier: first to the journal of lookups on servers (if any), then to
    the sink, then to the other auxiliary tables. Each table accepts a number only once. So a batch
    that was interrupted at any point runs again with the same input and commits only what is
    missing.
    """

    def __init__(self, spec: WrittenQuery) -> None:
        self._target = spec.target.identifier
        self._journal = None if spec.lookup_journal is None else spec.lookup_journal.identifier
        self._tag = query_tag(spec.query_id)
        self._sink = spec.open_sink().committer(spec.query_id)
        self._auxiliary_tables = {
            address.identifier: TableCommitter(
                address.warehouse, address.identifier, spec.query_id, followed=True
            )
            for address in spec.auxiliary_tables
        }

    @property
    def tables(self) -> dict[str, Table]:
        """The Paimon tables that batches commit to, by name."""
        tables = {name: committer.table for name, committer in self._auxiliary_tables.items()}
        if self._sink.table is not None:
            tables[self._target] = self._sink.table
        return tables

    def check_log(self, log: BatchLog) -> None:
        """Raise `DataLossError` if a table or sink has a later batch of the query than its log."""
        self._sink.check_log(log)
        for identifier, committer in self._auxiliary_tables.items():
            log.check(committer.last_identifier(), f"table {identifier}")

    def commit(self, frame: DataFrame) -> CommittedBatch | None:
        """Run a batch's tasks and commit what they wrote; None if there was nothing to read."""
        messages: Messages = {}
        reports: list[dict[str, Any]] = []
        took_ms: list[float] = []
        with ExitStack() as timing:

            def write() -> WrittenBatch | None:
                nonlocal messages, reports
                messages, reports = self._write(frame)
                if not reports:
                    return None
                timing.enter_context(timed(self._target, took_ms))
                return WrittenBatch(_number(reports), messages.get(self._target, []))

            def discard() -> None:
                timing.close()
                self._discard(messages)

            made = self._sink.commit(write, discard)
        commit = None
        if made and took_ms and self._sink.table is not None:
            own = {self._target: messages.get(self._target, [])}
            commit = Commit.of(own, took_ms[-1])
        return self._commit_auxiliary_tables(messages, reports, made, commit) if reports else None

    def _commit_auxiliary_tables(
        self,
        messages: Messages,
        reports: list[dict[str, Any]],
        made: bool,
        commit: Commit | None,
    ) -> CommittedBatch:
        """Commit what the batch wrote besides the sink; `made`: this run committed to the sink."""
        number = _number(reports)
        reached("target-committed", number, self._target)
        for identifier, committer in self._auxiliary_tables.items():
            if identifier == self._journal:
                continue
            own = messages.get(identifier, [])
            if own:
                with timed(identifier):
                    committer.commit(number, own)
            reached(f"{identifier.rpartition('__')[2]}-committed", number, self._target)
        if any(report["repeated"] for report in reports):
            self.remove_leftovers(number, {report["attempt"] for report in reports})
        record = BatchRecord(
            number,
            reports[0]["start"],
            reports[0]["end"],
            sum(report["rows"] for report in reports),
            sum(report["missed"] for report in reports),
            earlier=not made,
        )
        counts = {name: len(own) for name, own in messages.items()}
        return CommittedBatch(record, counts, reports, commit)

    def remove_leftovers(self, from_batch: int, keep: Collection[str] = ()) -> None:
        """Remove the files of dead tasks in batches from `from_batch` on.

        Keeps those of the task attempts `keep`.
        """
        removed = self._sink.remove_leftovers(from_batch, keep)
        for committer in self._auxiliary_tables.values():
            removed += committer.remove_leftovers(self._tag, from_batch, keep)
        if removed:
            log.info("%s: removed %d left-over files", self._target, removed)

    def _write(self, frame: DataFrame) -> tuple[Messages, list[dict[str, Any]]]:
        """Run a batch's tasks, and commit their journal of lookups on servers; see `collected`."""
        messages, reports = collected(frame)
        if reports:
            number = _number(reports)
            reached("batch-written", number, self._target)
            if self._journal is not None:
                # The batch reads it if it runs again.
                with timed(self._journal):
                    journal = self._auxiliary_tables[self._journal]
                    journal.commit(number, messages.get(self._journal, []))
                reached(LOOKUP_JOURNAL_STEP, number, self._target)
        return messages, reports

    def _discard(self, messages: Messages) -> None:
        """Remove what a batch wrote into auxiliary tables, but not the journal of lookups."""
        for identifier, committer in self._auxiliary_tables.items():
            if identifier != self._journal:
                committer.abort(messages.get(identifier, []))


def _number(reports: list[dict[str, Any]]) -> int:
    """The batch number, which all reports of a batch have."""
    return int(reports[0]["end"]["batch"])


def collected(frame: DataFrame) -> tuple[Messages, list[dict[str, Any]]]:
    """Run a batch's tasks; returns the commit messages by table, and the tasks' reports."""
    messages: dict[str, list[Message]] = defaultdict(list)
    reports: list[dict[str, Any]] = []
    for row in frame.collect():
        if row["table"] is None:
            reports.append(json.loads(row["report"]))
        else:
            messages[row["table"]].append(message_of(row))
    return messages, reports
