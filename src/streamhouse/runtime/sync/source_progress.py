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
from streamhouse.runtime.query_source import source_offset
from streamhouse.runtime.state.checkpoint import Checkpoint
from streamhouse.runtime.sync.options import SyncOptions
from streamhouse.source import Lag, Offset


class TablesProgress:
    """How far a sync has read its tables; the `Planner` of its query's `QueryProgress`.

    `find_tables` looks for new tables, and returns how many it has found.
    """

    def __init__(
        self,
        options: SyncOptions,
        checkpoint: Checkpoint,
        view: RelayView,
        server: Server,
        find_tables: Callable[[], int],
    ) -> None:
        self._options, self._view, self._server = options, view, server
        self._table_sets = TableSets(checkpoint.path)
        self._session = Session(options.mysql)
        self._find_tables = find_tables
        self.table_states = TableStates()

    def observe(self, position: BinlogPosition) -> None:
        """Record which tables have changes after a position; called often."""
        state = self._view.state()
        if state is not None:
            self.table_states.observe(position, state.changed)

    def caught_up(self, start: Offset) -> bool:
        """Whether no rows are left to read after a batch, and there is no new table."""
        database = progress_of(start)
        if database is None:
            return False
        planned = self._table_sets.get(database.table_set)
        unread = self._table_sets.unread_since(planned.number)
        if has_unread_rows(self._table_sets.latest(), planned, database, unread):
            return False
        if self._options.ends_with_snapshot:
            return True
        position = database.position
        if not self._view.has(database.binlog_state.binlog, position):
            return False
        state = self._view.current(lambda: self._server.position(self._session))
        if state is None:
            return False
        if any(position < state.changed.get(name, state.end) for name in self._names()):
            return False
        return not self._find_tables()

    def lag(self, start: Offset) -> Lag | None:
        """The longest lag of a table; its seconds are None before the snapshots are complete."""
        database = progress_of(start)
        if database is None:
            return None
        states = self.states(start)
        known = [followed.lag_s for followed in states if followed.lag_s is not None]
        unread = [followed for followed in states if not followed.complete]
        rows = sum(max(0, followed.estimate - followed.snapshot_rows) for followed in unread)
        snapshots = Snapshots(len(unread), rows, self._options.mysql.chunk_size)
        state = source_state(snapshots, database.position, self._view.state(), self._names())
        complete = bool(known) and len(known) == len(states)
        return Lag(seconds=max(known) if complete else None, state=state)

    def rows_left(self, start: Offset) -> int | None:
        """None: a sync reports the progress of its snapshots by itself."""
        return None

    def states(self, start: Offset) -> list[TableState]:
        """The progress of each followed table."""
        database = progress_of(start)
        planned = () if database is None else self._table_sets.get(database.table_set).tables
        newest, silent_s = self._table_sets.latest(), self._view.silent_s()
        return self.table_states.states(newest, database, planned, silent_s)

    def close(self) -> None:
        """Close the connection and the log."""
        self._session.close()
        self._view.close()

    def _names(self) -> list[str]:
        """The names of all followed tables in MySQL."""
        return [table.full_name for table in self._table_sets.latest().tables.values()]


def progress_of(offset: Offset) -> DatabaseProgress | None:
    """How far a batch has read the databases; None before the first."""
    return DatabaseProgress.from_offset(source_offset(offset))


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
