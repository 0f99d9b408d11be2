"""Finds source rows that a view lacks because its queries have not read them yet."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass

from streamhouse.errors import StreamhouseError
from streamhouse.paimon.changelog.invisible_rows import InvisibleRows
from streamhouse.runtime.audit.recorded_batches import Batch, RecordedBatches
from streamhouse.runtime.query_source import source_offset
from streamhouse.runtime.query_spec import QuerySpec
from streamhouse.source import Lag


@dataclass(frozen=True)
class Unread:
    """What one query has not read of the table `table`.

    `snapshots` counts the snapshots with changes after its last batch; None if that is unknown,
    since the table was dropped or rolled back. `waiting_rows` counts committed rows that no stream
    sees before a compaction.
    """

    table: str
    snapshots: int | None
    waiting_rows: int

    def __str__(self) -> str:
        parts = []
        if self.snapshots is None:
            parts.append(f"{self.table}: the number of unread snapshots is unknown")
        elif self.snapshots:
            parts.append(f"{self.table}: {self.snapshots:,} snapshots are not read yet")
        if self.waiting_rows:
            parts.append(str(InvisibleRows(self.table, self.waiting_rows)))
        return "; ".join(parts)


def unread(recorded: RecordedBatches) -> tuple[Unread, ...]:
    """What is missing from a view, by source; empty if nothing is.

    Of several queries over one source, only the one that ran last counts: it replaced the others.
    """
    newest: dict[str, tuple[Batch, QuerySpec]] = {}
    for batch in sorted(recorded.last.values(), key=lambda entry: entry.now_ms):
        spec = recorded.spec(batch)
        if spec.source.address is not None:
            newest[spec.source.address.identifier] = (batch, spec)
    results = [_unread(name, *entry) for name, entry in sorted(newest.items())]
    return tuple(entry for entry in results if entry.snapshots != 0 or entry.waiting_rows)


def _unread(name: str, batch: Batch, spec: QuerySpec) -> Unread:
    """What a query has not read of its source."""
    try:
        with closing(spec.source.open(spec.query.scan.columns)) as source:
            lag = source.lag(source_offset(batch.end))
    except StreamhouseError:
        return Unread(name, None, 0)
    lag = lag or Lag()
    return Unread(name, lag.snapshots, lag.waiting_rows or 0)
