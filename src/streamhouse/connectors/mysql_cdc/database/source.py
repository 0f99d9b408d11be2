"""Plans the batches of a sync: the offsets of many tables at one position of the binlog.

docs/decisions/148-one-query-syncs-many-tables.md says why.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamhouse.connectors.mysql_cdc.binlog.captured import CapturedTable
from streamhouse.connectors.mysql_cdc.binlog.history import BinlogHistory
from streamhouse.connectors.mysql_cdc.change_reader import StartPoint, relay_view
from streamhouse.connectors.mysql_cdc.database.catalogue import Catalogue, Catalogues
from streamhouse.connectors.mysql_cdc.database.followed import FollowedTable
from streamhouse.connectors.mysql_cdc.database.progress import DatabaseProgress
from streamhouse.connectors.mysql_cdc.relay.files import RelayView, State
from streamhouse.connectors.mysql_cdc.schema_history import (
    REMEMBERED,
    SchemaHistory,
    described,
    known_at,
)
from streamhouse.connectors.mysql_cdc.server.connection import Session
from streamhouse.connectors.mysql_cdc.server.options import MySqlOptions
from streamhouse.connectors.mysql_cdc.server.position import KeyJson, Known, Position, Progress
from streamhouse.connectors.mysql_cdc.server.table import Server, check_server
from streamhouse.connectors.mysql_cdc.snapshot import Chunk, chunk_ends, split
from streamhouse.source import Offset

_BATCH_CHUNKS = 64
_SMALL_TABLE = 0.25
"""What the last chunk of a table counts as, since it may be nearly empty."""
_BATCH_BYTES = 64 * 1024 * 1024
_REACH_S = 10.0


@dataclass(frozen=True)
class TablePart:
    """What a batch reads of one table.

    `changes`: from where its changes are read, of keys up to `up_to` (None: of all keys); None: it
    has none. `chunks` of the snapshot are read as of `place`; for `lookback` see `ChunkReader`.
    """

    table: FollowedTable
    changes: StartPoint | None
    up_to: KeyJson | None
    chunks: tuple[Chunk, ...] = ()
    place: StartPoint | None = None
    lookback: StartPoint | None = None


class DatabaseSource:
    """The tables of a sync; plans batches on the driver.

    `relay`: the folder of the relay log, which has the changes of all tables. Offsets are those of
    `DatabaseProgress`; the same two offsets give the same parts, except that tables which the
    newest catalogue lacks are left out. `skip_snapshot`: the first tables are followed from now on.
    """

    def __init__(
        self,
        options: MySqlOptions,
        catalogues: Catalogues,
        relay: Path,
        skip_snapshot: bool = False,
    ) -> None:
        self._options, self._catalogues, self._relay = options, catalogues, relay
        self._skip_snapshot = skip_snapshot
        self._session = Session(options)
        self._server: Server = check_server(self._session, options)
        self._binlog = BinlogHistory(self._session, options, self._server)
        self._histories: dict[str, SchemaHistory] = {}
        self._captured: dict[str, CapturedTable] = {}
        self._plan: tuple[Offset, dict[str, list[Chunk]]] | None = None
        self._advanced = time.monotonic()

    @property
    def server(self) -> Server:
        return self._server

    def latest_offset(self, start: Offset) -> Offset:
        """The end of the next batch; `start` if there is nothing to read."""
        before = DatabaseProgress.from_offset(start)
        newest = self._catalogues.latest()
        if before is None:
            return self._first(newest)
        self._check(before)
        old = self._catalogues.get(before.catalogue).tables
        added = [table for table in newest.tables if table not in old]
        snapshot = {one: key for one, key in before.snapshot.items() if one in newest.tables}
        if snapshot or added:
            return self._next_chunks(before, newest, snapshot, added)
        return self._next_binlog(start, before, newest)

    def parts(self, start: Offset, end: Offset) -> list[TablePart]:
        """What the batch from `start` to `end` reads, of each table that has something to read."""
        before, after = DatabaseProgress.from_offset(start), DatabaseProgress.from_offset(end)
        assert after is not None
        newest = self._catalogues.latest().tables
        tables = self._catalogues.get(after.catalogue).tables
        changed = None if before is None else self._changed(before.position, after.position)
        parts = []
        for table in tables.values():
            if table.id not in newest:
                continue  # It was removed from the sync after the batch was planned.
            part = self._part(table, before, after, changed, end)
            if part is not None:
                parts.append(part)
        return parts

    def close(self) -> None:
        for history in self._histories.values():
            history.close()
        self._binlog.close()
        self._session.close()

    # -- the first batch, and snapshots

    def _first(self, newest: Catalogue) -> Offset:
        snapshot: dict[str, KeyJson | None] = dict.fromkeys(newest.tables)
        if self._skip_snapshot or not self._server.mariadb:
            # On MySQL, the binlog from this position on will correct the SELECTs (`lookback`).
            position, known = self._binlog.settled_position(self._current)
            self._binlog.check_prepared(position)
            empty = {} if self._skip_snapshot else snapshot
            return DatabaseProgress(newest.number, position, known, empty).to_offset()
        return self._with_chunks(None, newest, snapshot)

    def _next_chunks(
        self,
        before: DatabaseProgress,
        newest: Catalogue,
        snapshot: Mapping[str, KeyJson | None],
        added: Sequence[str],
    ) -> Offset:
        unread = {**snapshot, **dict.fromkeys(added)}
        late = () if self._server.mariadb else added
        return self._with_chunks(before, newest, unread, late)

    def _with_chunks(
        self,
        before: DatabaseProgress | None,
        newest: Catalogue,
        unread: Mapping[str, KeyJson | None],
        late: Collection[str] = (),
    ) -> Offset:
        """A batch with chunks of tables in `unread`, the smallest first; not of those in `late`."""
        after, used = dict(unread), 0.0
        plan: dict[str, list[Chunk]] = {}
        for one in sorted(unread, key=lambda one: newest.tables[one].rows):
            if one in late:
                continue
            low = unread[one]
            ends, complete = chunk_ends(
                self._session,
                self._captured_of(newest.tables[one]),
                low,
                self._options.chunk_size,
                max(1, int(_BATCH_CHUNKS - used)),
            )
            bounds = [low, *ends, *([None] if complete else [])]
            plan[one] = [Chunk(a, b) for a, b in zip(bounds, bounds[1:], strict=False)]
            if complete:
                del after[one]
            else:
                after[one] = ends[-1]
            used += len(ends) + (_SMALL_TABLE if complete else 0)
            if used >= _BATCH_CHUNKS:
                break
        position, known = self._binlog.settled_position(self._current)
        if before is None or len(unread) > len(before.snapshot):
            self._binlog.check_prepared(position)
        columns = {} if before is None else self._columns(before, newest, position)
        end = DatabaseProgress(newest.number, position, known, after, columns).to_offset()
        self._plan = (end, plan)
        return end

    def _chunks(
        self, table: FollowedTable, low: KeyJson | None, high: KeyJson | None, end: Offset
    ) -> list[Chunk]:
        """The chunks of a batch; after a restart of the driver they may be cut elsewhere."""
        if self._plan is not None and self._plan[0] == end and table.id in self._plan[1]:
            return self._plan[1][table.id]
        captured = self._captured_of(table)
        return split(self._session, captured, low, high, self._options.chunk_size)

    # -- the binlog

    def _next_binlog(self, start: Offset, before: DatabaseProgress, newest: Catalogue) -> Offset:
        view = self._view()
        state = None if view is None else view.state()
        if view is None or state is None:
            return start  # The driver reports why the reader of the binlog has ended.
        end = self._relayed_end(view, state, before.position, newest)
        if end == before.position:
            return start
        end, columns = self._cut(before, newest, end)
        prepared = {xid: at for xid, at in state.prepared.items() if at < end}
        known = Known(state.binlogs.get(end.file), self._binlog.still_prepared(prepared))
        return DatabaseProgress(newest.number, end, known, {}, columns).to_offset()

    def _relayed_end(
        self, view: RelayView, state: State, start: Position, newest: Catalogue
    ) -> Position:
        """The end of the next batch; `start` if no table has changed since.

        The position of idle tables advances each `heartbeat.interval`, so that the server still
        has the binlog from there on at a restart.
        """
        names = [table.full_name for table in newest.tables.values()]
        now = time.monotonic()
        due = now - self._advanced > self._options.heartbeat_ms / 1000
        changed = any(start < state.changed.get(name, state.end) for name in names)
        if not start < state.end or not (due or changed):
            return start
        self._advanced = now
        altered = [at for name in names for at in state.altered.get(name, ()) if start < at]
        return view.bounded(start, min([*altered, state.end]), _BATCH_BYTES)

    def _changed(self, start: Position, end: Position) -> Collection[str] | None:
        """The tables that may have changes between two positions; None: perhaps all."""
        view = self._view()
        begin = None if view is None else view.begin()
        if view is None or begin is None or start < begin or not view.reaches(end, _REACH_S):
            return None
        state = view.state()
        if state is None:
            return None
        return {name for name, changed in state.changed.items() if start < changed}

    def _cut(
        self, before: DatabaseProgress, newest: Catalogue, end: Position
    ) -> tuple[Position, Mapping[str, Any]]:
        """The end of a batch, which is before a statement about a table, and all known columns.

        A batch that starts with such a statement has nothing else.
        """
        altered = self._altered(before.position, end, newest)
        for table in altered:
            part = self._part_of_columns(before, table)
            cut, _ = self._history(table).next(part, before.position, end)
            end = min(end, cut)
        return end, self._columns(before, newest, end, altered)

    def _columns(
        self,
        before: DatabaseProgress,
        newest: Catalogue,
        end: Position,
        altered: Sequence[FollowedTable] | None = None,
    ) -> dict[str, Any]:
        """What is known of altered columns at the end of a batch."""
        columns = {one: part for one, part in before.columns.items() if one in newest.tables}
        if altered is None:
            altered = self._altered(before.position, end, newest)
        for table in altered:
            part = self._part_of_columns(before, table)
            _, now = self._history(table).next(part, before.position, end, cut=False)
            columns[table.id] = now
        return columns

    def _altered(self, start: Position, end: Position, newest: Catalogue) -> list[FollowedTable]:
        """The tables about which there may be statements between two positions."""
        view = self._view()
        state = None if view is None else view.state()
        if view is not None and state is not None and state.end < end:
            view.reaches(end, _REACH_S)
            state = view.state()
        if state is None:
            return []
        found = []
        for table in newest.tables.values():
            at = state.altered.get(table.full_name, ())
            if any(start <= one < end for one in at) or (len(at) >= REMEMBERED and start < at[0]):
                found.append(table)
        return found

    def _history(self, table: FollowedTable) -> SchemaHistory:
        if table.id not in self._histories:
            captured = self._captured_of(table)
            self._histories[table.id] = SchemaHistory(captured, self._session, self._server)
        return self._histories[table.id]

    def _part_of_columns(self, progress: DatabaseProgress, table: FollowedTable) -> dict[str, Any]:
        own = progress.columns.get(table.id)
        return own or described(table.definition, self._captured_of(table))

    # -- parts

    def _part(
        self,
        table: FollowedTable,
        before: DatabaseProgress | None,
        after: DatabaseProgress,
        changed: Collection[str] | None,
        end: Offset,
    ) -> TablePart | None:
        known = before is not None and table.id in self._catalogues.get(before.catalogue).tables
        begin = None if before is None or not known else self._point(table, before)
        low = before.snapshot.get(table.id) if before is not None else None
        whole = known and before is not None and table.id not in before.snapshot
        if before is None and self._skip_snapshot:
            whole = True
        changes = None
        if begin is not None and begin.position < after.position and (whole or low is not None):
            changes = begin if changed is None or table.full_name in changed else None
        chunks: list[Chunk] = []
        if not whole and (table.id not in after.snapshot or after.snapshot[table.id] != low):
            chunks = self._chunks(table, low, after.snapshot.get(table.id), end)
        if changes is None and not chunks:
            return None
        place = self._point(table, after) if chunks else None
        return TablePart(
            table, changes, None if whole else low, tuple(chunks), place, begin if chunks else None
        )

    def _point(self, table: FollowedTable, progress: DatabaseProgress) -> StartPoint:
        part = progress.columns.get(table.id, {})
        definition = known_at(part, table.definition) or table.definition
        return StartPoint(progress.position, progress.known, definition)

    def _captured_of(self, table: FollowedTable) -> CapturedTable:
        if table.id not in self._captured:
            captured = table.captured(self._options, self._server, self._relay)
            self._captured[table.id] = captured
        return self._captured[table.id]

    # -- the server

    def _view(self) -> RelayView | None:
        for table in self._catalogues.latest().tables.values():
            return relay_view(self._captured_of(table))
        return None

    def _check(self, progress: DatabaseProgress) -> None:
        """Raise `DataLossError` if the offset belongs to another binlog than the server's."""
        view = self._view()
        if view is not None and view.continues(progress.known.binlog, progress.position):
            return
        self._binlog.check(
            Progress(progress.position, snapshot_complete=True, known=progress.known)
        )

    def _current(self) -> Position:
        return self._server.position(self._session)
