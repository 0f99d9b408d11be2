"""Plans the batches of one table's stream, on the driver: their offsets and partitions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from streamhouse.connectors.mysql_cdc.binlog.binlog_inspector import BinlogInspector
from streamhouse.connectors.mysql_cdc.binlog.captured_table import CapturedTable
from streamhouse.connectors.mysql_cdc.binlog.limits import bounded_end, reset_error
from streamhouse.connectors.mysql_cdc.binlog.startup import (
    current_startup_position,
    interrupted_batch,
    position_on_other_server,
    startup_position,
)
from streamhouse.connectors.mysql_cdc.change_reader import TablePosition, relay_view
from streamhouse.connectors.mysql_cdc.key_group import KeyGroup, key_group_count, key_indexes
from streamhouse.connectors.mysql_cdc.relay.batch_end import RelayedBatches
from streamhouse.connectors.mysql_cdc.relay.state import RelayState
from streamhouse.connectors.mysql_cdc.schema_history import SchemaHistory
from streamhouse.connectors.mysql_cdc.server.connection import Session
from streamhouse.connectors.mysql_cdc.server.position import (
    SHARDS,
    START_AGAIN,
    BinlogPosition,
    BinlogState,
    TableProgress,
)
from streamhouse.connectors.mysql_cdc.server.table import PRIMARY, Server
from streamhouse.connectors.mysql_cdc.snapshot.chunks import (
    Chunk,
    grouped,
    joined,
    next_chunks,
    split,
)
from streamhouse.connectors.mysql_cdc.table_reader import BinlogPart, SnapshotPart
from streamhouse.errors import DataLossError
from streamhouse.source import Offset

_KEPT = ("rows", "index", "table")
"""The parts of an offset that are the same on another server."""
_CHUNKS_PER_BATCH = 128
_BATCH_BYTES = 1 << 30


class TablePlanner:
    """Plans batches; `MySqlSource` describes their offsets. `close` leaves the session open."""

    def __init__(self, captured: CapturedTable, server: Server, session: Session) -> None:
        self._captured, self._server, self._session = captured, server, session
        self._options = captured.options
        self._binlog = BinlogInspector(session, self._options, server)
        self._columns = SchemaHistory(captured, session, server)
        self._relayed = RelayedBatches(self._options.heartbeat_ms)
        self._plan: tuple[TableProgress, list[Chunk]] | None = None
        self._stop_at: BinlogPosition | None = None

    def latest_offset(self, start: Offset, max_rows: int | None = None) -> Offset:
        """The end of the next batch; `start` if there is nothing to read."""
        if "start" in start:
            return self._first_offset(start["start"])
        progress = TableProgress.from_offset(start)
        self._check_kind(start)
        moved = self._moved(start, progress)
        if moved is not None:
            return moved
        self._check_index(start)
        if not progress.snapshot_complete:
            return self._next_chunks(start, progress, max_rows)
        if self._options.startup_mode == "snapshot":
            return start
        return self._next_changes(start, progress, max_rows)

    def partitions(
        self, start: Offset, end: Offset, parallelism: int
    ) -> list[BinlogPart | SnapshotPart]:
        """The partitions of a batch, in order."""
        first, last = TableProgress.from_offset(start), TableProgress.from_offset(end)
        self._check_index(start, end)
        if (
            end.get("moved")
            or last.position is None
            or (first.snapshot_complete and first.position is None)
        ):
            return []
        begin = None
        if first.position is not None:
            if self._moved(start, first) is not None:
                raise interrupted_batch(self._options)
            columns = self._columns.at(start, first.position)
            begin = TablePosition(first.position, first.binlog_state, columns)
        parts: list[BinlogPart | SnapshotPart] = []
        if begin is not None and begin.position < last.position:
            if first.snapshot_complete:
                parts += self._changes(begin, last.position, parallelism)
            elif first.key is not None:
                parts.append(BinlogPart(begin, last.position, first.key))
        if not first.snapshot_complete and (last.snapshot_complete or last.key != first.key):
            columns = self._columns.at(end, last.position)
            as_of = TablePosition(last.position, last.binlog_state, columns)
            for group in grouped(self._chunks(first, last), parallelism):
                chunks = joined(group, self._options.chunk_size)
                parts.append(SnapshotPart(tuple(chunks), as_of, begin))
        return parts

    def whole_table(self, parallelism: int) -> Sequence[Any]:
        """Partitions that together contain the table's current rows."""
        position, state, columns = self._current_startup_position()
        end = TableProgress(position, snapshot_complete=True, binlog_state=state)
        return self.partitions(TableProgress().to_offset(), end.to_offset() | columns, parallelism)

    def hold(self) -> None:
        """Stop at the current end of the binlog."""
        self._stop_at = self._server.position(self._session)

    def caught_up(self, offset: Offset) -> bool:
        """Whether the server has no change of the table after `offset`."""
        progress = TableProgress.from_offset(offset)
        if not progress.snapshot_complete:
            # Planning chunks, which `latest_offset` does, would cost more than reading them.
            return False
        if progress.position is None or "start" in offset:
            return self.latest_offset(offset) == offset
        view = relay_view(self._captured)
        if view is None or not view.has(progress.binlog_state.identity, progress.position):
            return self.latest_offset(offset) == offset
        state = view.current(lambda: self._server.position(self._session))
        if state is None:
            return False
        return not progress.position < state.changed.get(self._options.name, state.end)

    def close(self) -> None:
        self._binlog.close()
        self._columns.close()

    # -- startup

    def _first_offset(self, mode: str) -> Offset:
        """The startup position of a stream without a snapshot."""
        columns: Offset = {}
        if mode == "latest-offset":
            position, state, columns = self._current_startup_position()
            self._binlog.check_prepared(position)
        else:
            position, state = startup_position(
                self._session, self._options, self._server, self._binlog
            )
        progress = TableProgress(position, snapshot_complete=True, binlog_state=state)
        return progress.to_offset() | columns

    def _current_startup_position(self) -> tuple[BinlogPosition, BinlogState, Offset]:
        return current_startup_position(self._binlog, self._current, self._columns.now, bool)

    def _current(self) -> BinlogPosition:
        # Queried each time, in about 0.1 ms: a cached position would hide the latest changes.
        return self._stop_at or self._server.position(self._session)

    # -- the snapshot

    def _next_chunks(self, start: Offset, progress: TableProgress, max_rows: int | None) -> Offset:
        if progress.position is None and not self._server.mariadb:
            # Set a position first: the binlog after it will correct the SELECTs (`lookback`).
            position, state, columns = self._current_startup_position()
            self._check_prepared(position)
            return TableProgress(position, binlog_state=state).to_offset() | columns
        size, most = self._chunk_limits(max_rows)
        chunks, complete = next_chunks(self._session, self._captured, progress.key, size, most)
        begin = progress.position
        if begin is None:
            position, state, columns = self._current_startup_position()
            self._check_prepared(position)
        else:
            position, state = self._binlog.snapshot_position(self._current)
            columns = self._columns.next(start, begin, position, cut=False)[1]
        key = None if complete else chunks[-1].high
        after = TableProgress(position, key, complete, state)
        self._plan = (after, chunks)
        offset = after.to_offset() | columns
        if not complete:
            offset["rows"] = start.get("rows", 0) + size * len(chunks)
        return offset | self._index(offset)

    def _chunk_limits(self, max_rows: int | None) -> tuple[int, int]:
        """The rows per chunk, and the most chunks in a batch."""
        size, most = self._options.chunk_size, _CHUNKS_PER_BATCH
        row_bytes = self._captured.table.size.row_bytes
        if row_bytes:
            # A failed batch is read again, so batches of large rows must not get too large.
            size = min(size, max(1, _BATCH_BYTES // _CHUNKS_PER_BATCH // row_bytes))
        if max_rows is not None:
            size = min(size, max_rows)
            most = max(1, min(most, max_rows // size))
        return size, most

    def _check_prepared(self, position: BinlogPosition) -> None:
        """Check that the binlog has all prepared XA transactions, as the stream begins."""
        if self._options.startup_mode != "snapshot":
            self._binlog.check_prepared(position)

    def _chunks(self, first: TableProgress, last: TableProgress) -> list[Chunk]:
        """The chunks between two offsets; after a restart of the driver perhaps other ones."""
        if self._plan is not None:
            planned, chunks = self._plan
            if planned == last and chunks[0].low == first.key:
                return chunks
        high = None if last.snapshot_complete else last.key
        keys = Chunk(first.key, high)
        return split(self._session, self._captured, keys, self._options.chunk_size)

    def _index(self, offset: Offset) -> Offset:
        """The index whose order an offset of the snapshot refers to."""
        index = self._captured.table.index
        return {"index": index} if "key" in offset and index != PRIMARY else {}

    # -- the binlog

    def _next_changes(self, start: Offset, progress: TableProgress, max_rows: int | None) -> Offset:
        begin = progress.position
        assert begin is not None
        end, log = self._next_end(progress, begin, max_rows)
        if end == begin:
            return start
        # A batch ends before a statement about the table.
        end, columns = self._columns.next(start, begin, end)
        if log is None:
            state = self._binlog.state_at(end)
        else:
            state = self._binlog.completed(log.binlog_state_at(end), end)
        state = state.following(progress.binlog_state, end)
        after = TableProgress(end, snapshot_complete=True, binlog_state=state)
        return after.to_offset() | columns

    def _next_end(
        self, progress: TableProgress, start: BinlogPosition, max_rows: int | None
    ) -> tuple[BinlogPosition, RelayState | None]:
        """The end of the next batch, and the relay log's state, if that log has the batch."""
        view = relay_view(self._captured)
        state = None if view is None or self._stop_at is not None else view.state()
        begin = None if view is None or state is None else view.begin()
        current: BinlogPosition | None = None
        if view is not None and state is not None and begin is not None:
            if begin <= start and progress.binlog_state.skip is None:
                tables = [self._captured.table]
                return self._relayed.end(view, state, start, tables, max_rows), state
            current = None if begin <= start else begin
        current = current or self._current()
        if current < start and self._stop_at is None:
            raise reset_error(self._options.address, current, start, self._options.name)
        return bounded_end(self._session, self._captured.table, start, current, max_rows), None

    def _changes(
        self, begin: TablePosition, end: BinlogPosition, parallelism: int
    ) -> list[BinlogPart]:
        """The changes in a range; a long range is divided by key groups."""
        count, key = 1, key_indexes(self._captured)
        if key and not self._options.append_only:
            count = key_group_count(begin.position, end, parallelism)
        if count == 1:
            return [BinlogPart(begin, end)]
        groups = [KeyGroup(key, number, count) for number in range(count)]
        return [BinlogPart(begin, end, key_group=group) for group in groups]

    # -- whether an offset can be continued

    def _moved(self, start: Offset, progress: TableProgress) -> Offset | None:
        """The offset on this server, if `start` was made on another one; else None.

        Raises `DataLossError` if the stream cannot go on with the server's binlog.
        """
        view, position = relay_view(self._captured), progress.position
        begin = None if view is None or view.state() is None else view.begin()
        if view is not None and begin is not None and position is not None and begin <= position:
            if view.has(progress.binlog_state.identity, position):
                return None
        found = position_on_other_server(
            self._session, self._options, self._server, self._binlog, progress.binlog_state
        )
        if found is None:
            self._binlog.check(progress)
            return None
        moved = replace(progress, position=found[0], binlog_state=found[1]).to_offset()
        kept = {key: value for key, value in start.items() if key in _KEPT}
        return {**kept, **moved, "moved": True}

    def _check_kind(self, offset: Offset) -> None:
        if SHARDS in offset:
            raise DataLossError(
                f"{self._options.name} has named several tables so far, as a regular expression, "
                f"and there is a table of that name now; rename it, or {START_AGAIN}"
            )

    def _check_index(self, *offsets: Offset) -> None:
        index = self._captured.table.index
        for offset in offsets:
            if "key" in offset and offset.get("index", PRIMARY) != index:
                raise DataLossError(
                    f"the snapshot of MySQL table {self._options.name} was read in the order of "
                    f"its key '{offset.get('index', PRIMARY)}', but its key is now '{index}'; "
                    f"{START_AGAIN}"
                )
