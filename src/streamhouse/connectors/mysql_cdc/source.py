"""A MySQL table as one stream: a snapshot without locks, then the binlog."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from streamhouse.connectors.mysql_cdc.binlog.captured_table import CapturedTable
from streamhouse.connectors.mysql_cdc.binlog.startup import check_startup
from streamhouse.connectors.mysql_cdc.change_counts import ChangeCounts
from streamhouse.connectors.mysql_cdc.change_reader import close_readers, relay_view
from streamhouse.connectors.mysql_cdc.lag import Snapshots, UnreadChanges, source_state
from streamhouse.connectors.mysql_cdc.metadata import MetadataColumns
from streamhouse.connectors.mysql_cdc.server.columns import (
    check_columns,
    is_exact,
    selected_columns,
    server_zone,
)
from streamhouse.connectors.mysql_cdc.server.connection import FIRST_START_SECONDS, Session
from streamhouse.connectors.mysql_cdc.server.keys import KeySpace
from streamhouse.connectors.mysql_cdc.server.options import parse
from streamhouse.connectors.mysql_cdc.server.position import TableProgress
from streamhouse.connectors.mysql_cdc.server.table import (
    check_binlog_filter,
    check_server,
    load_table,
)
from streamhouse.connectors.mysql_cdc.server.values.rows import RowWriter
from streamhouse.connectors.mysql_cdc.server.values.table_errors import naming
from streamhouse.connectors.mysql_cdc.table_planner import TablePlanner
from streamhouse.connectors.mysql_cdc.table_reader import BinlogPart, SnapshotPart, TableReader
from streamhouse.source import Lag, Offset, Source
from streamhouse.sql.plan import Column


class MySqlSource(Source):
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

    changelog = True

    def __init__(
        self,
        options: Mapping[str, str],
        columns: Sequence[Column] | None = None,
        relay: Path | None = None,
    ) -> None:
        self._options = parse(options)
        self.changelog = not self._options.append_only
        # A pipeline waits longer for its server before it opens its sources (`Relays`).
        self._session = Session(self._options, FIRST_START_SECONDS)
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
        key = frozenset(column.name for column in table.key)
        self._writer = RowWriter(tuple(selected), zone, key, self._options.zero_dates)
        self._captured = CapturedTable(
            self._options,
            table,
            (*(column for column, _ in selected), *extra),
            self._server.mariadb,
            relay,
            self._server.ignores_case,
            not self._server.logs_names,
            self._writer.text_keys,
        )
        self._reader = TableReader(self._captured, self._server, self._writer, self._metadata)
        self._planner = TablePlanner(self._captured, self._server, self._session)
        self._unread = UnreadChanges()
        self._counts = ChangeCounts()

    def __repr__(self) -> str:
        return f"MySqlSource({self._options.name} at {self._options.address})"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_session": None, "_planner": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._session = Session(self._options)
        self._planner = TablePlanner(self._captured, self._server, self._session)

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
        return self._planner.latest_offset(start, max_rows)

    def partitions(self, start: Offset, end: Offset, parallelism: int = 1) -> Sequence[Any]:
        return self._planner.partitions(start, end, parallelism)

    def read(self, partition: BinlogPart | SnapshotPart) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, SnapshotPart):
            batches = self._reader.snapshot(partition)
        else:
            batches = self._counts.counted(self._reader.changes(partition))
        named = naming(self._options.name, batches)
        return named if self.changelog else (inserted(batch) for batch in named)

    def whole_table(self, parallelism: int = 1) -> Sequence[Any]:
        """Partitions that together contain the table's current rows; driver only."""
        return self._planner.whole_table(parallelism)

    def hold(self) -> None:
        """Stop at the current end of the binlog (Spark's `AvailableNow`)."""
        self._planner.hold()

    def finished(self, offset: Offset) -> bool:
        snapshot_only = self._options.startup_mode == "snapshot"
        return snapshot_only and TableProgress.from_offset(offset).snapshot_complete

    def caught_up(self, offset: Offset) -> bool:
        """Whether the server has no change of the table after `offset`; driver only."""
        return self._planner.caught_up(offset)

    def lag(self, offset: Offset) -> Lag:
        """The bytes of binlog from `offset` to the table's last change in the relay log.

        `seconds`: since the oldest unread change was first seen here. During the snapshot, about
        how many `rows` of it are left. Without a relay log, only `state` is known. Driver only.
        """
        progress = TableProgress.from_offset(offset)
        view = relay_view(self._captured)
        log = None if view is None else view.state()
        snapshotting, left = not progress.snapshot_complete, self.rows_left(offset)
        snapshots = Snapshots(int(snapshotting), left, self._options.chunk_size)
        state = source_state(snapshots, progress.position, log, [self._options.name])
        if snapshotting or progress.position is None or view is None or log is None:
            return Lag(rows=left, state=state)
        changed = log.changed.get(self._options.name, log.end)
        seconds, unread = self._unread.behind(progress.position, changed, view.silent_s())
        return Lag(seconds=seconds, bytes=unread, state=state)

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
        self._planner.close()
        self._session.close()
        close_readers(self._captured)


def inserted(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows as inserted rows, without the row kind that their batch ends with."""
    return batch.select(range(batch.num_columns - 1))
