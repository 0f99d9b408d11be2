"""Reports of a running sync: the progress of the snapshots, then how far each table is behind."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.runtime.sync.query import SyncQuery
from streamhouse.runtime.sync.table_states import TableState
from streamhouse.source import Offset

_SHOWN = 3


@dataclass(frozen=True)
class Report:
    """The progress of a sync, `seconds` after its start."""

    seconds: float
    tables: Sequence[TableState]

    @property
    def followed(self) -> int:
        """How many tables have a complete snapshot."""
        return sum(table.complete for table in self.tables)

    def to_json(self) -> dict[str, object]:
        """The report as a JSON object."""
        return {
            "seconds": round(self.seconds, 1),
            "tables": len(self.tables),
            "followed": self.followed,
            "snapshot_rows": sum(table.snapshot_rows for table in self.tables),
            "changes": sum(table.changes for table in self.tables),
            "lag_s": self._lag(),
            "table": [asdict(table) for table in self.tables],
        }

    def text(self) -> str:
        """The report in one line."""
        if self.followed < len(self.tables):
            read = sum(table.snapshot_rows for table in self.tables)
            expected = max(read, sum(table.estimate for table in self.tables))
            running = [
                table.table for table in self.tables if table.snapshot_rows and not table.complete
            ]
            now = f"; reading {', '.join(running[:_SHOWN])}" if running else ""
            return (
                f"{self.followed} of {len(self.tables)} tables read, {read:,} of about "
                f"{expected:,} rows{now}"
            )
        changes = sum(table.changes for table in self.tables)
        late = [table for table in self.tables if table.lag_s]
        late.sort(key=lambda table: table.lag_s or 0.0, reverse=True)
        slowest = ", ".join(f"{table.table} {table.lag_s:.1f} s" for table in late[:_SHOWN])
        behind = f"behind: {slowest}" if slowest else "none is behind"
        return f"{len(self.tables)} tables followed, {changes:,} changes; {behind}"

    def _lag(self) -> float | None:
        lags = [table.lag_s for table in self.tables if table.lag_s is not None]
        return round(max(lags), 2) if lags else None


Listener = Callable[[Report], None]


class ProgressReports:
    """Calls the listener every few seconds, and when all tables have been read; a `Side`."""

    def __init__(self, query: SyncQuery, listener: Listener | None, every_s: float) -> None:
        self._query, self._listener, self._every_s = query, listener, every_s
        self._began = time.monotonic()
        self._reported_at = self._began
        self._batches = 0
        self._complete = False
        self._states: Sequence[TableState] = ()

    @property
    def reads(self) -> Sequence[TableAddress]:
        return []

    def step(self) -> None:
        """Report, if it is due."""
        batches, now = self._query.metrics.read().batches, time.monotonic()
        due = now - self._reported_at >= self._every_s
        if batches == self._batches and not due:
            return
        self._batches = batches
        report = Report(now - self._began, self._query.progress.states())
        self._states = report.tables
        complete = bool(report.tables) and report.followed == len(report.tables)
        first, self._complete = complete and not self._complete, complete
        if (due or first) and self._listener is not None:
            self._reported_at = now
            self._listener(report)

    def caught_up_offset(self) -> Offset | None:
        return {}

    def last(self) -> list[Mapping[str, object]]:
        """The last state of each table."""
        return [asdict(state) for state in self._states]

    def close(self) -> None:
        """Report once more, at the end."""
        if self._batches:
            report = Report(time.monotonic() - self._began, self._query.progress.states())
            self._states = report.tables
            if self._listener is not None:
                self._listener(report)
