"""One sync: a Spark streaming query that writes to many tables, to each exactly once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace

from pyspark.sql import DataFrame

from streamhouse.connectors.mysql_cdc.binlog.binlog_inspector import BinlogInspector
from streamhouse.connectors.mysql_cdc.binlog.startup import (
    check_startup,
    position_on_other_server,
    startup_position,
)
from streamhouse.connectors.mysql_cdc.database.discovery import Discovery
from streamhouse.connectors.mysql_cdc.database.followed_table import FollowedTable
from streamhouse.connectors.mysql_cdc.database.progress import DatabaseProgress
from streamhouse.connectors.mysql_cdc.database.sync_startup import absent_tables
from streamhouse.connectors.mysql_cdc.database.table_sets import TableSets
from streamhouse.connectors.mysql_cdc.relay.relay import FOLDER, MOST_BYTES, Relay, own_folder
from streamhouse.connectors.mysql_cdc.relay.state import RelayView
from streamhouse.errors import DataLossError
from streamhouse.mysql.connection import FIRST_START_SECONDS, Session
from streamhouse.mysql.position import BinlogPosition
from streamhouse.mysql.table import Server, check_server
from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.runtime.query_description import QueryDescription
from streamhouse.runtime.reset.marker import ResetMarker
from streamhouse.runtime.state.batch_logs import next_batch
from streamhouse.runtime.state.checkpoint import Checkpoint
from streamhouse.runtime.streaming.query import CountedBatch, JobQuery, acquired
from streamhouse.runtime.sync.commit import SyncCommitter, SyncHolds, unread_targets
from streamhouse.runtime.sync.mapping.targets import Targets
from streamhouse.runtime.sync.options import SyncOptions
from streamhouse.runtime.sync.present_rows import (
    FromScratch,
    PresentRows,
    why_other_rows,
)
from streamhouse.runtime.sync.source_progress import TablesProgress, TableState, progress_of
from streamhouse.runtime.sync.spec import SyncSpec
from streamhouse.runtime.sync.tables import SyncTables
from streamhouse.source import Offset


class SyncQuery(JobQuery):
    """Runs a sync with a checkpoint; on the driver. `sync.commit` commits its batches."""

    spec: SyncSpec

    def __init__(
        self,
        options: SyncOptions,
        checkpoint: Checkpoint,
        pipeline: str,
        notice: Callable[[str], None],
        parallelism: int = 2,
        from_scratch: bool = False,
    ) -> None:
        self._options, self._notice = options, notice
        self._parallelism = parallelism
        marker = ResetMarker(checkpoint.path.parent.parent, pipeline)
        scratch = FromScratch(options, checkpoint, marker)
        description = QueryDescription(
            pipeline,
            checkpoint.path.name,
            options.name,
            TableAddress(options.warehouse, options.name),
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
        self._relay: Relay | None = None
        self._moved_from: Offset | None = None
        self._past: DatabaseProgress | None = None
        self._open = ExitStack()
        self._open.callback(self._session.close)

    # -- for the pipeline and its reporter

    @property
    def targets(self) -> list[TableAddress]:
        return [TableAddress(self._options.warehouse, name) for name in self.tables]

    @property
    def tables(self) -> list[str]:
        tables = self._table_sets.latest().tables.values()
        return list(dict.fromkeys(table.target for table in tables))

    def states(self) -> list[TableState]:
        """The progress of each followed table, after `prepare`."""
        return self._read.states(self.progress.last_offset)

    @property
    def _database(self) -> DatabaseProgress | None:
        """How far the last committed batch has read the databases; None before the first."""
        return progress_of(self.progress.last_offset)

    # -- life cycle

    def prepare(self) -> None:
        """Find and create the tables, and start the reader of the binlog; needs no Spark."""
        if self._relay is None:
            self.create_tables()
        assert self._relay is not None
        self._relay.start()

    def create_tables(self) -> None:
        """Find the tables, and create those that are missing in Paimon."""
        self._check_origin()
        server = self._server = check_server(self._session, self._options.mysql)
        position, gtids = self._resume_position(server)
        folder, held = own_folder(self._checkpoint.path / FOLDER)
        self._relay = Relay(
            self._options.mysql,
            [],
            folder,
            [] if position is None else [position],
            self._options.mysql.relay_bytes or MOST_BYTES,
            complete=True,
            gtids={} if position is None or gtids is None else {position: gtids},
            held=held,
        )
        self._open.callback(self._relay.close)
        self.spec = SyncSpec(
            self._query_id,
            self._options,
            self._checkpoint.path,
            folder,
            self._parallelism,
        )
        self._holds = SyncHolds(self.spec, self._checkpoint, self.progress)
        self._committer = SyncCommitter(self.spec, self._holds.before_commit)
        self._open.callback(self._committer.close)
        before = list(self._table_sets.latest().tables.values())
        start = self._start(before)
        if start is not None:
            self._table_sets.add(before, start=start)
        self._relay.follow([table.names for table in before])
        self._holds.add(dict.fromkeys(table.target for table in before), self.progress.replayed)
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
        self._read = self.progress.planner = TablesProgress(
            self._options, self._checkpoint, RelayView(folder), server, self._tables.discover
        )
        self._drop_old_table_sets(self.progress.last_offset)
        if not self.progress.replayed:
            self._committer.remove_leftovers(self.tables, next_batch(self.progress.last_offset))

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
        assert self._relay is not None
        self._relay.check()
        if self._run.started:
            self._tables.discover_soon()
        database = self._database
        if database is not None and self.progress.last_offset != self._moved_from:
            self._relay.needed_from(database.position)
            self._read.observe(database.position)
        self._holds.tick()

    def release(self) -> None:
        self._open.close()

    # -- batches

    def commit(self, frame: DataFrame) -> CountedBatch | None:
        written = self._committer.commit(frame)
        if written is None:
            return None
        snapshot, changes = written.total("snapshot"), written.total("changes")
        self._read.table_states.count(snapshot, changes)
        self.progress.committed(written.end)
        database = self._database
        assert database is not None
        if self._tables.note(database, unread_targets(written)):
            self._drop_old_table_sets(written.start)
        for text in database.statements:
            self._notice(text)
        self._copy_comments(database)
        return CountedBatch(
            snapshot.total() + changes.total(),
            written.total("kinds"),
            written.commit,
            {name: len(own) for name, own in written.messages.items()},
        )

    def _copy_comments(self, progress: DatabaseProgress) -> None:
        """Copy the comments of tables that the last batch altered, or whose rows it compared."""
        names = {
            id: table.names
            for id, table in self._table_sets.get(progress.table_set).tables.items()
            if id in progress.altered or table.target in progress.reloaded
        }
        if not names:
            return
        # Of this thread: Spark calls back in its own.
        with closing(Session(self._options.mysql)) as session:
            discovery = Discovery(session, self._options.mysql, self._options.tables)
            found = discovery.described(set(names.values()))
        Targets(self._options, self._notice).copy_comments(found.values())

    def _resume_position(self, server: Server) -> tuple[BinlogPosition | None, str | None]:
        """Where the binlog is read from, after which GTIDs; None: from its end on.

        Raises `DataLossError` if this server's binlog lacks the position.
        """
        options, progress = self._options.mysql, self._database
        with closing(BinlogInspector(self._session, options, server)) as binlog:
            if progress is None and options.starts_in_the_past:
                progress = DatabaseProgress.from_offset(self._table_sets.latest().start)
                if progress is None:
                    check_startup(self._session, options, server)
                    start = startup_position(self._session, options, server, binlog)
                    progress = self._past = DatabaseProgress(0, *start)
            if progress is None:
                return None, None
            position, state = progress.position, progress.binlog_state
            moved = position_on_other_server(self._session, options, server, binlog, state)
            if moved is not None:
                self._moved_from = self.progress.last_offset
                return moved[0], state.gtids
            binlog.check(position, state.binlog)
            return position, state.gtids

    def _start(self, tables: Sequence[FollowedTable]) -> Offset | None:
        """Where the first tables begin, by the next table set, if they begin in the past."""
        if self._past is None or not tables:
            return None
        start, self._past = self._past, None
        gone = absent_tables(start, tables, self._session, self._options.mysql, self._server)
        number = self._table_sets.latest_number() + 1
        return replace(start, table_set=number, gone=gone).to_offset()

    def _join(self, tables: Sequence[FollowedTable]) -> Offset | None:
        """Prepare for new tables, before a batch reads them; returns where the first ones begin."""
        assert self._relay is not None
        self._holds.add(dict.fromkeys(table.target for table in tables))
        self._relay.follow([table.names for table in tables])
        names = ", ".join(table.full_name for table in tables[:3])
        more = f" and {len(tables) - 3} more" if len(tables) > 3 else ""
        if self._run.started:
            self._notice(f"now also following {names}{more}")
        return self._start(tables)

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
