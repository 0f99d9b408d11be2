"""Plans the batches of a declared table: of one MySQL table, or of several that are its shards."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from streamhouse.connectors.mysql_cdc.binlog.binlog_inspector import BinlogInspector
from streamhouse.connectors.mysql_cdc.binlog.captured_table import CapturedTable
from streamhouse.connectors.mysql_cdc.binlog.limits import bounded_end, reset_error
from streamhouse.connectors.mysql_cdc.binlog.startup import current_startup_position
from streamhouse.connectors.mysql_cdc.change_reader import TablePosition, log_view
from streamhouse.connectors.mysql_cdc.database.progress import DatabaseProgress
from streamhouse.connectors.mysql_cdc.database.sharding.shard_histories import ShardHistories
from streamhouse.connectors.mysql_cdc.database.tables.followed_table import FollowedTable
from streamhouse.connectors.mysql_cdc.database.tables.table_sets import TableSet
from streamhouse.connectors.mysql_cdc.database.tables_planner import TableSetStore, TablesPlanner
from streamhouse.connectors.mysql_cdc.relay.state import RelayState, RelayView
from streamhouse.mysql.connection import Session
from streamhouse.mysql.options import MySqlOptions
from streamhouse.mysql.position import BinlogPosition, BinlogState, KeyJson
from streamhouse.source import Offset

_BATCH_CHUNKS = 128
_BATCH_BYTES = 1 << 30


class ShardsPlanner(TablesPlanner):
    """Plans batches on the driver.

    What the relay log lacks is read from the server. Offsets have the columns of all tables.
    `session`: closed with the planner.
    """

    def __init__(
        self,
        options: MySqlOptions,
        table_sets: TableSetStore,
        relay: Path | None,
        session: Session,
    ) -> None:
        # Offsets say whether rows of before are read: `parts` is also asked for all of them.
        super().__init__(options, table_sets, relay, skip_snapshot=False, session=session)
        self._captured: dict[tuple[str, Path | None], CapturedTable] = {}
        self._histories = ShardHistories(self._session, self._server, self._captured_table)
        self._stop_at: BinlogPosition | None = None

    @property
    def session(self) -> Session:
        """The session with the server, for other statements."""
        return self._session

    @property
    def binlog(self) -> BinlogInspector:
        return self._binlog

    def captured_tables(self) -> list[CapturedTable]:
        """The tables of the batches planned so far."""
        return list(self._captured.values())

    def hold(self) -> None:
        """Stop at the current end of the binlog."""
        self._stop_at = self._server.position(self._session)

    def latest_offset(self, start: Offset, max_rows: int | None = None) -> Offset:
        """The end of the next batch, of about `max_rows`; `start` if there is nothing to read."""
        before = DatabaseProgress.from_offset(start)
        newest = self._table_sets.latest()
        if before is None:
            return self._first(newest, max_rows)
        moved = self._moved(before, self.relay_log(before)[0])
        if moved is not None:
            return moved.to_offset()
        old = self._table_sets.get(before.table_set).tables
        added = [id for id in newest.tables if id not in old]
        snapshot = {id: key for id, key in before.snapshot.items() if id in newest.tables}
        if snapshot or added:
            unread = {**snapshot, **dict.fromkeys(added)}
            # On MySQL, `lookback` begins here: the next batch reads the new tables.
            later = () if self._server.mariadb else added
            return self._next_chunks(before, newest, unread, max_rows, later)
        if self._options.startup_mode == "snapshot":
            return start
        return self._next_changes(start, before, newest, max_rows)

    def close(self) -> None:
        self._histories.close()
        super().close()

    # -- startup

    def startup_position(
        self, newest: TableSet
    ) -> tuple[BinlogPosition, BinlogState, dict[str, Any]]:
        """The current startup position, with the binlog's state and the tables' columns there."""
        return current_startup_position(
            self._binlog,
            self._current,
            lambda position: self._histories.now(position, newest.tables.values()),
            lambda columns: all(columns.values()),
        )

    def _first(self, newest: TableSet, max_rows: int | None) -> Offset:
        snapshot: dict[str, KeyJson | None] = dict.fromkeys(newest.tables)
        skips = not self._options.has_snapshot
        if skips or not self._server.mariadb:
            # On MySQL, the binlog from this position on will correct the SELECTs (`lookback`).
            position, state, columns = self.startup_position(newest)
            self._check_prepared(position)
            empty = {} if skips else snapshot
            return DatabaseProgress(newest.number, position, state, empty, columns).to_offset()
        return self._next_chunks(None, newest, snapshot, max_rows)

    def _current(self) -> BinlogPosition:
        return self._stop_at or super()._current()

    # -- snapshots

    def _next_chunks(
        self,
        before: DatabaseProgress | None,
        newest: TableSet,
        unread: Mapping[str, KeyJson | None],
        max_rows: int | None,
        later: Collection[str] = (),
    ) -> Offset:
        """A batch with chunks of tables in `unread` but not in `later`, the smallest first."""
        size, most = self._chunk_limits(newest, max_rows)
        ready = [id for id in unread if id not in later]
        plan, after, altered = self._planned(newest.tables, unread, ready, size, most)
        for error in altered.values():
            raise error
        if before is None:
            position, state, columns = self.startup_position(newest)
        else:
            position, state = self._binlog.snapshot_position(self._current)
            view = self.relay_log(before)[0]
            columns = self._histories.columns(before, newest, position, view)
        if before is None or len(unread) > len(before.snapshot):
            self._check_prepared(position)
        read = {} if before is None else before.rows
        rows = {
            id: read.get(id, 0) + size * len(chunks) for id, chunks in plan.items() if id in after
        }
        rows = {id: count for id, count in {**read, **rows}.items() if id in after}
        progress = DatabaseProgress(newest.number, position, state, after, columns, rows=rows)
        end = progress.to_offset()
        self._plan = (end, plan)
        return end

    def _chunk_limits(self, tables: TableSet, max_rows: int | None) -> tuple[int, int]:
        """The rows per chunk, and the most chunks in a batch."""
        size, most = self._options.chunk_size, _BATCH_CHUNKS
        row_bytes = max(
            (one.definition.size.row_bytes for one in tables.tables.values()), default=0
        )
        if row_bytes:
            # A failed batch is read again, so batches of large rows must not get too large.
            size = min(size, max(1, _BATCH_BYTES // _BATCH_CHUNKS // row_bytes))
        if max_rows is not None:
            size = min(size, max_rows)
            most = max(1, min(most, max_rows // size))
        return size, most

    def _check_prepared(self, position: BinlogPosition) -> None:
        """Check that the binlog has all prepared XA transactions, as the stream begins."""
        if self._options.startup_mode != "snapshot":
            self._binlog.check_prepared(position)

    # -- the binlog

    def _next_changes(
        self, start: Offset, before: DatabaseProgress, newest: TableSet, max_rows: int | None
    ) -> Offset:
        view, log = self.relay_log(before)
        if view is None or log is None:
            end = self._server_end(before.position, newest, max_rows)
        else:
            tables = [table.definition for table in newest.tables.values()]
            end = self._relayed.end(view, log, before.position, tables, max_rows)
        if end == before.position:
            return start
        end, columns = self._histories.cut(before, newest, end, view)
        if log is None:
            state = self._binlog.state_at(end)
        else:
            state = self._binlog.completed(log.binlog_state_at(end), end)
        state = state.following(before.binlog_state, end)
        return DatabaseProgress(newest.number, end, state, {}, columns).to_offset()

    def _server_end(
        self, start: BinlogPosition, newest: TableSet, max_rows: int | None
    ) -> BinlogPosition:
        """The end of a batch that is read from the server's binlog."""
        current, tables = self._current(), list(newest.tables.values())
        if current < start and self._stop_at is None:
            raise reset_error(self._options.address, current, start, self._options.name)
        if not tables:
            return start
        return bounded_end(self._session, tables[0].definition, start, current, max_rows)

    def _view(self, before: DatabaseProgress) -> RelayView | None:
        return self.relay_log(before)[0]

    def _position(self, progress: DatabaseProgress, table: FollowedTable) -> TablePosition:
        columns = self._histories.at(progress, table)
        return TablePosition(progress.position, progress.binlog_state, columns)

    def _captured_table(self, table: FollowedTable) -> CapturedTable:
        relay = self._relay if self._relays([table]) else None
        if (table.id, relay) not in self._captured:
            captured = table.captured_table(self._options, self._server, relay)
            self._captured[table.id, relay] = captured
        return self._captured[table.id, relay]

    # -- the relay log

    def relay_folder(self) -> Path | None:
        """The folder of the relay log, if that has the changes of all tables."""
        tables: Sequence[FollowedTable] = list(self._table_sets.latest().tables.values())
        return self._relay if self._relays(tables) else None

    def relay_state(self, before: DatabaseProgress) -> RelayState | None:
        """The state of the relay log, if that has the changes of all tables after a batch."""
        return self.relay_log(before)[1]

    def current_state(self, progress: DatabaseProgress) -> RelayState | None:
        """The state of a relay log that has the binlog up to now; None if it is behind."""
        view = self.relay_log(progress)[0]
        moved = self._moved(progress, view)
        return None if view is None or moved is not None else view.current(self._current)

    def _relays(self, tables: Iterable[FollowedTable]) -> bool:
        """Whether the relay log has the tables' changes."""
        view = log_view(self._relay)
        state = None if view is None else view.state()
        return state is not None and all(table.full_name in state.changed for table in tables)

    def relay_log(self, before: DatabaseProgress) -> tuple[RelayView | None, RelayState | None]:
        """The relay log and its state, if it has the changes of all tables after a batch."""
        view = log_view(self._relay)
        state = None if view is None else view.state()
        if view is None or state is None:
            return None, None
        begin = view.begin()
        usable = self._stop_at is None and before.binlog_state.skip is None
        if not usable or begin is None or before.position < begin:
            return None, None
        if not self._relays(self._table_sets.latest().tables.values()):
            return None, None
        return view, state
