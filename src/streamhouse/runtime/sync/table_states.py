"""Progress of a sync by table: the rows of its snapshot, its changes, and its lag."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from streamhouse.connectors.mysql_cdc.database.progress import DatabaseProgress
from streamhouse.connectors.mysql_cdc.database.tables.table_sets import TableSet
from streamhouse.mysql.position import BinlogPosition
from streamhouse.runtime.sync.micro_batch.commit import SyncedBatch


@dataclass(frozen=True)
class TableState:
    """One followed table: rows since the start of this run, and how far it is behind.

    `estimate`: the server's estimate of its rows. `lag_s` is None until the snapshot is `complete`.
    """

    table: str
    target: str
    complete: bool
    snapshot_rows: int
    estimate: int
    changes: int
    lag_s: float | None


class TableStates:
    """Counts the rows of each table, and records the time from which it has unread changes."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._snapshot: Counter[str] = Counter()
        self._changes: Counter[str] = Counter()
        self._unread: dict[str, tuple[float, BinlogPosition]] = {}

    def count(self, batch: SyncedBatch) -> None:
        """Count the rows of a committed batch."""
        self._snapshot.update(batch.snapshot)
        self._changes.update(batch.changes)

    def observe(self, position: BinlogPosition, changed: Mapping[str, BinlogPosition]) -> None:
        """Record which tables have changes after a position; called often.

        `changed`: where the last change of each table ends.
        """
        now = self._clock()
        for table, at in changed.items():
            first = self._unread.get(table)
            if first is not None and not position < first[1]:
                # All earlier changes have been read: later ones arrived at this time or after it.
                first = None
                del self._unread[table]
            if first is None and position < at:
                self._unread[table] = now, at

    def behind_s(self, table: str) -> float:
        """For how long the table has had changes that are not read yet; 0 if it has none."""
        first = self._unread.get(table)
        return 0.0 if first is None else self._clock() - first[0]

    def states(
        self,
        table_set: TableSet,
        progress: DatabaseProgress | None,
        planned: Collection[str],
        silent_s: float = 0.0,
    ) -> list[TableState]:
        """The state of each table, in the order of their names.

        `planned`: the ids of the tables that the progress is about; the others are newer.
        `silent_s`: for how long the server has sent nothing.
        """
        states = []
        for table in sorted(table_set.tables.values(), key=lambda followed: followed.full_name):
            complete = (
                progress is not None
                and table.id in planned
                and table.id not in progress.snapshot
                and table.target not in progress.stale
            )
            states.append(
                TableState(
                    table.full_name,
                    table.target,
                    complete,
                    self._snapshot[table.id],
                    table.rows,
                    self._changes[table.id],
                    max(self.behind_s(table.full_name), silent_s) if complete else None,
                )
            )
        return states
