"""Plans the batches of many tables: their offsets have one position of the binlog.

docs/decisions/148-one-query-syncs-many-tables.md says why.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from streamhouse.connectors.mysql_cdc.binlog.binlog_inspector import BinlogInspector
from streamhouse.connectors.mysql_cdc.binlog.startup import (
    interrupted_batch,
    position_on_other_server,
)
from streamhouse.connectors.mysql_cdc.database.progress import DatabaseProgress
from streamhouse.connectors.mysql_cdc.database.tables.table_sets import TableSet
from streamhouse.connectors.mysql_cdc.relay.batch_end import RelayedBatches
from streamhouse.connectors.mysql_cdc.relay.state import RelayView
from streamhouse.connectors.mysql_cdc.server.connection import Session
from streamhouse.connectors.mysql_cdc.server.options import MySqlOptions
from streamhouse.connectors.mysql_cdc.server.position import BinlogPosition, TableProgress
from streamhouse.connectors.mysql_cdc.server.table import Server, check_server
from streamhouse.connectors.mysql_cdc.snapshot.chunks import Chunk
from streamhouse.source import Offset

BATCH_CHUNKS = 64
SMALL_TABLE = 0.25
"""The last chunk of a table counts as this many chunks, since it may be nearly empty."""


class TableSetStore(Protocol):
    """Has the table sets that offsets refer to by number."""

    def latest(self) -> TableSet:
        """The newest table set."""

    def get(self, number: int) -> TableSet:
        """The table set with a number."""


class TablesPlanner:
    """The base of the planners of a sync and of shards; on the driver.

    Offsets are those of `DatabaseProgress`. The same two offsets give the same parts, except that
    tables which the newest table set lacks are left out. `relay`: the folder of the relay log.
    `skip_snapshot`: the first tables are followed without their existing rows.
    """

    def __init__(
        self,
        options: MySqlOptions,
        table_sets: TableSetStore,
        relay: Path | None,
        skip_snapshot: bool,
    ) -> None:
        self._options, self._table_sets, self._relay = options, table_sets, relay
        self._skip_snapshot = skip_snapshot
        self._session = Session(options)
        self._server: Server = check_server(self._session, options)
        self._binlog = BinlogInspector(self._session, options, self._server)
        self._relayed = RelayedBatches(options.heartbeat_ms)
        self._plan: tuple[Offset, Mapping[str, list[Chunk]]] | None = None

    @property
    def server(self) -> Server:
        return self._server

    def close(self) -> None:
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
        if view is not None and view.has(state.identity, position):
            return None
        found = position_on_other_server(
            self._session, self._options, self._server, self._binlog, state
        )
        if found is None:
            self._binlog.check(TableProgress(position, snapshot_complete=True, binlog_state=state))
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

    def _check_batch(self, before: DatabaseProgress, view: RelayView | None) -> None:
        """Raise `DataLossError` if a batch was planned on another server, but not read there."""
        if self._moved(before, view) is not None:
            raise interrupted_batch(self._options)

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

    def _planned_chunks(self, id: str, end: Offset) -> list[Chunk] | None:
        """The chunks of a table in the batch that ends at `end`; None if it was planned before."""
        if self._plan is None or self._plan[0] != end:
            return None
        return self._plan[1].get(id)
