"""Exactly-once commits of micro-batches: the sink's, and those of the query's auxiliary tables."""

from __future__ import annotations

import json
import logging
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from pyspark import RDD

from streamhouse.connectors.base import BatchLog, Message, WrittenBatch
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.write.commit import TableCommitter
from streamhouse.paimon.write.table_writer import query_tag
from streamhouse.runtime.failpoint import reached
from streamhouse.runtime.monitoring.metrics import Commit
from streamhouse.runtime.state.lineage import BatchRecord
from streamhouse.runtime.streaming.spark_job import Record
from streamhouse.runtime.streaming.tasks.task_protocol import message_of
from streamhouse.source import Offset

if TYPE_CHECKING:
    from streamhouse.runtime.query_spec import QuerySpec
    from streamhouse.runtime.views.spec import ViewSpec

log = logging.getLogger("streamhouse.query")

Messages: TypeAlias = Mapping[str, list[Message]]
"""Commit messages of a batch's tasks, by table."""


@dataclass(frozen=True)
class TaskResults:
    """What the tasks of a batch returned: commit messages, and at least one report.

    `commit`: that to the target; None before it, and if that is not a Paimon table, or got no
    rows. `earlier`: an earlier run has committed the batch.
    """

    messages: Messages
    reports: list[dict[str, Any]]
    commit: Commit | None = None
    earlier: bool = False

    @classmethod
    def of(cls, sent: RDD[Record]) -> TaskResults | None:
        """Run a batch's tasks; None if there was nothing to read."""
        messages: dict[str, list[Message]] = defaultdict(list)
        reports: list[dict[str, Any]] = []
        for row in sent.collect():
            if row["table"] is None:
                reports.append(json.loads(row["report"]))
            else:
                messages[row["table"]].append(message_of(row))
        return cls(messages, reports) if reports else None

    @property
    def number(self) -> int:
        """The batch number."""
        return int(self.end["batch"])

    @property
    def start(self) -> Offset:
        start: Offset = self.reports[0]["start"]
        return start

    @property
    def end(self) -> Offset:
        end: Offset = self.reports[0]["end"]
        return end

    @property
    def record(self) -> BatchRecord:
        """The batch as the lineage has it."""
        rows, missed = (sum(each[key] for each in self.reports) for key in ("rows", "missed"))
        return BatchRecord(self.number, self.start, self.end, rows, missed, self.earlier)

    @property
    def attempts(self) -> set[str] | None:
        """The attempts that wrote these files; None if no task was tried again."""
        if not any(report["repeated"] for report in self.reports):
            return None
        return {report["attempt"] for report in self.reports}

    def total(self, key: str) -> Counter[str]:
        """The sum of a count of rows over all tasks."""
        return sum((Counter(report[key]) for report in self.reports), Counter[str]())


class BatchCommitter:
    """Commits the micro-batches of one query; driver only.

    Every batch makes one commit per table, with the query's id as the commit user and the batch
    number as the commit identifier: first to the journal of lookups on servers (if any), then to
    the sink, then to the other auxiliary tables. Each table accepts a number only once. So a batch
    that was interrupted at any point runs again with the same input and commits only what is
    missing.
    """

    def __init__(self, spec: QuerySpec | ViewSpec) -> None:
        self._target = spec.target.identifier
        self._journal = None if spec.lookup_journal is None else spec.lookup_journal.identifier
        self._tag = query_tag(spec.query_id)
        self._sink = spec.open_sink().committer(spec.query_id)
        self._auxiliary_tables = {
            address.identifier: TableCommitter(address.warehouse, address.identifier, spec.query_id)
            for address in spec.auxiliary_tables
        }

    @property
    def tables(self) -> dict[str, Table]:
        """The Paimon tables that batches commit to, by name."""
        tables = {name: committer.table for name, committer in self._auxiliary_tables.items()}
        if self._sink.table is not None:
            tables[self._target] = self._sink.table
        return tables

    def close(self) -> None:
        """Release the connections of the sink."""
        self._sink.close()

    def check_log(self, log: BatchLog) -> None:
        """Raise `DataLossError` if a table or sink has a later batch of the query than its log."""
        self._sink.check_log(log)
        for identifier, committer in self._auxiliary_tables.items():
            log.check(committer.last_identifier(), f"table {identifier}")

    def commit(self, sent: RDD[Record]) -> TaskResults | None:
        """Run a batch's tasks and commit what they wrote; None if there was nothing to read."""
        results: TaskResults | None = None
        began = 0.0

        def write() -> WrittenBatch | None:
            nonlocal results, began
            results = self._write(sent)
            began = time.monotonic()
            if results is None:
                return None
            return WrittenBatch(results.number, results.messages.get(self._target, []))

        def discard() -> None:
            for identifier, committer in self._auxiliary_tables.items():
                # A batch that runs again reads the journal of lookups.
                if identifier != self._journal and results is not None:
                    committer.abort(results.messages.get(identifier, []))

        made = self._sink.commit(write, discard)
        if results is None:
            return None
        commit = None
        if made and self._sink.table is not None:
            own = {self._target: results.messages.get(self._target, [])}
            commit = Commit.of(own, (time.monotonic() - began) * 1000)
        self._commit_auxiliary_tables(results)
        return replace(results, commit=commit, earlier=not made)

    def _commit_auxiliary_tables(self, results: TaskResults) -> None:
        """Commit what the batch wrote besides the sink and the journal."""
        reached("target-committed", results.number, self._target)
        for identifier, committer in self._auxiliary_tables.items():
            if identifier == self._journal:
                continue
            own = results.messages.get(identifier, [])
            if own:
                committer.commit(results.number, own)
            reached(f"{identifier.rpartition('__')[2]}-committed", results.number, self._target)
        attempts = results.attempts
        if attempts is not None:
            self.remove_leftovers(results.number, attempts)

    def remove_leftovers(self, from_batch: int, keep: Collection[str] = ()) -> None:
        """Remove the files of dead tasks in batches from `from_batch` on.

        Keeps those of the task attempts `keep`.
        """
        removed = self._sink.remove_leftovers(from_batch, keep)
        for committer in self._auxiliary_tables.values():
            removed += committer.remove_leftovers(self._tag, from_batch, keep)
        if removed:
            log.info("%s: removed %d left-over files", self._target, removed)

    def _write(self, sent: RDD[Record]) -> TaskResults | None:
        """Run a batch's tasks, and commit their journal of lookups on servers."""
        results = TaskResults.of(sent)
        if results is not None:
            reached("batch-written", results.number, self._target)
            if self._journal is not None:
                # The batch reads it if it runs again.
                journal = self._auxiliary_tables[self._journal]
                journal.commit(results.number, results.messages.get(self._journal, []))
                reached("looked_up-committed", results.number, self._target)
        return results
