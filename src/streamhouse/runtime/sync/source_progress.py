"""Progress of a sync's query: its offset, its snapshots, and the lag of its tables."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from streamhouse.connectors.mysql_cdc.database.progress import DatabaseProgress
from streamhouse.connectors.mysql_cdc.database.table_sets import TableSet, TableSets
from streamhouse.connectors.mysql_cdc.lag import Snapshots, UnreadChanges, source_state
from streamhouse.connectors.mysql_cdc.relay.state import RelayView
from streamhouse.mysql.connection import Session
from streamhouse.mysql.position import BinlogPosition
from streamhouse.mysql.table import Server
from streamhouse.runtime.state.checkpoint import Checkpoint
from streamhouse.runtime.sync.options import SyncOptions
from streamhouse.runtime.sync.spec import UnreadTargets
from streamhouse.source import Lag, Offset


class SyncProgress:
    """The `SourceProgress` of a `SyncQuery`, which reports its batches to it."""

    def __init__(self, options: SyncOptions, checkpoint: Checkpoint, table_sets: TableSets) -> None:
        self._options, self._table_sets = options, table_sets
        self._last: Offset = checkpoint.logs.last_offset()
        self._replayed = checkpoint.logs.last_logged() <= checkpoint.logs.last_committed()
        self._unread = UnreadTargets(checkpoint.path)
        self._session = Session(options.mysql)
        self._table_states = TableStates()
        self._view: RelayView | None = None
        self._server: Server | None = None
        self._find_tables: Callable[[], int] = lambda: 0

    @property
    def last_offset(self) -> Offset:
        return self._last

    @property
    def replayed(self) -> bool:
        return self._replayed

    @property
    def database(self) -> DatabaseProgress | None:
        """How far the last committed batch has read the databases; None before the first."""
        return DatabaseProgress.from_offset(self._last.get("source", {}))

    def prepared(self, view: RelayView, server: Server, find_tables: Callable[[], int]) -> None:
        """Compare with this relay log and server from now on.

        `find_tables` looks for new tables, and returns how many it has found.
        """
        self._view, self._server, self._find_tables = view, server, find_tables

    def committed(
        self, end: Offset, snapshot: Mapping[str, int], changes: Mapping[str, int]
    ) -> None:
        """Record a committed batch, with its rows by the ids of tables."""
        self._replayed = True
        self._last = end
        self._table_states.count(snapshot, changes)

    def observe(self) -> None:
        """Record which tables have changes that are not read yet; called often."""
        database = self.database
        if database is None or self._view is None:
            return
        state = self._view.state()
        if state is not None:
            self._table_states.observe(database.position, state.changed)

    def caught_up_offset(self) -> Offset | None:
        last, database = self._last, self.database
        if database is None or self._view is None or self._server is None:
            return None
        planned = self._table_sets.get(database.table_set)
        unread = self._unread.of(int(last["batch"]))
        if has_unread_rows(self._table_sets.latest(), planned, database, unread):
            return None
        if self._options.ends_with_snapshot:
            return last
        server, view = self._server, self._view
        if not view.has(database.binlog_state.binlog, database.position):
            return None
        state = view.current(lambda: server.position(self._session))
        if state is None:
            return None
        if any(database.position < state.changed.get(name, state.end) for name in self._names()):
            return None
        return None if self._find_tables() else last

    def lag(self) -> Lag | None:
        """The longest lag of a table; its seconds are None before the snapshots are complete."""
        database = self.database
        if database is None or self._view is None:
            return None
        states = self.states()
        known = [followed.lag_s for followed in states if followed.lag_s is not None]
        log = self._view.state()
        unread = [followed for followed in states if not followed.complete]
        rows = sum(max(0, followed.estimate - followed.snapshot_rows) for followed in unread)
        snapshots = Snapshots(len(unread), rows, self._options.mysql.chunk_size)
        state = source_state(snapshots, database.position, log, self._names())
        complete = bool(known) and len(known) == len(states)
        return Lag(seconds=max(known) if complete else None, state=state)

    def rows_left(self) -> int | None:
        """None: a sync reports the progress of its snapshots by itself."""
        return None

    def states(self) -> list[TableState]:
        """The progress of each followed table."""
        database = self.database
        planned = () if database is None else self._table_sets.get(database.table_set).tables
        silent_s = 0.0 if self._view is None else self._view.silent_s()
        return self._table_states.states(self._table_sets.latest(), database, planned, silent_s)

    def close(self) -> None:
        """Close the connection and the log."""
        self._session.close()
        if self._view is not None:
            self._view.close()

    def _names(self) -> list[str]:
        """The names of all followed tables in MySQL."""
        return [table.full_name for table in self._table_sets.latest().tables.values()]


def has_unread_rows(
    newest: TableSet, planned: TableSet, database: DatabaseProgress, unread: Collection[str]
) -> bool:
    """Whether followed tables have rows left that are read without a change in the binlog.

    `planned` is the table set of the last batch, and `unread` are the targets that it could not
    read. Tables that the options exclude now do not count: on an idle server no batch follows.
    """
    targets = {table.target for table in newest.tables.values()}
    return (
        not newest.tables.keys() <= planned.tables.keys()
        or not newest.tables.keys().isdisjoint(database.snapshot)
        or not targets.isdisjoint((*database.stale, *unread))
    )


@dataclass(frozen=True)
class TableState:
    """One followed table: rows since the start of this run, and how far it is behind.

    `estimate`: the server's estimate of its rows. `lag_s` is None until the snapshot is `complete`.
    """

    table: str
    target: str
    complete: bool
    snapshot_rows: int
    estimate: int
    changes: int
    lag_s: float | None


class TableStates:
    """Counts the rows of each table, and records the time from which it has unread changes."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._snapshot: Counter[str] = Counter()
        self._changes: Counter[str] = Counter()
        self._unread = defaultdict[str, UnreadChanges](lambda: UnreadChanges(clock))

    def count(self, snapshot: Mapping[str, int], changes: Mapping[str, int]) -> None:
        """Count the rows of a committed batch."""
        self._snapshot.update(snapshot)
        self._changes.update(changes)

    def observe(self, position: BinlogPosition, changed: Mapping[str, BinlogPosition]) -> None:
        """Record which tables have changes after a position; called often.

        `changed`: where the last change of each table ends.
        """
        for table, at in changed.items():
            self._unread[table].observe(position, at)

    def states(
        self,
        table_set: TableSet,
        progress: DatabaseProgress | None,
        planned: Collection[str],
        silent_s: float = 0.0,
    ) -> list[TableState]:
        """The state of each table, in the order of their names.

        `planned`: the ids of the tables that the progress is about; the others are newer.
        `silent_s`: for how long the server has sent nothing.
        """
        states = []
        for table in sorted(table_set.tables.values(), key=lambda followed: followed.full_name):
            complete = (
                progress is not None
                and table.id in planned
                and table.id not in progress.snapshot
                and table.target not in progress.stale
            )
            states.append(
                TableState(
                    table.full_name,
                    table.target,
                    complete,
                    self._snapshot[table.id],
                    table.rows,
                    self._changes[table.id],
                    max(self._unread[table.full_name].seconds, silent_s) if complete else None,
                )
            )
        return states
