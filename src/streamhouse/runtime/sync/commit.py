"""Exactly-once commits of a sync's batches: one per table, each under the batch's number."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from pyspark.sql import DataFrame

from streamhouse.connectors.base import BatchLog, WrittenBatch
from streamhouse.connectors.paimon.connector import PaimonSinkCommitter
from streamhouse.errors import CommitConflictError
from streamhouse.paimon.write.commit_retries import TRIES
from streamhouse.runtime.failpoint import reached
from streamhouse.runtime.monitoring.metrics import Commit, timed
from streamhouse.runtime.state.batch_logs import BatchLogs
from streamhouse.runtime.streaming.batch_commit import TaskResults
from streamhouse.runtime.sync.spec import SyncSpec

log = logging.getLogger("streamhouse.query")
_THREADS = 4
"""A commit mostly waits for storage (decision 215)."""


class SyncCommitter:
    """Commits the batches of one sync; driver only.

    The commit user is the id of the checkpoint, the identifier the batch's number, which each
    table accepts once. A batch that was interrupted between two tables runs again with the same
    input, and commits to the tables that lack it.
    """

    def __init__(self, spec: SyncSpec, before: Callable[[Collection[str]], None]) -> None:
        """`before` is called with the targets of each batch before the first commit."""
        self._spec, self._before = spec, before
        self._log = BatchLog(spec.checkpoint, BatchLogs(spec.checkpoint).last_batch())
        self._committers: dict[str, PaimonSinkCommitter] = {}
        self._took_ms: list[float] = []
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="sync-commit")

    def commit(self, frame: DataFrame) -> TaskResults | None:
        """Run a batch's tasks and commit what they wrote; None if there was nothing to read.

        Runs them again if other writers outdate the files of a table.
        """
        for number in range(TRIES + 1):
            written = TaskResults.of(frame)
            if written is None:
                return None
            reached("batch-written", written.number, self._spec.options.name)
            if number == 0:
                self._before(written.messages)
            if self._committed(written):
                break
        else:
            raise CommitConflictError(
                f"sync of {self._spec.options.name}: other writers changed one of its tables "
                "during every attempt; write the tables of a sync from nowhere else"
            )
        unread = unread_targets(written)
        if unread:
            self.remove_leftovers(unread, written.number)
        attempts = written.attempts
        if attempts is not None:
            self.remove_leftovers(written.messages, written.number, attempts)
        # The commits to all targets as one, as long as the longest of them.
        return replace(written, commit=Commit.of(written.messages, max(self._took_ms, default=0.0)))

    def remove_leftovers(
        self, targets: Iterable[str], from_batch: int, keep: Collection[str] = ()
    ) -> None:
        """Remove the files of dead tasks, of batches from `from_batch` on."""

        def remove(target: str) -> int:
            return self._committer(target).remove_leftovers(from_batch, keep)

        removed = sum(self._pool.map(remove, targets))
        if removed:
            log.info("%s: removed %d left-over files", self._spec.options.name, removed)

    def close(self) -> None:
        self._pool.shutdown()

    def _committed(self, written: TaskResults) -> bool:
        """Commit to each table; False if the files of one are outdated."""
        targets = list(written.messages)
        self._took_ms.clear()
        list(self._pool.map(self._committer, targets))
        commits = self._pool.map(lambda target: self._commit_one(target, written), targets)
        return all(list(commits))

    def _commit_one(self, target: str, written: TaskResults) -> bool:
        # The oldest snapshot that a writer of this target saw; 0 for none.
        base = min(one["bases"][target] for one in written.reports if target in one["bases"])
        batch = WrittenBatch(written.number, written.messages[target])
        with timed(target, self._took_ms):
            if self._committers[target].commit_written(batch, base or None) is None:
                return False
        reached("table-committed", written.number, target)
        return True

    def _committer(self, target: str) -> PaimonSinkCommitter:
        if target not in self._committers:
            address, query_id = self._spec.options.address(target), self._spec.query_id
            committer = PaimonSinkCommitter(address, query_id, commutes=False)
            committer.check_log(self._log)
            self._committers[target] = committer
        return self._committers[target]


def unread_targets(written: TaskResults) -> set[str]:
    """The targets whose rows a batch could not read, as statements had altered their tables."""
    return {target for report in written.reports for target in report["unread"]}
