"""Plans the batches of a declared table: of one MySQL table, or of several that are its shards."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

from streamhouse.connectors.mysql_cdc.binlog.alter_table import UNKNOWN
from streamhouse.connectors.mysql_cdc.binlog.captured_table import CapturedTable
from streamhouse.connectors.mysql_cdc.binlog.limits import bounded_end, reset_error
from streamhouse.connectors.mysql_cdc.binlog.startup import startup_position
from streamhouse.connectors.mysql_cdc.binlog.statements import ParsedStatement, StatementCheck
from streamhouse.connectors.mysql_cdc.change_reader import TablePosition, log_view
from streamhouse.connectors.mysql_cdc.database.followed_table import (
    FollowedTable,
    offset_part,
    table_at,
)
from streamhouse.connectors.mysql_cdc.database.progress import DatabaseProgress, Shard
from streamhouse.connectors.mysql_cdc.database.shards import ShardTables
from streamhouse.connectors.mysql_cdc.database.statement_scan import FoundStatement
from streamhouse.connectors.mysql_cdc.database.tables_planner import TablesPlanner
from streamhouse.connectors.mysql_cdc.relay.state import RelayState, RelayView
from streamhouse.errors import DataLossError, SchemaChangeError, TableError
from streamhouse.mysql.connection import Session
from streamhouse.mysql.options import MySqlOptions
from streamhouse.mysql.position import START_AGAIN, BinlogPosition, BinlogState, KeyJson
from streamhouse.mysql.table import Server, TableDefinition, load_table
from streamhouse.source import Offset

Tables: TypeAlias = Mapping[str, FollowedTable]
"""Tables by their ids."""
_BATCH_CHUNKS = 128
_ATTEMPTS = 20
_BATCH_BYTES = 1 << 30


class ShardsPlanner(TablesPlanner):
    """Plans batches on the driver.

    What the relay log lacks is read from the server. Offsets have the columns of all tables.
    """

    def __init__(
        self,
        options: MySqlOptions,
        session: Session,
        server: Server,
        relay: Path | None,
        shards: ShardTables,
    ) -> None:
        # Offsets say whether rows of before are read: `parts` is also asked for all of them.
        super().__init__(options, session, server, relay)
        self._shards = shards
        self._captured: dict[tuple[str, Path | None], CapturedTable] = {}
        self._stop_at: BinlogPosition | None = None

    def captured_tables(self) -> list[CapturedTable]:
        """The tables of the batches planned so far."""
        return list(self._captured.values())

    def hold(self) -> None:
        """Stop at the current end of the binlog."""
        self._stop_at = self._server.position(self._session)

    def latest_offset(self, start: Offset, max_rows: int | None = None) -> Offset:
        """The end of the next batch, of about `max_rows`; `start` if there is nothing to read."""
        before = DatabaseProgress.from_offset(start)
        if before is None:
            return self._first(start.get("start"), max_rows)
        tables = self.tables_of(before)
        newest = {**tables, **_by_id(self._shards.new(tables.values()))}
        moved = self._moved(before, self.relay_log(newest, before))
        if moved is not None:
            return moved.to_offset()
        added = [id for id in newest if id not in before.shards]
        snapshot = {id: key for id, key in before.snapshot.items() if id in newest}
        if snapshot or added:
            unread = {**snapshot, **dict.fromkeys(added)}
            # On MySQL, `lookback` begins here: the next batch reads the new tables.
            later = () if self._server.mariadb else added
            return self._next_chunks(before, newest, unread, max_rows, later)
        if self._options.startup_mode == "snapshot":
            return start
        return self._next_changes(start, before, newest, max_rows)

    def tables_of(self, progress: DatabaseProgress) -> Tables:
        names = [(database, name) for database, name, _ in progress.shards.values()]
        tables = _by_id(self._shards.selected(names))
        for id, table in tables.items():
            before, now = progress.shards[id].key, table.definition.index
            if before != now and progress.snapshot.get(id) is not None:
                raise DataLossError(
                    f"the snapshot of MySQL table {table.full_name} was read in the order of its "
                    f"key '{before}', but its key is now '{now}'; {START_AGAIN}"
                )
        return tables

    # -- startup

    def whole(self) -> Offset:
        """The end of a batch, from the initial offset on, that has the tables' current rows."""
        tables = _by_id(self._shards.all())
        return self._progress(tables, *self._startup_position(tables)).to_offset()

    def _first(self, mode: str | None, max_rows: int | None) -> Offset:
        """The end of the first batch; `mode`: the startup mode of a stream without a snapshot."""
        tables = _by_id(self._shards.all())
        if mode not in (None, "latest-offset"):
            begin = startup_position(self._session, self._options, self._server, self._binlog)
            return self._progress(tables, *begin, {}).to_offset()
        snapshot: dict[str, KeyJson | None] = dict.fromkeys(tables)
        skips = not self._options.has_snapshot
        if skips or not self._server.mariadb:
            # On MySQL, the binlog from this position on will correct the SELECTs (`lookback`).
            position, state, columns = self._startup_position(tables)
            self._check_prepared(position)
            unread = {} if skips else snapshot
            return self._progress(tables, position, state, columns, unread).to_offset()
        return self._next_chunks(None, tables, snapshot, max_rows)

    def _startup_position(
        self, tables: Tables
    ) -> tuple[BinlogPosition, BinlogState, dict[str, Any]]:
        """The current startup position, with the binlog's state and the tables' columns there.

        A concurrent ALTER TABLE can make it impossible to describe the columns at a position: then
        this takes a later one. Without the types of columns, no ALTER TABLE that changes one could
        be followed.
        """
        for _ in range(_ATTEMPTS):
            position, state = self._binlog.snapshot_position(self._current)
            columns = self._columns_now(position, tables.values())
            if all(columns.values()):
                break
        return position, state, columns

    def _progress(
        self,
        tables: Tables,
        position: BinlogPosition,
        state: BinlogState,
        columns: Mapping[str, Any],
        snapshot: Mapping[str, KeyJson | None] | None = None,
        rows: Mapping[str, int] | None = None,
    ) -> DatabaseProgress:
        shards = {id: Shard(*one.names, one.definition.index) for id, one in tables.items()}
        return DatabaseProgress(
            0, position, state, snapshot or {}, columns, rows=rows or {}, shards=shards
        )

    def _current(self) -> BinlogPosition:
        return self._stop_at or super()._current()

    # -- snapshots

    def _next_chunks(
        self,
        before: DatabaseProgress | None,
        newest: Tables,
        unread: Mapping[str, KeyJson | None],
        max_rows: int | None,
        later: Collection[str] = (),
    ) -> Offset:
        """A batch with chunks of tables in `unread` but not in `later`, the smallest first."""
        size, most = self._chunk_limits(newest, max_rows)
        ready = [id for id in unread if id not in later]
        plan, after, altered = self._planned(newest, unread, ready, size, most)
        for error in altered.values():
            raise error
        if before is None:
            position, state, columns = self._startup_position(newest)
        else:
            position, state = self._binlog.snapshot_position(self._current)
            columns = self._columns_at(before, newest, position)
        if before is None or len(unread) > len(before.snapshot):
            self._check_prepared(position)
        read = {} if before is None else before.rows
        rows = {
            id: read.get(id, 0) + size * len(chunks) for id, chunks in plan.items() if id in after
        }
        rows = {id: count for id, count in {**read, **rows}.items() if id in after}
        end = self._progress(newest, position, state, columns, after, rows).to_offset()
        self._plan = (end, plan)
        return end

    def _chunk_limits(self, tables: Tables, max_rows: int | None) -> tuple[int, int]:
        """The rows per chunk, and the most chunks in a batch."""
        size, most = self._options.chunk_size, _BATCH_CHUNKS
        row_bytes = max((one.definition.size.row_bytes for one in tables.values()), default=0)
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
        self,
        start: Offset,
        before: DatabaseProgress,
        newest: Tables,
        max_rows: int | None,
    ) -> Offset:
        view = self.relay_log(newest, before)
        log = None if view is None else view.state()
        if view is None or log is None:
            end = self._server_end(before.position, newest, max_rows)
        else:
            tables = [table.definition for table in newest.values()]
            end = self._relayed.end(view, log, before.position, tables, max_rows)
        if end == before.position:
            return start
        end, columns = self._cut(before, newest, end)
        if log is None:
            state = self._binlog.state_at(end)
        else:
            state = self._binlog.completed(log.binlog_state_at(end), end)
        state = state.following(before.binlog_state, end)
        return self._progress(newest, end, state, columns).to_offset()

    def _server_end(
        self, start: BinlogPosition, newest: Tables, max_rows: int | None
    ) -> BinlogPosition:
        """The end of a batch that is read from the server's binlog."""
        current, tables = self._current(), list(newest.values())
        if current < start and self._stop_at is None:
            raise reset_error(self._options.address, current, start, self._options.name)
        if not tables:
            return start
        return bounded_end(self._session, tables[0].definition, start, current, max_rows)

    def _view(self, before: DatabaseProgress) -> RelayView | None:
        return self.relay_log(self.tables_of(before), before)

    def _position(self, progress: DatabaseProgress, table: FollowedTable) -> TablePosition:
        columns = self._known(progress, table)
        return TablePosition(progress.position, progress.binlog_state, columns)

    def _captured_table(self, table: FollowedTable) -> CapturedTable:
        relay = self._relay if self._relays([table]) else None
        if (table.id, relay) not in self._captured:
            captured = table.captured_table(self._options, self._server, relay)
            self._captured[table.id, relay] = captured
        return self._captured[table.id, relay]

    # -- columns; docs/decisions/140-statements-in-the-binlog.md says why

    def _columns_now(
        self, position: BinlogPosition, tables: Iterable[FollowedTable]
    ) -> dict[str, Any]:
        """The columns of tables for an offset at a position; {} for those that are not known."""
        tables = list(tables)
        found = self._current_if_unaltered(tables, position)
        return {
            table.id: offset_part(found.get(table.full_name), self._captured_table(table))
            for table in tables
        }

    def _known(self, progress: DatabaseProgress, table: FollowedTable) -> TableDefinition | None:
        """The table as of an offset; None if that is not known.

        An offset has no columns if the stream began before a statement about the table. Then these
        are the table's current ones, if it was not altered since. If it was, and the server logs no
        names of columns, raises `SchemaChangeError`.
        """
        captured = self._captured_table(table)
        known = table_at(progress.columns.get(table.id, {}), captured.table)
        if known is not None or not captured.columns_by_index:
            return known
        known = self._current_if_unaltered([table], progress.position).get(table.full_name)
        if known is None:
            raise SchemaChangeError(
                f"MySQL table {captured.table.full_name} was altered after {progress.position}, "
                "and the server logs no names of columns; set binlog_row_metadata = FULL, and "
                f"{START_AGAIN}"
            )
        return known

    def _cut(
        self,
        before: DatabaseProgress,
        tables: Mapping[str, FollowedTable],
        end: BinlogPosition,
    ) -> tuple[BinlogPosition, dict[str, Any]]:
        """The end of a batch up to `end`, and the columns of all tables there.

        The batch ends before a statement about a table. A batch that starts with such a statement
        contains nothing else.
        """
        start = before.position
        found = self._statements.between(tables.values(), start, end, wait=True)
        if found:
            end = found[0].before if start < found[0].before else found[0].after
        return end, self._columns_at(before, tables, end)

    def _columns_at(
        self,
        before: DatabaseProgress,
        tables: Mapping[str, FollowedTable],
        end: BinlogPosition,
    ) -> dict[str, Any]:
        """The columns of all tables at the end of a batch that may contain statements."""
        columns = {id: part for id, part in before.columns.items() if id in tables}
        by_table: dict[str, list[FoundStatement]] = {}
        for event in self._statements.between(tables.values(), before.position, end, wait=True):
            by_table.setdefault(event.name, []).append(event)
        for id, table in tables.items():
            if table.full_name in by_table:
                captured = self._captured_table(table)
                found = by_table[table.full_name]
                known = self._after(captured, self._known(before, table), found)
                if known is not None and any(one.data_type == UNKNOWN for one in known.columns):
                    current = self._current_if_unaltered([table], end).get(table.full_name)
                    known = (
                        known if current is None else replace(current, hidden_in=known.hidden_in)
                    )
                columns[id] = offset_part(known, captured)
        missing = [table for id, table in tables.items() if not columns.get(id)]
        return columns | (self._columns_now(end, missing) if missing else {})

    def _after(
        self, captured: CapturedTable, known: TableDefinition | None, found: list[FoundStatement]
    ) -> TableDefinition | None:
        check = StatementCheck(captured, known)
        for event in found:
            try:
                check.take(event.statement, event.after)
            except (SchemaChangeError, DataLossError):
                return known  # The reader of this batch raises it, too.
        return check.known

    def _current_if_unaltered(
        self, tables: Iterable[FollowedTable], position: BinlogPosition
    ) -> Mapping[str, TableDefinition]:
        """The current columns, by names, of tables that no statement altered after `position`."""
        current: dict[str, TableDefinition] = {}
        found: list[FollowedTable] = []
        for table in tables:
            try:
                current[table.full_name] = load_table(
                    self._session, self._captured_table(table).options
                )
                found.append(table)
            except TableError:
                continue
        end = self._server.position(self._session)
        for event in self._statements.between(found, position, end):
            parsed = ParsedStatement(event.statement, event.table.ignores_case)
            name = event.table.parsed_name
            # One that creates the table, or a temporary one that hides it, alters no columns.
            if not parsed.creates(name) and (parsed.concerns(name) or not parsed.hides(name)):
                current.pop(event.name, None)
        return current

    # -- the relay log

    def relay_folder(self, progress: DatabaseProgress) -> Path | None:
        """The folder of the relay log, if that has the changes of all tables."""
        return self._relay if self._relays(self.tables_of(progress).values()) else None

    def current_state(self, tables: Tables, progress: DatabaseProgress) -> RelayState | None:
        """The state of a relay log that has the binlog up to now; None if it is behind."""
        view = self.relay_log(tables, progress)
        moved = self._moved(progress, view)
        return None if view is None or moved is not None else view.current(self._current)

    def _relays(self, tables: Iterable[FollowedTable]) -> bool:
        """Whether the relay log has the tables' changes."""
        view = log_view(self._relay)
        state = None if view is None else view.state()
        return state is not None and all(table.full_name in state.changed for table in tables)

    def relay_log(self, tables: Tables, before: DatabaseProgress) -> RelayView | None:
        """The relay log, if it has the changes of all tables after a batch."""
        view = log_view(self._relay)
        begin = None if view is None else view.begin()
        usable = self._stop_at is None and before.binlog_state.skip is None
        if not usable or begin is None or before.position < begin:
            return None
        return view if self._relays(tables.values()) else None


def _by_id(tables: Iterable[FollowedTable]) -> dict[str, FollowedTable]:
    return {table.id: table for table in tables}
