"""The state of each table of a sync: its rows since the start of this run, and its lag."""

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from streamhouse.connectors.mysql_cdc.database.progress import DatabaseProgress
from streamhouse.connectors.mysql_cdc.database.table_sets import TableSet
from streamhouse.connectors.mysql_cdc.relay.state import UnreadChanges
from streamhouse.mysql.position import BinlogPosition


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
        self._snapshot: Counter[str] = Counter()
        self._changes: Counter[str] = Counter()
        self._unread = defaultdict[str, UnreadChanges](lambda: UnreadChanges(clock))

    def count(self, snapshot: Mapping[str, int], changes: Mapping[str, int]) -> None:
        """Count the rows of a committed batch."""
        self._snapshot.update(snapshot)
        self._changes.update(changes)

    def observe(self, position: BinlogPosition, changed: Mapping[str, BinlogPosition]) -> None:
        """Record which tables have changes after a position; called often.

        `changed`: where the last change of each table ends.
        """
        for table, at in changed.items():
            self._unread[table].observe(position, at)

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
                    max(self._unread[table.full_name].seconds, silent_s) if complete else None,
                )
            )
        return states
