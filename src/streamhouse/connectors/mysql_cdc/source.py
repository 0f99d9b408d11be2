"""A MySQL table as one stream: a snapshot without locks, then the binlog."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from streamhouse.connectors.mysql_cdc.binlog.binlog_inspector import BinlogInspector
from streamhouse.connectors.mysql_cdc.binlog.captured_table import CapturedTable
from streamhouse.connectors.mysql_cdc.binlog.limits import bounded_end, byte_budget
from streamhouse.connectors.mysql_cdc.binlog.startup import (
    check_startup,
    current_startup_position,
    startup_position,
)
from streamhouse.connectors.mysql_cdc.change_counts import ChangeCounts
from streamhouse.connectors.mysql_cdc.change_reader import (
    TablePosition,
    close_readers,
    read_row_events,
    read_rows,
    relay_view,
)
from streamhouse.connectors.mysql_cdc.key_group import KeyGroup, key_group_count, key_indexes
from streamhouse.connectors.mysql_cdc.lag import Snapshots, UnreadChanges, source_state
from streamhouse.connectors.mysql_cdc.metadata import MetadataColumns
from streamhouse.connectors.mysql_cdc.relay.files import RelayView, State
from streamhouse.connectors.mysql_cdc.schema_history import SchemaHistory
from streamhouse.connectors.mysql_cdc.server.columns import (
    check_columns,
    is_exact,
    selected_columns,
    server_zone,
)
from streamhouse.connectors.mysql_cdc.server.connection import Session
from streamhouse.connectors.mysql_cdc.server.keys import KeySpace
from streamhouse.connectors.mysql_cdc.server.options import parse
from streamhouse.connectors.mysql_cdc.server.position import (
    SHARDS,
    START_AGAIN,
    BinlogPosition,
    BinlogState,
    KeyJson,
    TableProgress,
)
from streamhouse.connectors.mysql_cdc.server.table import (
    PRIMARY,
    check_binlog_filter,
    check_server,
    load_table,
)
from streamhouse.connectors.mysql_cdc.server.values.rows import RowWriter
from streamhouse.connectors.mysql_cdc.server.values.table_errors import naming
from streamhouse.connectors.mysql_cdc.snapshot import (
    Chunk,
    chunk_ends,
    grouped,
    joined,
    split,
)
from streamhouse.connectors.mysql_cdc.snapshot_batches import snapshot_batches
from streamhouse.connectors.mysql_cdc.snapshot_filter import FilteredChanges, SnapshotFilter
from streamhouse.errors import DataLossError
from streamhouse.source import Lag, Offset
from streamhouse.sql.plan import Column

_CHUNKS_A_BATCH = 128
_BATCH_BYTES = 1 << 30
_BATCH_ROWS = 65_536
_RELAYED_BYTES = 64 * 1024 * 1024
"""The most bytes of the relay log in one batch; more take memory, and are not read faster."""


@dataclass(frozen=True)
class BinlogPart:
    """Changes in a range of the binlog, of keys up to `up_to` (None: of all keys).

    `key_group`: of which keys, if several partitions have the range.
    """

    start: TablePosition
    end: BinlogPosition
    up_to: KeyJson | None = None
    key_group: KeyGroup | None = None


@dataclass(frozen=True)
class SnapshotPart:
    """Chunks of the table as of `place`; for `lookback` see `ChunkReader`."""

    chunks: tuple[Chunk, ...]
    place: TablePosition
    lookback: TablePosition | None = None


class MySqlSource:
    """A MySQL or MariaDB table and its changes; a `Source`.

    `options` have Flink CDC's names, see `connectors.mysql_cdc.server.options`. `columns`: those
    of a declared table, matched by name and cast to the declared types; None: all columns of the
    table. `relay`: the folder of a shared relay log, if any. Connects on creation, and may raise
    `OptionError`, `ConnectError` or `TableError`.

    An offset is a key and a binlog position (`{"phase": "snapshot", "key": […], "file": …,
    "pos": …}`, with the `index` of the key if that is not the primary key): rows up to that key
    have been read, as of that position. After the snapshot it is just the position. The same two
    offsets give the same rows, whenever they are read, as long as the server keeps
    the binlog from the first one on; otherwise `DataLossError` is raised.

    `initial_offset`, `latest_offset` and `partitions` run on the driver, `read` anywhere; the
    object can be pickled.
    """

    ordered = False

    def __init__(
        self,
        options: Mapping[str, str],
        columns: Sequence[Column] | None = None,
        relay: Path | None = None,
    ) -> None:
        self._options = parse(options)
        self.changelog = not self._options.append_only
        self._session = Session(self._options)
        try:
            self._server = check_server(self._session, self._options)
            check_binlog_filter(self._session, self._server, self._options)
            check_startup(self._session, self._options, self._server)
            table = load_table(self._session, self._options)
            KeySpace(table)
            self._metadata = MetadataColumns.of(
                columns, self._options.database, self._options.table
            )
            stored = None if columns is None else self._metadata.stored
            selected = selected_columns(self._options, table.columns, stored, table.key)
            read = dict.fromkeys([*(column for column, _ in selected), *table.key])
            check_columns(self._session, self._options, list(read))
            zone = self._options.server_time_zone or server_zone(
                self._session, selected, "the option 'server-time-zone'"
            )
        except Exception:
            self._session.close()
            raise
        names = {column.name for column, _ in selected}
        extra = [column for column in table.key if column.name not in names]
        self._captured = CapturedTable(
            self._options,
            table,
            (*(column for column, _ in selected), *extra),
            self._server.mariadb,
            relay,
            self._server.ignores_case,
            not self._server.logs_names,
        )
        key = frozenset(column.name for column in table.key)
        self._writer = RowWriter(tuple(selected), zone, key)
        self._binlog_history: BinlogInspector | None = None
        self._schema_history: SchemaHistory | None = None
        self._plan: tuple[TableProgress, list[Chunk]] | None = None
        self._held: BinlogPosition | None = None
        self._advanced = time.monotonic()
        self._unread = UnreadChanges()
        self._counts = ChangeCounts()

    def __repr__(self) -> str:
        return f"MySqlSource({self._options.name} at {self._options.address})"

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        state.update(_session=None, _plan=None, _binlog_history=None, _schema_history=None)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._session = Session(self._options)

    @property
    def schema(self) -> pa.Schema:
        return self._metadata.schema(self._writer.schema)

    @property
    def primary_key(self) -> tuple[str, ...]:
        """The names of the table's primary key, in order."""
        return tuple(column.name for column in self._captured.table.key)

    @property
    def keyed_by(self) -> tuple[str, ...]:
        """The key, if the columns that are read keep its values apart; else nothing."""
        types = {column.name: target for column, target in self._writer.columns}
        if not all(is_exact(column, types.get(column.name)) for column in self._captured.table.key):
            return ()
        return self.primary_key

    def initial_offset(self) -> Offset:
        options = self._options
        if options.startup_mode == "specific-offset" and not options.startup_searched:
            return TableProgress(options.startup_position, snapshot_complete=True).to_offset()
        if not options.has_snapshot:
            return {"start": options.startup_mode}
        return TableProgress().to_offset()

    def latest_offset(self, start: Offset, max_rows: int | None = None) -> Offset:
        if "start" in start:
            return self._first_offset(start["start"])
        progress = TableProgress.from_offset(start)
        self._check_kind(start)
        self._check(progress)
        self._check_index(start)
        if not progress.snapshot_complete:
            return self._next_chunks(start, progress, max_rows)
        if self._options.startup_mode == "snapshot":
            return start
        return self._next_binlog(start, progress, max_rows)

    def partitions(self, start: Offset, end: Offset, parallelism: int = 1) -> Sequence[Any]:
        first, last = TableProgress.from_offset(start), TableProgress.from_offset(end)
        self._check_index(start, end)
        if last.position is None or (first.snapshot_complete and first.position is None):
            return []
        begin = None
        if first.position is not None:
            columns = self._columns.at(start, first.position)
            begin = TablePosition(first.position, first.binlog_state, columns)
        parts: list[BinlogPart | SnapshotPart] = []
        if begin is not None and begin.position < last.position:
            if first.snapshot_complete:
                parts += self._changes(begin, last.position, parallelism)
            elif first.key is not None:
                parts.append(BinlogPart(begin, last.position, first.key))
        if not first.snapshot_complete and (last.snapshot_complete or last.key != first.key):
            place = TablePosition(
                last.position, last.binlog_state, self._columns.at(end, last.position)
            )
            for group in grouped(self._chunks(first, last), parallelism):
                ranges = joined(group, self._options.chunk_size)
                parts.append(SnapshotPart(tuple(ranges), place, begin))
        return parts

    def _changes(
        self, begin: TablePosition, end: BinlogPosition, parallelism: int
    ) -> list[BinlogPart]:
        """The changes in a range; those of a long one in several parts, by their keys."""
        count = (
            1 if self._options.append_only else key_group_count(begin.position, end, parallelism)
        )
        key = key_indexes(self._captured)
        if count == 1 or not key:
            return [BinlogPart(begin, end)]
        return [
            BinlogPart(begin, end, key_group=KeyGroup(key, number, count))
            for number in range(count)
        ]

    def read(self, partition: BinlogPart | SnapshotPart) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, SnapshotPart):
            batches = self._read_chunks(partition)
        else:
            batches = self._counts.counted(self._read_binlog(partition))
        named = naming(self._options.name, batches)
        return named if self.changelog else (inserted(batch) for batch in named)

    def whole_table(self, parallelism: int = 1) -> Sequence[Any]:
        """Partitions that together contain the table's current rows; driver only."""
        position, binlog_state, columns = self._current_startup_position()
        end = (
            TableProgress(position, snapshot_complete=True, binlog_state=binlog_state).to_offset()
            | columns
        )
        return self.partitions(TableProgress().to_offset(), end, parallelism)

    def hold(self) -> None:
        """Stop at the current end of the binlog (Spark's `AvailableNow`)."""
        self._held = self._server.position(self._session)

    def committed(self, end: Offset) -> None:
        pass

    def finished(self, offset: Offset) -> bool:
        snapshot_only = self._options.startup_mode == "snapshot"
        return snapshot_only and TableProgress.from_offset(offset).snapshot_complete

    def caught_up(self, offset: Offset) -> bool:
        """Whether the server has no change of the table after `offset`; driver only."""
        progress = TableProgress.from_offset(offset)
        if not progress.snapshot_complete:
            # Planning chunks, which `latest_offset` does, would cost more than reading them.
            return False
        if progress.position is None or "start" in offset:
            return self.latest_offset(offset) == offset
        view = relay_view(self._captured)
        if view is None or view.state() is None:
            return self.latest_offset(offset) == offset
        current = self._server.position(self._session)
        state = view.state()
        if state is None or state.end < current:
            return False
        return not progress.position < state.changed.get(self._options.name, state.end)

    def lag(self, offset: Offset) -> Lag:
        """The bytes of binlog from `offset` to the table's last change in the relay log.

        `seconds`: since the oldest unread change was first seen here. During the snapshot about how
        many `rows` of it are left. Only `state` is known without a relay log; driver only.
        """
        progress = TableProgress.from_offset(offset)
        view = relay_view(self._captured)
        state = None if view is None else view.state()
        snapshotting, left = not progress.snapshot_complete, self.rows_left(offset)
        snapshots = Snapshots(int(snapshotting), left, self._options.chunk_size)
        known = source_state(snapshots, progress.position, state, [self._options.name])
        if snapshotting or progress.position is None or state is None:
            return Lag(rows=left, state=known)
        changed = state.changed.get(self._options.name, state.end)
        seconds, unread = self._unread.behind(progress.position, changed)
        return Lag(seconds=seconds, bytes=unread, state=known)

    def changes_read(self) -> Mapping[str, int]:
        """How many changes were read since the last call, by row kind."""
        return self._counts.taken()

    def rows_left(self, offset: Offset) -> int | None:
        """About how many rows of the snapshot are left, by the server's estimate at the start."""
        if offset.get("phase") != "snapshot":
            return None
        read: int = offset.get("rows", 0)
        return max(0, self._captured.table.size.rows - read)

    def close(self) -> None:
        for history in (self._binlog_history, self._schema_history):
            if history is not None:
                history.close()
        self._session.close()
        close_readers(self._captured)

    @property
    def _columns(self) -> SchemaHistory:
        if self._schema_history is None:
            self._schema_history = SchemaHistory(self._captured, self._session, self._server)
        return self._schema_history

    def _current(self) -> BinlogPosition:
        # Queried each time, in about 0.1 ms: a cached position would hide the latest changes.
        return self._held or self._server.position(self._session)

    @property
    def _binlog(self) -> BinlogInspector:
        if self._binlog_history is None:
            self._binlog_history = BinlogInspector(self._session, self._options, self._server)
        return self._binlog_history

    def _check(self, progress: TableProgress) -> None:
        """Raise `DataLossError` if the offset belongs to another binlog than the server's."""
        view, position = relay_view(self._captured), progress.position
        begin = None if view is None or view.state() is None else view.begin()
        if view is not None and begin is not None and position is not None and begin <= position:
            if view.continues(progress.binlog_state.identity, position):
                return
        self._binlog.check(progress)

    def _first_offset(self, mode: str) -> Offset:
        """Where a stream without a snapshot begins."""
        columns: Offset = {}
        if mode == "latest-offset":
            position, binlog_state, columns = self._current_startup_position()
            self._binlog.check_prepared(position)
        else:
            position, binlog_state = startup_position(
                self._session, self._options, self._server, self._binlog
            )
        return (
            TableProgress(position, snapshot_complete=True, binlog_state=binlog_state).to_offset()
            | columns
        )

    def _next_binlog(self, offset: Offset, progress: TableProgress, max_rows: int | None) -> Offset:
        start = progress.position
        assert start is not None
        end, state = self._next_end(progress, start, max_rows)
        if end == start:
            return offset
        # A batch ends before a statement about the table.
        end, columns = self._columns.next(offset, start, end)
        binlog_state = self._known_at(end, progress, state)
        return (
            TableProgress(end, snapshot_complete=True, binlog_state=binlog_state).to_offset()
            | columns
        )

    def _next_end(
        self, progress: TableProgress, start: BinlogPosition, max_rows: int | None
    ) -> tuple[BinlogPosition, State | None]:
        """The end of the next batch, and the relay log's state, if that log has the batch."""
        view = relay_view(self._captured)
        state = None if view is None or self._held is not None else view.state()
        begin = None if view is None or state is None else view.begin()
        current: BinlogPosition | None = None
        if view is not None and state is not None and begin is not None:
            if begin <= start and progress.binlog_state.skip is None:
                return self._relayed_end(view, state, start, max_rows), state
            current = None if begin <= start else begin
        current = current or self._current()
        if current < start and self._held is None:
            raise DataLossError(
                f"the binlog of MySQL at {self._options.address} ends at {current}, before "
                f"{start}: it was reset; start {self._options.name} again with a new checkpoint"
            )
        return bounded_end(self._session, self._captured.table, start, current, max_rows), None

    def _known_at(
        self, end: BinlogPosition, before: TableProgress, state: State | None
    ) -> BinlogState:
        """What is known at the end of a batch, after `before`; `state`: see `_next_end`."""
        if state is not None:
            prepared = {xid: at for xid, at in state.prepared.items() if at < end}
            return BinlogState(state.binlogs.get(end.file), self._binlog.still_prepared(prepared))
        skip = before.binlog_state.skip
        return replace(self._binlog.state_at(end), skip=None if skip is None else skip.after(end))

    def _relayed_end(
        self, view: RelayView, state: State, start: BinlogPosition, max_rows: int | None
    ) -> BinlogPosition:
        """The end of the next batch in the relay log; `start` if the table has not changed since.

        The position of an idle table advances only each `heartbeat.interval`, so that the server
        still has the binlog from there on at a restart; or if the log is far ahead of it, since
        that may be waiting for its readers.
        """
        now = time.monotonic()
        due = state.is_far(start) or now - self._advanced > self._options.heartbeat_ms / 1000
        changed = state.changed.get(self._options.name)
        if not start < state.end or not (due or changed is None or start < changed):
            return start
        self._advanced = now
        altered = state.altered.get(self._options.name, ())
        end = min((altered_at for altered_at in altered if start < altered_at), default=state.end)
        most = min(_RELAYED_BYTES, byte_budget(self._captured.table, max_rows))
        return view.bounded(start, end, most)

    def _next_chunks(self, start: Offset, progress: TableProgress, max_rows: int | None) -> Offset:
        if progress.position is None and not self._server.mariadb:
            # Set a position first: the binlog after it will correct the SELECTs (`lookback`).
            position, binlog_state, columns = self._current_startup_position()
            self._check_prepared(position)
            return TableProgress(position, binlog_state=binlog_state).to_offset() | columns
        size = self._options.chunk_size
        max_chunks = _CHUNKS_A_BATCH
        row_bytes = self._captured.table.size.row_bytes
        if row_bytes:
            # What fails is read again, so batches of large rows must not get too large.
            size = min(size, max(1, _BATCH_BYTES // _CHUNKS_A_BATCH // row_bytes))
        if max_rows is not None:
            size = min(size, max_rows)
            max_chunks = max(1, min(max_chunks, max_rows // size))
        ends, complete = chunk_ends(self._session, self._captured, progress.key, size, max_chunks)
        bounds = [progress.key, *ends, *([None] if complete else [])]
        chunks = [Chunk(a, b) for a, b in zip(bounds, bounds[1:], strict=False)]
        begin = progress.position
        if begin is None:
            position, binlog_state, columns = self._current_startup_position()
            self._check_prepared(position)
        else:
            position, binlog_state = self._binlog.snapshot_position(self._current)
            columns = self._columns.next(start, begin, position, cut=False)[1]
        after = TableProgress(position, None if complete else ends[-1], complete, binlog_state)
        self._plan = (after, chunks)
        offset = after.to_offset() | columns
        if not complete:
            offset["rows"] = start.get("rows", 0) + size * len(ends)
        return offset | self._index(offset)

    def _check_prepared(self, position: BinlogPosition) -> None:
        """Check that the binlog has all prepared XA transactions, as the stream begins."""
        if self._options.startup_mode != "snapshot":
            self._binlog.check_prepared(position)

    def _index(self, offset: Offset) -> Offset:
        """The index by which an offset of the snapshot is a place in the table."""
        index = self._captured.table.index
        return {"index": index} if "key" in offset and index != PRIMARY else {}

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

    def _current_startup_position(self) -> tuple[BinlogPosition, BinlogState, Offset]:
        """Where a stream begins, and what its offset has about the binlog and the columns there."""
        return current_startup_position(self._binlog, self._current, self._columns.now, bool)

    def _chunks(self, first: TableProgress, last: TableProgress) -> list[Chunk]:
        high = None if last.snapshot_complete else last.key
        if self._plan is not None:
            planned, chunks = self._plan
            if planned == last and chunks[0].low == first.key:
                return chunks
        return split(self._session, self._captured, first.key, high, self._options.chunk_size)

    def _read_chunks(self, part: SnapshotPart) -> Iterator[pa.RecordBatch]:
        batches = snapshot_batches(
            self._captured, self._server, self._writer, part.chunks, part.place, part.lookback
        )
        for rows in batches:
            yield self._metadata.added(rows)

    def _read_binlog(self, part: BinlogPart) -> Iterator[pa.RecordBatch]:
        if part.up_to is not None:
            yield from self._read_members(part, part.up_to)
            return
        for rows in read_rows(self._captured, part.start, part.end, part.key_group):
            batch = self._writer.changed(rows.kinds, rows.columns)
            yield self._metadata.added(batch, rows.seconds)

    def _read_members(self, part: BinlogPart, up_to: KeyJson) -> Iterator[pa.RecordBatch]:
        """The changes of rows that the snapshot has read."""
        snapshot_filter = SnapshotFilter(self._captured, up_to, self._options)
        changes = FilteredChanges(snapshot_filter)
        try:
            for event in read_row_events(self._captured, part.start, part.end):
                changes.add(event)
                if len(changes.rows) >= _BATCH_ROWS:
                    yield self._written(changes)
        finally:
            snapshot_filter.close()
        if changes.rows:
            yield self._written(changes)

    def _written(self, changes: FilteredChanges) -> pa.RecordBatch:
        batch = self._writer.changes(changes.kinds, changes.rows)
        rows = self._metadata.added(batch, changes.seconds)
        changes.clear()
        return rows


def inserted(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows as inserted rows, without the row kind that their batch ends with."""
    return batch.select(range(batch.num_columns - 1))
