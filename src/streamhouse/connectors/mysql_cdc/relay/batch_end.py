"""Ends the batches of queries that read a relay log."""

from __future__ import annotations

import time
from collections.abc import Sequence

from streamhouse.connectors.mysql_cdc.binlog.limits import byte_budget
from streamhouse.connectors.mysql_cdc.relay.state import RelayState, RelayView
from streamhouse.connectors.mysql_cdc.server.position import BinlogPosition
from streamhouse.connectors.mysql_cdc.server.table import TableDefinition

BATCH_BYTES = 64 * 1024 * 1024
"""The most bytes of the relay log in one batch: more need more memory, and are not faster."""


class RelayedBatches:
    """Chooses where the batches of one query end; driver only.

    The position of idle tables advances once per `heartbeat_ms`, so that the server still has the
    binlog from there on after a restart. It also advances if the log is far ahead of it, as the log
    may be waiting for its readers.
    """

    def __init__(self, heartbeat_ms: int) -> None:
        self._heartbeat_s = heartbeat_ms / 1000
        self._advanced = time.monotonic()

    def end(
        self,
        view: RelayView,
        state: RelayState,
        start: BinlogPosition,
        tables: Sequence[TableDefinition],
        max_rows: int | None,
        at_statements: bool = True,
    ) -> BinlogPosition:
        """The end of the next batch; `start` if the batch would have no changes.

        `at_statements`: the batch also ends before a statement about one of the tables.
        """
        names = [table.full_name for table in tables]
        now = time.monotonic()
        due = state.is_far(start) or now - self._advanced > self._heartbeat_s
        changed = any(start < state.changed.get(name, state.end) for name in names)
        if not start < state.end or not (due or changed):
            return start
        self._advanced = now
        altered = [at for name in names for at in state.altered.get(name, ()) if start < at]
        end = min([*altered, state.end]) if at_statements else state.end
        budgets = [byte_budget(table, max_rows) for table in tables]
        return view.bounded(start, end, min([BATCH_BYTES, *budgets]))
