"""One sync: a continuous query that writes to many tables, to each exactly once."""

import logging
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

from pyspark import RDD

from streamhouse.connectors.base import BatchLog, WrittenBatch
from streamhouse.connectors.mysql_cdc.binlog.binlog_inspector import BinlogInspector
from streamhouse.connectors.mysql_cdc.binlog.startup import check_startup, position_on_other_server
from streamhouse.connectors.mysql_cdc.database.followed_table import FollowedTable
from streamhouse.connectors.mysql_cdc.database.progress import DatabaseProgress
from streamhouse.connectors.mysql_cdc.database.table_sets import TableSets
from streamhouse.connectors.mysql_cdc.relay.relay import MOST_BYTES, Relays
from streamhouse.connectors.paimon.connector import PaimonSinkCommitter
from streamhouse.errors import CommitConflictError, DataLossError
from streamhouse.mysql.connection import FIRST_START_SECONDS, Session
from streamhouse.mysql.table import Server, check_server
from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.paimon.storage.object_store.store_retries import retried
from streamhouse.paimon.write.commit_retries import TRIES
from streamhouse.runtime.failpoint import reached
from streamhouse.runtime.monitoring.metrics import Commit, CountedBatch
from streamhouse.runtime.query_description import QueryDescription
from streamhouse.runtime.state.batch_logs import next_batch
from streamhouse.runtime.state.checkpoint import Checkpoint
from streamhouse.runtime.state.retention_holds import HeldTables, RetentionHolds
from streamhouse.runtime.streaming.batch_commit import TaskResults
from streamhouse.runtime.streaming.query import JobQuery, acquired
from streamhouse.runtime.streaming.spark_job import Record
from streamhouse.runtime.sync.options import SyncOptions
from streamhouse.runtime.sync.planner import SyncPlanner, TableState, progress_of
from streamhouse.runtime.sync.present_rows import FromScratch, PresentRows, why_other_rows
from streamhouse.runtime.sync.spec import SyncSpec
from streamhouse.runtime.sync.tables import SyncTables
from streamhouse.source import Offset

log = logging.getLogger("streamhouse.query")
_THREADS = 4
"""A commit mostly waits for storage (decision 148)."""


_REFRESH_S = 30.0
"""How often each target's consumer is refreshed, which shows that the sync is alive. One at a time:
a sync may have hundreds, each a request to an object store."""


class SyncQuery(JobQuery):
    """Runs a sync with a checkpoint; on the driver.

    The commit user is the id of the checkpoint, the identifier the batch's number, which each
    table accepts once. A batch that was interrupted between two tables runs again with the same
    input, and commits to the tables that lack it.
    """

    spec: SyncSpec

    def __init__(
        self,
        options: SyncOptions,
        checkpoint: Checkpoint,
        notice: Callable[[str], None],
        parallelism: int = 2,
        from_scratch: bool = False,
    ) -> None:
        self._options, self._notice = options, notice
        self._parallelism = parallelism
        scratch = FromScratch(options, checkpoint)
        description = QueryDescription(
            checkpoint.pipeline,
            checkpoint.path.name,
            options.name,
            options.address(options.name),
            checkpoint.path,
            (options.tables.databases,),
        )
        with acquired(checkpoint):
            self._scratch = scratch if scratch.begin(from_scratch, notice) else None
            self._query_id = checkpoint.query_id()
            super().__init__(checkpoint, description)
        self._table_sets = TableSets(checkpoint.path, options.mysql.address)
        # A sync that resumes waits longer for its server.
        resumes = bool(self.progress.last_offset)
        self._session = Session(options.mysql, *(() if resumes else (FIRST_START_SECONDS,)))
        self._relays = Relays(lambda mysql, offset: list(self._table_sets.latest().by_names()))
        self._created = False
        self._holds: dict[str, RetentionHolds] = {}
        self._refreshed, self._refresh_at = 0, 0.0
        self._log = BatchLog(checkpoint.path, checkpoint.logs.last_batch())
        self._committers: dict[str, PaimonSinkCommitter] = {}
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="sync-commit")
        self._open = ExitStack()
        self._open.callback(self._session.close)
        self._open.callback(self._relays.close)
        self._open.callback(self._pool.shutdown)

    # -- for the pipeline and its reporter

    @property
    def targets(self) -> list[TableAddress]:
        names = dict.fromkeys(table.target for table in self._table_sets.latest().tables.values())
        return [self._options.address(name) for name in names]

    def states(self) -> list[TableState]:
        """The progress of each followed table, after `prepare`."""
        return self._planner.states(self.progress.last_offset)

    @property
    def _database(self) -> DatabaseProgress | None:
        """How far the last committed batch has read the databases; None before the first."""
        return progress_of(self.progress.last_offset)

    # -- life cycle

    def prepare(self) -> None:
        """Find and create the tables, and start the reader of the binlog; needs no Spark."""
        if not self._created:
            self.create_tables()
        mysql = self._options.mysql
        options = replace(mysql, relay_bytes=mysql.relay_bytes or MOST_BYTES)
        self._relays.start_relay([(self, options)])
        self._planner = SyncPlanner(self.spec, find_tables=self._tables.discover)
        self.progress.planner = self._planner
        if not self.progress.last_offset and mysql.starts_in_the_past:
            # Raises its errors before Spark starts.
            self._planner.latest_offset({})

    def use_shared(self, folder: Path) -> None:
        self.spec = replace(self.spec, relay=folder)

    def create_tables(self) -> None:
        """Find the tables, and create those that are missing in Paimon."""
        self._created = True
        self._check_origin()
        server = check_server(self._session, self._options.mysql)
        self._check_startup(server)
        path = self.checkpoint.path
        self.spec = SyncSpec(self._query_id, self._options, path, server, self._parallelism)
        before = list(self._table_sets.latest().tables.values())
        self._hold(before, recognised=True)
        self._tables = SyncTables(
            self._options,
            self._table_sets,
            self._session,
            server,
            self._notice,
            self._join,
            PresentRows(self._options, self._query_id),
            self._scratch,
        )
        self._open.callback(self._tables.close)
        self._tables.start()
        kept = self._table_sets.latest().tables
        self._compare_changed_targets([table for table in before if table.id in kept])
        self._drop_old_table_sets(self.progress.last_offset)
        if not self.progress.replayed:
            self._remove_leftovers(self.tables, next_batch(self.progress.last_offset))

    def _compare_changed_targets(self, tables: Sequence[FollowedTable]) -> None:
        """Let the next batch compare targets that others have changed since the last one."""
        progress = self._database
        if progress is None:
            return
        found: dict[str, str] = {}
        for table in tables:
            why = why_other_rows(self._options, progress.at(table), self._query_id)
            if why is not None:
                found[table.target] = why
        for target, why in found.items():
            self._notice(f"{target} {why}: its rows are compared with those of MySQL")
        self._tables.note(progress, found)

    def tick(self) -> None:
        """Raise the binlog reader's error, drop what it need not keep, refresh consumers."""
        self._relays.step()
        if self.started:
            self._tables.keep_discovering()
            self._refresh_consumer()
        self._planner.observe(self._database)

    def _refresh_consumer(self) -> None:
        """Refresh the consumer of the next target, and move it forward, if it is due."""
        now, holds = time.monotonic(), list(self._holds.values())
        if holds and now >= self._refresh_at:
            self._refreshed += 1
            self._refresh_at = now + _REFRESH_S / len(holds)
            retried(holds[self._refreshed % len(holds)].tick)

    def release(self) -> None:
        self._open.close()

    # -- batches

    def commit(self, sent: RDD[Record]) -> CountedBatch | None:
        took_ms: list[float] = []
        for number in range(TRIES + 1):
            written = TaskResults.of(sent)
            if written is None:
                return None
            reached("batch-written", written.number, self._options.name)
            if number == 0:
                self._before_commit(written.messages)
            took_ms = []
            if self._committed(written, took_ms):
                break
        else:
            raise CommitConflictError(
                f"sync of {self._options.name}: other writers changed one of its tables during "
                "every attempt; write the tables of a sync from nowhere else"
            )
        unread = {target for report in written.reports for target in report["unread"]}
        if unread:
            self._remove_leftovers(unread, written.number)
        if written.attempts is not None:
            self._remove_leftovers(written.messages, written.number, written.attempts)
        snapshot, changes = written.total("snapshot"), written.total("changes")
        self._planner.count(snapshot, changes)
        self.progress.committed(written.end)
        database = self._database
        assert database is not None
        if self._tables.note(database, unread):
            self._drop_old_table_sets(written.start)
        for text in database.statements:
            self._notice(text)
        return CountedBatch(
            snapshot.total() + changes.total(),
            written.total("kinds"),
            # The commits to all targets as one, as long as the longest of them.
            Commit.of(written.messages, max(took_ms, default=0.0)),
            {name: len(own) for name, own in written.messages.items()},
        )

    def _committed(self, written: TaskResults, took_ms: list[float]) -> bool:
        """Commit to each table; False if the files of one are outdated."""

        def commit(target: str) -> bool:
            # The oldest snapshot that a writer of this target saw; 0 for none.
            base = min(one["bases"][target] for one in written.reports if target in one["bases"])
            batch = WrittenBatch(written.number, written.messages[target])
            began = time.monotonic()
            if self._committers[target].commit_written(batch, base or None) is None:
                return False
            took_ms.append((time.monotonic() - began) * 1000)
            reached("table-committed", written.number, target)
            return True

        list(self._pool.map(self._committer, written.messages))
        return all(list(self._pool.map(commit, written.messages)))

    def _remove_leftovers(
        self, targets: Iterable[str], from_batch: int, keep: Collection[str] = ()
    ) -> None:
        """Remove the files of dead tasks, of batches from `from_batch` on."""

        def remove(target: str) -> int:
            return self._committer(target).remove_leftovers(from_batch, keep)

        removed = sum(self._pool.map(remove, targets))
        if removed:
            log.info("%s: removed %d left-over files", self._options.name, removed)

    def _committer(self, target: str) -> PaimonSinkCommitter:
        if target not in self._committers:
            address = self._options.address(target)
            committer = PaimonSinkCommitter(address, self._query_id, commutes=False)
            committer.check_log(self._log)
            self._committers[target] = committer
        return self._committers[target]

    def _check_startup(self, server: Server) -> None:
        """Raise `DataLossError` if this server's binlog lacks the changes that follow."""
        options, known = self._options.mysql, self._database
        if known is None:
            check_startup(self._session, options, server)
            return
        with closing(BinlogInspector(self._session, options, server)) as binlog:
            state = known.binlog_state
            if not position_on_other_server(binlog, state, options.name):
                binlog.check(known.position, state.binlog)

    def _join(self, tables: Sequence[FollowedTable]) -> None:
        """Prepare for new tables, before a batch reads them."""
        self._hold(tables, recognised=False)
        self._relays.follow([table.names for table in tables])
        names = ", ".join(table.full_name for table in tables[:3])
        more = f" and {len(tables) - 3} more" if len(tables) > 3 else ""
        if self.started:
            self._notice(f"now also following {names}{more}")

    def _hold(self, tables: Iterable[FollowedTable], recognised: bool) -> None:
        """Create consumers at the targets of tables before the sync commits to them.

        `recognised`: as of `HeldTables`; also raises the `DataLossError` of `RetentionHolds`.
        """
        for target in {table.target for table in tables} - self._holds.keys():
            held = HeldTables([self._options.address(target)], recognised=recognised)
            holds = RetentionHolds(self._query_id, held, self.checkpoint, self.progress)
            holds.prepare()
            self._holds[target] = holds

    def _before_commit(self, targets: Iterable[str]) -> None:
        for target in self._holds.keys() & set(targets):
            retried(self._holds[target].batch_begins)

    def _drop_old_table_sets(self, start: Offset) -> None:
        """Delete the table sets before that of a batch which the next one may begin at."""
        database = progress_of(start)
        if database is not None:
            self._table_sets.drop_before(database.table_set)

    def _check_origin(self) -> None:
        before = self.progress.last_offset.get("of")
        if before is not None and before != self._options.origin:
            raise DataLossError(
                f"the sync '{self.description.pipeline}' has followed {before} so far, and should "
                f"now follow {self._options.origin}: its offsets are not those of these tables. "
                "Choose another --name, or go on with the old databases"
            )
