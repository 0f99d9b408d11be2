"""Plans the batches of many tables: their offsets have one position of the binlog.

docs/decisions/148-one-query-syncs-many-tables.md says why.
"""

import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

from streamhouse.connectors.mysql_cdc.binlog.binlog_inspector import BinlogInspector
from streamhouse.connectors.mysql_cdc.binlog.captured_table import CapturedTable
from streamhouse.connectors.mysql_cdc.binlog.dump import reset_error
from streamhouse.connectors.mysql_cdc.binlog.startup import (
    position_on_other_server,
    startup_position,
)
from streamhouse.connectors.mysql_cdc.change_reader import TablePosition, log_view
from streamhouse.connectors.mysql_cdc.database.discovery import FoundTable
from streamhouse.connectors.mysql_cdc.database.followed_table import FollowedTable
from streamhouse.connectors.mysql_cdc.database.part_reader import ALL_ROWS, TablePart
from streamhouse.connectors.mysql_cdc.database.progress import DatabaseProgress, Stale
from streamhouse.connectors.mysql_cdc.database.statement_scan import FoundStatement, StatementLog
from streamhouse.connectors.mysql_cdc.relay.files import bounded
from streamhouse.connectors.mysql_cdc.relay.state import RelayState, RelayView, UnreadChanges
from streamhouse.connectors.mysql_cdc.snapshot.chunk_reader import Chunk, split
from streamhouse.errors import AlteredTableError, DataLossError
from streamhouse.mysql.connection import Session
from streamhouse.mysql.options import MySqlOptions
from streamhouse.mysql.position import START_AGAIN, BinlogPosition, BinlogState, KeyJson
from streamhouse.mysql.table import Server, TableDefinition
from streamhouse.mysql.table_lock import check_lockable
from streamhouse.source import Lag, Offset, SourceState

SMALL_TABLE = 0.25
"""The last chunk of a table counts as this many chunks, since it may be nearly empty."""
_CHUNK_BYTES = 8 << 20
BATCH_BYTES = 64 << 20
"""The most bytes of the relay log in one batch: more need more memory, and are not faster."""
_BUDGET_BYTES = 256 << 20
_COLUMN_BYTES = 8
Tables: TypeAlias = Mapping[str, FollowedTable]
"""Tables by their ids."""


class TablesPlanner(ABC):
    """Plans the batches of a set of tables, of a sync or a declared table; on the driver.

    Offsets are those of `DatabaseProgress`. The same two offsets give the same parts, except that
    tables which are no longer followed are left out. A batch of changes ends before a statement
    about a table, and a batch that begins with one has nothing else of the table.

    While snapshots are read, each batch also has the changes of the rows that were read before.

    `session`: closed with the planner. `relay`: the folder of the relay log; what it lacks is read
    from the server.
    """

    batch_chunks = 128
    """The most chunks in a batch."""

    def __init__(
        self,
        options: MySqlOptions,
        session: Session,
        server: Server,
        relay: Path | None,
    ) -> None:
        self._options, self._session, self._server = options, session, server
        self._relay = relay
        self._binlog = BinlogInspector(session, options, server)
        self._advanced_at = time.monotonic()
        self._stop_at: BinlogPosition | None = None
        self._statements = StatementLog(self._captured_table, relay)
        self._plan: tuple[Offset, Mapping[str, list[Chunk]]] | None = None
        self._planned_log: RelayState | None = None
        self._unread: dict[str, UnreadChanges] = defaultdict(UnreadChanges)

    def close(self) -> None:
        self._statements.close()
        self._binlog.close()
        self._session.close()

    # -- what differs between a sync and a declared table

    @abstractmethod
    def tables_of(self, progress: DatabaseProgress) -> Tables:
        """The tables of a batch, as they are at its end, but for those no longer followed."""

    @abstractmethod
    def first_tables(self) -> Collection[FollowedTable] | Collection[FoundTable]:
        """The tables before the first batch."""

    @abstractmethod
    def _first(self, position: BinlogPosition, state: BinlogState) -> DatabaseProgress:
        """The progress of the first tables at a position from which changes are read."""

    @abstractmethod
    def _newest(self, before: DatabaseProgress) -> tuple[DatabaseProgress, Tables, Collection[str]]:
        """The progress with the tables of now; these; and the ids of those that are new."""

    def _compared(self, added: Collection[str], table_set: int) -> Mapping[str, Stale]:
        """The targets to compare with MySQL before rows of the tables `added` are written."""
        return {}

    def _reloaded(self, after: DatabaseProgress) -> DatabaseProgress | None:
        """The end of a batch that reloads stale targets; None if no target can be reloaded yet."""
        return None

    def _unreadable(
        self,
        after: DatabaseProgress,
        plan: Collection[str],
        altered: Mapping[str, AlteredTableError],
    ) -> Mapping[str, Stale]:
        """The targets whose chunks are left out of the batch up to `after`.

        `plan`: the tables with chunks; those in `altered` were altered since their description.
        """
        for error in altered.values():
            raise error
        return {}

    @abstractmethod
    def _followed(
        self, before: DatabaseProgress, group: Sequence[FoundStatement]
    ) -> DatabaseProgress:
        """The end of a batch that consists of statements about tables."""

    def _after_changes(
        self, before: DatabaseProgress, after: DatabaseProgress, added: Collection[str]
    ) -> DatabaseProgress:
        """The end of a batch of changes, which has no statement about a table.

        `added`: the ids of tables that are new in the batch.
        """
        return after

    def _captured_table(self, table: FollowedTable) -> CapturedTable:
        """What readers of the binlog need of a table."""
        return table.captured_table(self._options, self._server, self._relay)

    def _position(self, progress: DatabaseProgress, table: FollowedTable) -> TablePosition:
        return TablePosition(progress.position, progress.binlog_state, table.definition)

    # -- offsets

    def next_offset(self, start: Offset, max_rows: int | None = None) -> Offset:
        """The end of the next batch, of about `max_rows`; `start` if there is nothing to read."""
        last = DatabaseProgress.from_offset(start)
        if last is None:
            return self._begin(max_rows).to_offset()
        before, added = self._of_newest(last)
        after = self._moved(last, self.relay_log(before))
        if after is None and (before.snapshot or before.stale):
            after = self._next_rows(before, added, max_rows)
        elif after is None and self._options.startup_mode != "snapshot":
            after = self._next_changes(before, max_rows)
        return start if after is None else after.to_offset()

    def has_read_all(self, offset: Offset) -> bool:
        """Whether nothing is left to read after an offset, also if a relay log is behind."""
        last = DatabaseProgress.from_offset(offset)
        if last is None:
            return False
        progress, added = self._of_newest(last)
        if added or progress.snapshot or progress.stale:
            return False
        if self._options.startup_mode == "snapshot":
            return True
        position, view = progress.position, self.relay_log(progress)
        if self._moved(progress, view) is not None:
            return False
        if view is None:
            return not position < self._current()
        state = view.current(self._current)
        names = [table.full_name for table in self.tables_of(progress).values()]
        return state is not None and not any(position < state.changed[name] for name in names)

    # -- progress

    def observe(self, progress: DatabaseProgress | None) -> None:
        """Record which tables have changes after a batch; lags are as exact as this is frequent."""
        log = log_view(self._relay).state()
        if progress is not None and log is not None:
            for table, changed in log.changed.items():
                self._unread[table].observe(progress.position, changed)

    def lag_at(self, progress: DatabaseProgress | None) -> Lag:
        """The bytes of binlog from a batch to its tables' last change in the relay log.

        `seconds`: since the oldest unread change was first seen here. While snapshots are read,
        about how many `rows` of them are left. Without a relay log, only `state` is known. None:
        before the first batch. Queries no server.
        """
        tables = self.first_tables() if progress is None else self.tables_of(progress).values()
        unread, left = self._unread_tables(progress), self.rows_left_at(progress)
        view = None if progress is None or unread else self.relay_log(progress)
        log = None if view is None else view.state()
        names = [table.full_name for table in tables]
        received = [] if log is None else [log.times[name] for name in names if name in log.times]
        seconds, at_ms = max(received, key=lambda time: time[1], default=(None, None))
        state = SourceState(
            bool(unread),
            None if progress is None else (progress.position.file, progress.position.pos),
            None if seconds is None else seconds * 1000,
            at_ms,
            len(names),
            len(unread),
            0 if left is None else max(len(unread), -(-left // self._options.chunk_size)),
        )
        if progress is None or view is None or log is None or not names:
            return Lag(rows=left, state=state)
        self.observe(progress)
        position, changed = progress.position, max(log.changed[name] for name in names)
        silent_s, unread_bytes = view.silent_s(), None
        if position < changed and changed.file == position.file:
            unread_bytes = changed.pos - position.pos
        elif not position < changed and not silent_s:
            unread_bytes = 0
        behind_s = max(silent_s, *(self._unread[name].seconds for name in names))
        return Lag(seconds=behind_s, bytes=unread_bytes, state=state)

    def rows_left_at(self, progress: DatabaseProgress | None) -> int | None:
        """About how many rows of the snapshots are left, by the server's estimate at the start."""
        unread = self._unread_tables(progress)
        read = 0 if progress is None else sum(progress.rows.values())
        return max(0, sum(table.rows for table in unread) - read) if unread else None

    def _unread_tables(
        self, progress: DatabaseProgress | None
    ) -> Collection[FollowedTable] | Collection[FoundTable]:
        """The tables whose rows have not all been read."""
        if progress is None:
            return self.first_tables() if self._options.has_snapshot else []
        return [
            table
            for id, table in self.tables_of(progress).items()
            if id in progress.snapshot or table.target in progress.stale
        ]

    def hold(self) -> None:
        """Stop at the current end of the binlog."""
        self._stop_at = self._server.position(self._session)

    def _current(self) -> BinlogPosition:
        """The end of the binlog that batches may read."""
        return self._stop_at or self._server.position(self._session)

    def _moved(self, progress: DatabaseProgress, view: RelayView | None) -> DatabaseProgress | None:
        """The progress on this server, if it was made on another one; else None.

        Raises `DataLossError` if the stream cannot go on with the server's binlog.
        """
        position, state = progress.position, progress.binlog_state
        if view is not None and view.has(state.binlog, position):
            return None
        found = position_on_other_server(self._binlog, state, self._options.name)
        if found is None:
            self._binlog.check(position, state.binlog)
            return None
        # The sessions there are others.
        known = {**self.tables_of(progress), **progress.versions}
        hidden = (one for one in known.values() if one.definition.hidden_in)
        versions = {
            one.id: replace(one, definition=replace(one.definition, hidden_in=())) for one in hidden
        }
        return replace(
            progress,
            position=found[0],
            binlog_state=found[1],
            versions={**progress.versions, **versions},
            reloaded={},
            altered=frozenset(),
            statements=(f"goes on at {found[0]} of another server, after {state.gtids}",),
            moved=True,
        )

    # -- rows of tables

    def _begin(self, max_rows: int | None) -> DatabaseProgress:
        """The end of the first batch."""
        if self._options.starts_in_the_past:
            return self._first(*startup_position(self._binlog))
        begin = self._first_now()
        if self._options.startup_mode != "snapshot":
            self._binlog.check_prepared(begin.position)
        if not self._options.has_snapshot:
            return begin
        snapshot: dict[str, KeyJson | None] = dict.fromkeys(self.tables_of(begin))
        stale = self._compared(snapshot.keys(), 0)
        begin = replace(begin, snapshot=snapshot, stale=stale)
        # The next batch compares.
        return begin if stale else self._chunked(begin, max_rows)

    def _first_now(self) -> DatabaseProgress:
        return self._first(*self._binlog.snapshot_position(self._current))

    def _of_newest(self, before: DatabaseProgress) -> tuple[DatabaseProgress, Collection[str]]:
        """The progress with the tables of now, and the ids of those that are new."""
        newest, tables, added = self._newest(before)
        snapshot = {id: key for id, key in before.snapshot.items() if id in tables}
        return replace(
            newest,
            snapshot={**snapshot, **dict.fromkeys(added)},
            rows={id: count for id, count in before.rows.items() if id in snapshot},
            reloaded={},
            altered=frozenset(),
            statements=(),
            moved=False,
        ), frozenset(added)

    def _next_rows(
        self, before: DatabaseProgress, added: Collection[str], max_rows: int | None
    ) -> DatabaseProgress | None:
        """The end of a batch with rows of tables, of which those in `added` are new in it.

        None: no rows can be read yet.
        """
        position, state = self._binlog.snapshot_position(self._current)
        view, bound, start = self.relay_log(before), position, before.position
        if before.stale and view is not None:
            bound = bounded(view.folder, start, position, BATCH_BYTES)
        before, group = self._next_statements(before, bound)
        if group or bound < position:
            return self._up_to(before, group, bound, added)
        if added and self._options.startup_mode != "snapshot":
            self._binlog.check_prepared(position)
        after = self._changed_up_to(before, position, added, state)
        if not after.stale:
            return self._chunked(after, max_rows)
        # If there is a new statement, that is followed first.
        return self._reloaded(after) or (None if position == start else after)

    def _chunked(self, after: DatabaseProgress, max_rows: int | None = None) -> DatabaseProgress:
        """A batch with chunks of unread tables, the smallest first."""
        tables = self.tables_of(after)
        sizes = {id: self._chunk_size(tables[id], max_rows) for id in after.snapshot}
        most = self.batch_chunks
        if max_rows is not None and sizes:
            most = max(1, min(most, max_rows // min(sizes.values())))
        plan: dict[str, list[Chunk]] = {}
        altered: dict[str, AlteredTableError] = {}
        used = 0.0
        for id in sorted(sizes, key=lambda id: tables[id].rows):
            if used >= most:
                break
            captured, left = self._captured_table(tables[id]), Chunk(after.snapshot[id], None)
            try:
                if not captured.table.key:
                    check_lockable(captured.options, captured.table)
                chunks = split(self._session, captured, left, sizes[id], max(1, int(most - used)))
            except AlteredTableError as error:
                altered[id] = error
                continue
            plan[id] = chunks
            used += len(chunks) - 1 + SMALL_TABLE if chunks[-1].high is None else len(chunks)
        stale = self._unreadable(after, plan, altered)
        plan = {id: chunks for id, chunks in plan.items() if tables[id].target not in stale}
        snapshot, rows = dict(after.snapshot), dict(after.rows)
        for id, chunks in plan.items():
            snapshot[id] = chunks[-1].high
            rows[id] = rows.get(id, 0) + sizes[id] * len(chunks)
            if chunks[-1].high is None:
                del snapshot[id], rows[id]
        after = replace(after, snapshot=snapshot, rows=rows, stale={**after.stale, **stale})
        self._plan = (after.to_offset(), plan)
        return after

    def _chunk_size(self, table: FollowedTable, max_rows: int | None) -> int:
        """The rows of a chunk: a failed batch is read again, so it must not get too large."""
        size, row_bytes = self._options.chunk_size, table.definition.size.row_bytes
        if row_bytes:
            size = min(size, max(1, _CHUNK_BYTES // row_bytes))
        return size if max_rows is None else min(size, max_rows)

    # -- the binlog

    def _next_changes(
        self, before: DatabaseProgress, max_rows: int | None
    ) -> DatabaseProgress | None:
        """The end of a batch of changes; None if there are none."""
        tables = list(self.tables_of(before).values())
        budget = min([_byte_budget(table.definition, max_rows) for table in tables], default=0)
        view = self.relay_log(before)
        log = self._planned_log = None if view is None else view.state()
        if view is None or log is None:
            end = self._server_end(before.position, tables, budget)
        else:
            end = self._relayed_end(view, log, before.position, tables, budget)
        if end == before.position:
            return None
        return self._up_to(*self._next_statements(before, end), end)

    def _relayed_end(
        self,
        view: RelayView,
        log: RelayState,
        start: BinlogPosition,
        tables: Sequence[FollowedTable],
        budget: int,
    ) -> BinlogPosition:
        """The end of a batch that is read from the relay log; `start` if it would have no changes.

        The position of idle tables advances once per heartbeat, so that the server still has the
        binlog from there on after a restart. It also advances if the log is far ahead of it, as the
        log may be waiting for its readers.
        """
        now = time.monotonic()
        due = log.is_far(start) or now - self._advanced_at > self._options.heartbeat_ms / 1000
        changed = any(start < log.changed.get(table.full_name, log.end) for table in tables)
        if not start < log.end or not (due or changed):
            return start
        self._advanced_at = now
        most = min(BATCH_BYTES, budget) if tables else BATCH_BYTES
        return bounded(view.folder, start, log.end, most)

    def _server_end(
        self, start: BinlogPosition, tables: Sequence[FollowedTable], budget: int
    ) -> BinlogPosition:
        """The end of a batch that is read from the server's binlog."""
        current = self._current()
        if current < start and self._stop_at is None:
            raise reset_error(self._options.address, current, start, self._options.name)
        return self._statements.bounded(tables, start, current, budget) if tables else start

    def relay_log(self, progress: DatabaseProgress) -> RelayView | None:
        """The relay log, if it has the changes of all tables after a batch."""
        view = log_view(self._relay)
        if view.state() is None or self._stop_at is not None or progress.binlog_state.skip:
            return None
        names = [table.full_name for table in self.tables_of(progress).values()]
        return view if view.has_changes(names, progress.position) else None

    def _next_statements(
        self, before: DatabaseProgress, end: BinlogPosition
    ) -> tuple[DatabaseProgress, list[FoundStatement]]:
        """The next group of statements up to `end` at which a batch has to end; [] if none.

        The progress has the consequences of statements that need no batch of their own.
        """
        tables = self.tables_of(before).values()
        found = self._statements.between(tables, before.position, end, wait=True)
        return before, [event for event in found if event.before == found[0].before]

    def _up_to(
        self,
        before: DatabaseProgress,
        group: Sequence[FoundStatement],
        end: BinlogPosition,
        added: Collection[str] = (),
    ) -> DatabaseProgress:
        """A batch up to `end`, or that ends before statements, or that consists of them."""
        if group and not before.position < group[0].before:
            return self._followed(before, group)
        return self._changed_up_to(before, group[0].before if group else end, added)

    def _changed_up_to(
        self,
        before: DatabaseProgress,
        end: BinlogPosition,
        added: Collection[str] = (),
        state: BinlogState | None = None,
    ) -> DatabaseProgress:
        return self._after_changes(before, self._advanced(before, end, state), added)

    def _advanced(
        self, before: DatabaseProgress, end: BinlogPosition, state: BinlogState | None = None
    ) -> DatabaseProgress:
        """The progress at a later position; `state`: of the binlog there, if it is known."""
        following = (state or self._state_at(before, end)).following(before.binlog_state, end)
        return replace(before, position=end, binlog_state=following)

    def _state_at(self, before: DatabaseProgress, end: BinlogPosition) -> BinlogState:
        log = self._planned_log
        if log is None or log.end != end:
            # Only the log that ends there has its GTIDs.
            view = self.relay_log(before)
            log = None if view is None else view.state()
        if log is None or log.end < end:
            return self._binlog.state_at(end)
        return self._binlog.completed(log.binlog_state_at(end), end)

    def _changed(
        self, before: DatabaseProgress, end: BinlogPosition, view: RelayView | None
    ) -> Collection[str] | None:
        """The names of tables that have changes up to a position; None: perhaps all tables.

        `view`: `relay_log(before)`.
        """
        state = view.state() if view is not None and view.reaches(end) else None
        if state is None:
            return None
        return {name for name, changed in state.changed.items() if before.position < changed}

    # -- parts

    def parts(self, start: Offset, end: Offset) -> list[TablePart]:
        """The parts of the batch from `start` to `end`: one for each table with unread rows."""
        before, after = DatabaseProgress.from_offset(start), DatabaseProgress.from_offset(end)
        assert after is not None
        if after.moved:
            return []
        old: Tables = {}
        changed = None
        if before is not None:
            old = self.tables_of(before)
            view = self.relay_log(before)
            if self._moved(before, view) is not None:
                raise DataLossError(
                    f"MySQL at {self._options.address} is another server than the one on which an "
                    f"interrupted batch of {self._options.name} was planned, which must read the "
                    "same changes again; let the query finish it on the former server, or "
                    + START_AGAIN
                )
            changed = self._changed(before, after.position, view)
        found = [
            self._part(table, old.get(id), before, after, changed, end)
            for id, table in self.tables_of(after).items()
        ]
        return [part for part in found if part is not None]

    def _part(
        self,
        table: FollowedTable,
        old: FollowedTable | None,
        before: DatabaseProgress | None,
        after: DatabaseProgress,
        changed: Collection[str] | None,
        end: Offset,
    ) -> TablePart | None:
        """What a batch reads of a table, which is new in it if it has no description of before.

        `changed`: the names of tables with changes in the batch; None: perhaps all tables.
        """
        before = None if old is None else before
        if table.target in after.reloaded:
            deletes = after.reloaded[table.target]
            if table.id in after.gone:
                return TablePart(table, None, None, reload=deletes)
            return TablePart(table, None, None, (ALL_ROWS,), self._position(after, table), deletes)
        if table.target in after.stale or table.id in after.gone:
            return None
        low = None if before is None else before.snapshot.get(table.id)
        complete = before is not None and table.id not in before.snapshot
        # A batch that ends after a statement about the table has nothing else of the table.
        changes = (
            before is not None
            and before.position < after.position
            and (complete or low is not None)
            and (changed is None or table.full_name in changed)
            and table.id not in after.altered
        )
        chunks: list[Chunk] = []
        if not complete and (table.id not in after.snapshot or after.snapshot[table.id] != low):
            chunks = self._chunks(table, Chunk(low, after.snapshot.get(table.id)), end)
        if not changes and not chunks:
            return None
        return TablePart(
            table,
            self._position(before, old) if changes and before and old else None,
            None if complete else low,
            tuple(chunks),
            self._position(after, table) if chunks else None,
        )

    def _chunks(self, table: FollowedTable, keys: Chunk, end: Offset) -> list[Chunk]:
        """The chunks of a batch; after a restart of the driver perhaps other ones."""
        if self._plan is not None and self._plan[0] == end and table.id in self._plan[1]:
            return self._plan[1][table.id]
        try:
            captured = self._captured_table(table)
            return split(self._session, captured, keys, self._options.chunk_size)
        except AlteredTableError:
            return [keys]  # The task finds out, too, and reports it.


def _byte_budget(table: TableDefinition, max_rows: int | None) -> int:
    """About how many bytes of binlog hold `max_rows` rows, at most 256 MB."""
    if max_rows is None:
        return _BUDGET_BYTES
    return min(_BUDGET_BYTES, max_rows * _COLUMN_BYTES * (1 + len(table.columns)))
