"""Plans the batches of many tables: their offsets have one position of the binlog.

docs/decisions/148-one-query-syncs-many-tables.md says why.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from streamhouse.connectors.mysql_cdc.binlog.binlog_inspector import BinlogInspector
from streamhouse.connectors.mysql_cdc.binlog.captured_table import CapturedTable
from streamhouse.connectors.mysql_cdc.binlog.startup import position_on_other_server
from streamhouse.connectors.mysql_cdc.change_reader import TablePosition
from streamhouse.connectors.mysql_cdc.database.followed_table import FollowedTable
from streamhouse.connectors.mysql_cdc.database.part_reader import ALL_ROWS, TablePart
from streamhouse.connectors.mysql_cdc.database.progress import DatabaseProgress
from streamhouse.connectors.mysql_cdc.database.statement_scan import StatementLog
from streamhouse.connectors.mysql_cdc.relay.state import RelayedBatches, RelayView
from streamhouse.connectors.mysql_cdc.snapshot.chunks import Chunk, next_chunks, split
from streamhouse.errors import AlteredTableError, DataLossError
from streamhouse.mysql.connection import Session
from streamhouse.mysql.options import MySqlOptions
from streamhouse.mysql.position import START_AGAIN, BinlogPosition, KeyJson
from streamhouse.mysql.table import Server
from streamhouse.source import Offset

BATCH_CHUNKS = 64
SMALL_TABLE = 0.25
"""The last chunk of a table counts as this many chunks, since it may be nearly empty."""


class TablesPlanner(ABC):
    """The base of the planners of a sync and of a declared table; on the driver.

    Offsets are those of `DatabaseProgress`. The same two offsets give the same parts, except that
    tables which are no longer followed are left out. `session`: closed with the planner. `relay`:
    the folder of the relay log. `skip_snapshot`: the first tables are followed without their
    existing rows.
    """

    def __init__(
        self,
        options: MySqlOptions,
        session: Session,
        server: Server,
        relay: Path | None,
        skip_snapshot: bool = False,
    ) -> None:
        self._options, self._session, self._server = options, session, server
        self._relay, self._skip_snapshot = relay, skip_snapshot
        self._binlog = BinlogInspector(session, options, server)
        self._relayed = RelayedBatches(options.heartbeat_ms)
        self._statements = StatementLog(self._captured_table, relay)
        self._plan: tuple[Offset, Mapping[str, list[Chunk]]] | None = None

    def close(self) -> None:
        self._statements.close()
        self._binlog.close()
        self._session.close()

    def _current(self) -> BinlogPosition:
        """The end of the binlog that batches may read."""
        return self._server.position(self._session)

    def _moved(self, progress: DatabaseProgress, view: RelayView | None) -> DatabaseProgress | None:
        """The progress on this server, if it was made on another one; else None.

        Raises `DataLossError` if the stream cannot go on with the server's binlog.
        """
        position, state = progress.position, progress.binlog_state
        if view is not None and view.has(state.binlog, position):
            return None
        found = position_on_other_server(
            self._session, self._options, self._server, self._binlog, state
        )
        if found is None:
            self._binlog.check(position, state.binlog)
            return None
        return replace(
            progress,
            position=found[0],
            binlog_state=found[1],
            reloaded={},
            altered=frozenset(),
            statements=(f"goes on at {found[0]} of another server, after {state.gtids}",),
            hidden={},
            moved=True,
        )

    def _changed(
        self, before: DatabaseProgress, end: BinlogPosition, view: RelayView | None
    ) -> Collection[str] | None:
        """The names of tables that have changes up to a position; None: perhaps all tables."""
        start = before.position
        begin = None if view is None else view.begin()
        if view is None or begin is None or start < begin:
            return None
        state = view.state() if view.reaches(end) else None
        if state is None:
            return None
        return {name for name, changed in state.changed.items() if start < changed}

    def _planned(
        self,
        tables: Mapping[str, FollowedTable],
        unread: Mapping[str, KeyJson | None],
        ready: Iterable[str],
        size: int,
        most: int = BATCH_CHUNKS,
    ) -> tuple[dict[str, list[Chunk]], dict[str, KeyJson | None], dict[str, AlteredTableError]]:
        """Up to `most` chunks of `size` rows of the tables in `ready`, the smallest table first.

        Returns the chunks of each table, what is unread after them, and errors of tables that were
        altered since their description.
        """
        plan: dict[str, list[Chunk]] = {}
        after, used, altered = dict(unread), 0.0, {}
        for id in sorted(ready, key=lambda id: tables[id].rows):
            if used >= most:
                break
            captured = self._captured_table(tables[id])
            try:
                chunks, complete = next_chunks(
                    self._session, captured, unread[id], size, max(1, int(most - used))
                )
            except AlteredTableError as error:
                altered[id] = error
                continue
            plan[id] = chunks
            if complete:
                del after[id]
                used += len(chunks) - 1 + SMALL_TABLE
            else:
                after[id] = chunks[-1].high
                used += len(chunks)
        return plan, after, altered

    # -- parts

    def parts(self, start: Offset, end: Offset) -> list[TablePart]:
        """The parts of the batch from `start` to `end`: one for each table with unread rows."""
        before, after = DatabaseProgress.from_offset(start), DatabaseProgress.from_offset(end)
        assert after is not None
        if after.moved:
            return []
        old: Mapping[str, FollowedTable] = {}
        changed = None
        if before is not None:
            old = self.tables_of(before)
            view = self._view(before)
            if self._moved(before, view) is not None:
                raise DataLossError(
                    f"MySQL at {self._options.address} is another server than the one on which an "
                    f"interrupted batch of {self._options.name} was planned, which must read the "
                    "same changes again; let the query finish it on the former server, or "
                    + START_AGAIN
                )
            changed = self._changed(before, after.position, view)
        found = [
            self._part(table, before if table.id in old else None, after, changed, (start, end))
            for table in self.tables_of(after).values()
        ]
        return [part for part in found if part is not None]

    def _part(
        self,
        table: FollowedTable,
        before: DatabaseProgress | None,
        after: DatabaseProgress,
        changed: Collection[str] | None,
        batch: tuple[Offset, Offset],
    ) -> TablePart | None:
        """What a batch reads of a table, which is new in it if `before` is None.

        `changed`: the names of tables with changes in the batch; None: perhaps all tables.
        """
        now = self._at(after, table)
        if table.target in after.reloaded:
            deletes = after.reloaded[table.target]
            if table.id in after.gone:
                return TablePart(now, None, None, reload=deletes)
            lookback = None
            if before is not None:
                lookback = TablePosition(before.position, before.binlog_state, now.definition)
            as_of = self._position(after, table)
            return TablePart(now, None, None, (ALL_ROWS,), as_of, lookback, deletes)
        if table.target in after.stale or table.id in after.gone:
            return None
        low = None if before is None else before.snapshot.get(table.id)
        skips = "file" not in batch[0] and self._skip_snapshot
        complete = skips or (before is not None and table.id not in before.snapshot)
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
            chunks = self._chunks(now, Chunk(low, after.snapshot.get(table.id)), batch[1])
        if not changes and not chunks:
            return None
        begin = None if before is None else self._position(before, table)
        return TablePart(
            now,
            begin if changes else None,
            None if complete else low,
            tuple(chunks),
            self._position(after, table) if chunks else None,
            begin if chunks else None,
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

    @abstractmethod
    def tables_of(self, progress: DatabaseProgress) -> Mapping[str, FollowedTable]:
        """The tables of a batch by their ids, without those that are no longer followed."""

    @abstractmethod
    def _view(self, before: DatabaseProgress) -> RelayView | None:
        """The relay log, if it has the changes after a batch."""

    @abstractmethod
    def _captured_table(self, table: FollowedTable) -> CapturedTable:
        """What readers of the binlog need of a table."""

    def _at(self, progress: DatabaseProgress, table: FollowedTable) -> FollowedTable:
        """The table at the position of `progress`."""
        return table

    def _position(self, progress: DatabaseProgress, table: FollowedTable) -> TablePosition:
        definition = self._at(progress, table).definition
        return TablePosition(progress.position, progress.binlog_state, definition)
