"""Plans the batches of many tables: their offsets have one position of the binlog.

docs/decisions/148-one-query-syncs-many-tables.md says why.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from streamhouse.connectors.mysql_cdc.binlog.binlog_inspector import BinlogInspector
from streamhouse.connectors.mysql_cdc.binlog.captured_table import CapturedTable
from streamhouse.connectors.mysql_cdc.binlog.limits import bounded_end, byte_budget
from streamhouse.connectors.mysql_cdc.binlog.startup import current_startup_position
from streamhouse.connectors.mysql_cdc.change_reader import TablePosition, log_view
from streamhouse.connectors.mysql_cdc.database.progress import DatabaseProgress
from streamhouse.connectors.mysql_cdc.database.table_part import TablePart
from streamhouse.connectors.mysql_cdc.database.tables.catalogue import Catalogue
from streamhouse.connectors.mysql_cdc.database.tables.followed_table import FollowedTable
from streamhouse.connectors.mysql_cdc.relay.files import RelayView, State
from streamhouse.connectors.mysql_cdc.schema_history import (
    REMEMBERED,
    SchemaHistory,
    StatementScan,
    described,
    table_at,
)
from streamhouse.connectors.mysql_cdc.server.connection import Session
from streamhouse.connectors.mysql_cdc.server.options import MySqlOptions
from streamhouse.connectors.mysql_cdc.server.position import (
    START_AGAIN,
    BinlogPosition,
    BinlogState,
    KeyJson,
    TableProgress,
)
from streamhouse.connectors.mysql_cdc.server.table import Server, check_server
from streamhouse.connectors.mysql_cdc.snapshot import Chunk, chunk_ends, split
from streamhouse.errors import DataLossError
from streamhouse.source import Offset

BATCH_CHUNKS = 64
SMALL_TABLE = 0.25
"""What the last chunk of a table counts as, since it may be nearly empty."""
BATCH_BYTES = 64 * 1024 * 1024
_REACH_S = 10.0


class CatalogueStore(Protocol):
    """Has the catalogues that offsets refer to by number."""

    def latest(self) -> Catalogue:
        """The newest catalogue."""

    def get(self, number: int) -> Catalogue:
        """The catalogue with a number."""


class DatabaseSource:
    """Many tables of a server as one source; plans batches on the driver.

    `relay`: the folder of the relay log, if any. If that is `complete`, it has the changes of all
    tables from the start of each batch on. Else what it lacks is read from the server, and offsets
    have the columns of all tables, not only of those that were altered since the catalogue.

    Offsets are those of `DatabaseProgress`; the same two offsets give the same parts, except that
    tables which the newest catalogue lacks are left out. `skip_snapshot`: the first tables are
    followed from now on.
    """

    def __init__(
        self,
        options: MySqlOptions,
        catalogues: CatalogueStore,
        relay: Path | None,
        skip_snapshot: bool = False,
        complete: bool = True,
    ) -> None:
        self._options, self._catalogues, self._relay = options, catalogues, relay
        self._skip_snapshot, self._complete = skip_snapshot, complete
        self._session = Session(options)
        self._server: Server = check_server(self._session, options)
        self._binlog = BinlogInspector(self._session, options, self._server)
        self._histories: dict[str, SchemaHistory] = {}
        self._captured: dict[tuple[str, Path | None], CapturedTable] = {}
        self._scan: tuple[list[str], StatementScan] | None = None
        self._held: BinlogPosition | None = None
        self._plan: tuple[Offset, dict[str, list[Chunk]]] | None = None
        self._advanced = time.monotonic()

    @property
    def server(self) -> Server:
        return self._server

    @property
    def session(self) -> Session:
        """The session with the server, for other statements."""
        return self._session

    @property
    def binlog(self) -> BinlogInspector:
        return self._binlog

    def captured_tables(self) -> list[CapturedTable]:
        """The tables that this has planned batches of."""
        return list(self._captured.values())

    def hold(self) -> None:
        """Stop at the current end of the binlog."""
        self._held = self._server.position(self._session)

    def latest_offset(self, start: Offset, max_rows: int | None = None) -> Offset:
        """The end of the next batch; `start` if there is nothing to read.

        `max_rows`: about how many rows a batch may have.
        """
        before = DatabaseProgress.from_offset(start)
        newest = self._catalogues.latest()
        if before is None:
            return self._first(newest, max_rows)
        self._check(before)
        old = self._catalogues.get(before.catalogue).tables
        added = [table for table in newest.tables if table not in old]
        snapshot = {one: key for one, key in before.snapshot.items() if one in newest.tables}
        if snapshot or added:
            return self._next_chunks(before, newest, snapshot, added, max_rows)
        if self._options.startup_mode == "snapshot":
            return start
        return self._next_binlog(start, before, newest, max_rows)

    def parts(self, start: Offset, end: Offset) -> list[TablePart]:
        """What the batch from `start` to `end` reads, of each table that has something to read."""
        before, after = DatabaseProgress.from_offset(start), DatabaseProgress.from_offset(end)
        assert after is not None
        newest = self._catalogues.latest().tables
        tables = self._catalogues.get(after.catalogue).tables
        changed = None if before is None else self._changed(before, after.position)
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
        if self._scan is not None:
            self._scan[1].close()
        self._binlog.close()
        self._session.close()

    # -- the first batch, and snapshots

    def _first(self, newest: Catalogue, max_rows: int | None) -> Offset:
        snapshot: dict[str, KeyJson | None] = dict.fromkeys(newest.tables)
        if self._skip_snapshot or not self._server.mariadb:
            # On MySQL, the binlog from this position on will correct the SELECTs (`lookback`).
            position, binlog_state, columns = self.startup_position(newest)
            self._binlog.check_prepared(position)
            empty = {} if self._skip_snapshot else snapshot
            return DatabaseProgress(
                newest.number, position, binlog_state, empty, columns
            ).to_offset()
        return self._with_chunks(None, newest, snapshot, max_rows)

    def startup_position(
        self, newest: Catalogue
    ) -> tuple[BinlogPosition, BinlogState, dict[str, Any]]:
        """Where the tables begin, with what is known of the binlog and of their columns there."""
        return current_startup_position(
            self._binlog,
            self._current,
            lambda position: self.columns_at(position, newest),
            lambda columns: all(columns.values()),
        )

    def columns_at(self, position: BinlogPosition, newest: Catalogue) -> dict[str, Any]:
        """What an offset at a position where the tables begin has about their columns."""
        if self._complete:
            return {}
        return {table.id: self._history(table).now(position) for table in newest.tables.values()}

    def _next_chunks(
        self,
        before: DatabaseProgress,
        newest: Catalogue,
        snapshot: Mapping[str, KeyJson | None],
        added: Sequence[str],
        max_rows: int | None,
    ) -> Offset:
        unread = {**snapshot, **dict.fromkeys(added)}
        late = () if self._server.mariadb else added
        return self._with_chunks(before, newest, unread, max_rows, late)

    def _with_chunks(
        self,
        before: DatabaseProgress | None,
        newest: Catalogue,
        unread: Mapping[str, KeyJson | None],
        max_rows: int | None,
        late: Collection[str] = (),
    ) -> Offset:
        """A batch with chunks of tables in `unread`, the smallest first; not of those in `late`."""
        after, used = dict(unread), 0.0
        size, most = self._options.chunk_size, BATCH_CHUNKS
        if max_rows is not None:
            size = min(size, max_rows)
            most = max(1, min(most, max_rows // size))
        plan: dict[str, list[Chunk]] = {}
        for one in sorted(unread, key=lambda one: newest.tables[one].rows):
            if one in late:
                continue
            low = unread[one]
            ends, complete = chunk_ends(
                self._session,
                self._captured_table(newest.tables[one]),
                low,
                size,
                max(1, int(most - used)),
            )
            bounds = [low, *ends, *([None] if complete else [])]
            plan[one] = [Chunk(a, b) for a, b in zip(bounds, bounds[1:], strict=False)]
            if complete:
                del after[one]
            else:
                after[one] = ends[-1]
            used += len(ends) + (SMALL_TABLE if complete else 0)
            if used >= most:
                break
        if before is None:
            position, binlog_state, columns = self.startup_position(newest)
        else:
            position, binlog_state = self._binlog.snapshot_position(self._current)
            columns = self._columns(before, newest, position)
        if before is None or len(unread) > len(before.snapshot):
            if self._options.startup_mode != "snapshot":
                self._binlog.check_prepared(position)
        end = DatabaseProgress(newest.number, position, binlog_state, after, columns).to_offset()
        self._plan = (end, plan)
        return end

    def _chunks(
        self, table: FollowedTable, low: KeyJson | None, high: KeyJson | None, end: Offset
    ) -> list[Chunk]:
        """The chunks of a batch; after a restart of the driver they may be cut elsewhere."""
        if self._plan is not None and self._plan[0] == end and table.id in self._plan[1]:
            return self._plan[1][table.id]
        captured = self._captured_table(table)
        return split(self._session, captured, low, high, self._options.chunk_size)

    # -- the binlog

    def _next_binlog(
        self, start: Offset, before: DatabaseProgress, newest: Catalogue, max_rows: int | None
    ) -> Offset:
        view, state = self._log(before)
        if view is not None and state is not None:
            end = self._relayed_end(view, state, before.position, newest, max_rows)
        elif self._complete:
            return start  # The driver reports why the reader of the binlog has ended.
        else:
            end = self._server_end(before.position, newest, max_rows)
        if end == before.position:
            return start
        end, columns = self._cut(before, newest, end)
        binlog_state = self._known_at(end, before.binlog_state, state)
        return DatabaseProgress(newest.number, end, binlog_state, {}, columns).to_offset()

    def _known_at(
        self, end: BinlogPosition, before: BinlogState, state: State | None
    ) -> BinlogState:
        if state is None:
            skip = None if before.skip is None else before.skip.after(end)
            return replace(self._binlog.state_at(end), skip=skip)
        prepared = {xid: at for xid, at in state.prepared.items() if at < end}
        return BinlogState(state.binlogs.get(end.file), self._binlog.still_prepared(prepared))

    def _server_end(
        self, start: BinlogPosition, newest: Catalogue, max_rows: int | None
    ) -> BinlogPosition:
        current, tables = self._current(), list(newest.tables.values())
        if current < start and self._held is None:
            raise DataLossError(
                f"the binlog of MySQL at {self._options.address} ends at {current}, before "
                f"{start}: it was reset; {START_AGAIN}"
            )
        if not tables:
            return start
        return bounded_end(self._session, tables[0].definition, start, current, max_rows)

    def _relayed_end(
        self,
        view: RelayView,
        state: State,
        start: BinlogPosition,
        newest: Catalogue,
        max_rows: int | None,
    ) -> BinlogPosition:
        """The end of the next batch; `start` if no table has changed since.

        The position of idle tables advances each `heartbeat.interval`, so that the server still
        has the binlog from there on at a restart.
        """
        names = [table.full_name for table in newest.tables.values()]
        now = time.monotonic()
        due = state.is_far(start) or now - self._advanced > self._options.heartbeat_ms / 1000
        changed = any(start < state.changed.get(name, state.end) for name in names)
        if not start < state.end or not (due or changed):
            return start
        self._advanced = now
        altered = self._cuts(state, names, start)
        budgets = [byte_budget(one.definition, max_rows) for one in newest.tables.values()]
        return view.bounded(start, min([*altered, state.end]), min([BATCH_BYTES, *budgets]))

    def _cuts(
        self, state: State, names: Sequence[str], start: BinlogPosition
    ) -> list[BinlogPosition]:
        """Where a batch has to end: before statements about its tables."""
        return [at for name in names for at in state.altered.get(name, ()) if start < at]

    def _changed(self, before: DatabaseProgress, end: BinlogPosition) -> Collection[str] | None:
        """The tables that may have changes up to a position; None: perhaps all."""
        view, start = self._log(before)[0], before.position
        begin = None if view is None else view.begin()
        if view is None or begin is None or start < begin or not view.reaches(end, _REACH_S):
            return None
        state = view.state()
        if state is None:
            return None
        return {name for name, changed in state.changed.items() if start < changed}

    def _cut(
        self, before: DatabaseProgress, newest: Catalogue, end: BinlogPosition
    ) -> tuple[BinlogPosition, Mapping[str, Any]]:
        """The end of a batch, which is before a statement about a table, and all known columns.

        A batch that starts with such a statement has nothing else.
        """
        altered = self._altered(before, end, newest)
        for table in altered:
            part = self._part_of_columns(before, table)
            cut, _ = self._history(table).next(part, before.position, end)
            end = min(end, cut)
        return end, self._columns(before, newest, end, altered)

    def _columns(
        self,
        before: DatabaseProgress,
        newest: Catalogue,
        end: BinlogPosition,
        altered: Sequence[FollowedTable] | None = None,
    ) -> dict[str, Any]:
        """What is known of altered columns at the end of a batch."""
        columns = {one: part for one, part in before.columns.items() if one in newest.tables}
        if altered is None:
            altered = self._altered(before, end, newest)
        for table in altered:
            part = self._part_of_columns(before, table)
            _, now = self._history(table).next(part, before.position, end, cut=False)
            columns[table.id] = now
        if not self._complete:
            for table in newest.tables.values():
                if not columns.get(table.id):
                    columns[table.id] = self._history(table).now(end)
        return columns

    def _altered(
        self, before: DatabaseProgress, end: BinlogPosition, newest: Catalogue
    ) -> list[FollowedTable]:
        """The tables about which there may be statements up to a position."""
        start, (view, state) = before.position, self._log(before)
        if view is not None and state is not None and state.end < end:
            view.reaches(end, _REACH_S)
            state = view.state()
        if state is None and self._complete:
            return []
        if state is None or state.end < end:
            return self._scanned(start, end, newest)
        found = []
        for table in newest.tables.values():
            at = state.altered.get(table.full_name, ())
            if any(start <= one < end for one in at) or (len(at) >= REMEMBERED and start < at[0]):
                found.append(table)
        return found

    def _scanned(
        self, start: BinlogPosition, end: BinlogPosition, newest: Catalogue
    ) -> list[FollowedTable]:
        """As `_altered`, by the binlog's statements themselves."""
        tables = {table.full_name: table for table in newest.tables.values()}
        if self._scan is None or self._scan[0] != list(tables):
            if self._scan is not None:
                self._scan[1].close()
            captured = [self._captured_table(table) for table in tables.values()]
            self._scan = list(tables), StatementScan(captured)
        found = {one.table.table.full_name for one in self._scan[1].between(start, end)}
        return [table for name, table in tables.items() if name in found]

    def _history(self, table: FollowedTable) -> SchemaHistory:
        if table.id not in self._histories:
            captured = self._captured_table(table)
            self._histories[table.id] = SchemaHistory(captured, self._session, self._server)
        return self._histories[table.id]

    def _part_of_columns(self, progress: DatabaseProgress, table: FollowedTable) -> dict[str, Any]:
        own = progress.columns.get(table.id, {})
        if own or not self._complete:
            return dict(own)
        return described(table.definition, self._captured_table(table))

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

    def _point(self, table: FollowedTable, progress: DatabaseProgress) -> TablePosition:
        part = progress.columns.get(table.id, {})
        if self._complete:
            definition = table_at(part, table.definition) or table.definition
            return TablePosition(progress.position, progress.binlog_state, definition)
        known = self._history(table).at(part, progress.position)
        return TablePosition(progress.position, progress.binlog_state, known)

    def _captured_table(self, table: FollowedTable) -> CapturedTable:
        relay = self._relay if self._complete or self._follows([table]) else None
        if (table.id, relay) not in self._captured:
            captured = table.captured_table(self._options, self._server, relay)
            self._captured[table.id, relay] = captured
        return self._captured[table.id, relay]

    # -- the relay log

    def log_of_all(self) -> Path | None:
        """The folder of the relay log, if that has the changes of all tables."""
        tables = self._catalogues.latest().tables.values()
        return self._relay if self._complete or self._follows(tables) else None

    def state(self, before: DatabaseProgress) -> State | None:
        """The state of the relay log, if that has the changes of all tables after a batch."""
        return self._log(before)[1]

    def _follows(self, tables: Iterable[FollowedTable]) -> bool:
        """Whether the relay log has the tables' changes."""
        view = log_view(self._relay)
        state = None if view is None else view.state()
        return state is not None and all(one.full_name in state.changed for one in tables)

    def _log(self, before: DatabaseProgress) -> tuple[RelayView | None, State | None]:
        """The relay log and its state, if it has the changes of all tables after a batch."""
        view = log_view(self._relay)
        state = None if view is None else view.state()
        if view is None or state is None:
            return None, None
        if not self._complete:
            begin = view.begin()
            usable = self._held is None and before.binlog_state.skip is None
            if not usable or begin is None or before.position < begin:
                return None, None
            if not self._follows(self._catalogues.latest().tables.values()):
                return None, None
        return view, state

    # -- the server

    def _check(self, progress: DatabaseProgress) -> None:
        """Raise `DataLossError` if the offset belongs to another binlog than the server's."""
        view, position = self._log(progress)[0], progress.position
        if view is not None and view.continues(progress.binlog_state.identity, position):
            return
        self._binlog.check(
            TableProgress(position, snapshot_complete=True, binlog_state=progress.binlog_state)
        )

    def _current(self) -> BinlogPosition:
        return self._held or self._server.position(self._session)
