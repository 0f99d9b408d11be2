"""How many changes a reader has read, and its lag behind the changes in a relay log."""

import time
from collections import Counter, deque
from collections.abc import Callable, Collection

import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.connectors.mysql_cdc.relay.state import RelayState
from streamhouse.mysql.position import BinlogPosition
from streamhouse.source import ROW_KIND, SourceState


class ChangeCounts:
    """Counts rows by their kinds."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def add(self, rows: pa.RecordBatch) -> None:
        """Count rows, which have a row kind."""
        for counted in pc.value_counts(rows.column(ROW_KIND)).to_pylist():
            self._counts[counted["values"]] += counted["counts"]

    def taken(self) -> dict[str, int]:
        """How many rows there were of each kind since the last call."""
        counts, self._counts = self._counts, Counter()
        return dict(counts)


_MAX_UNREAD = 1_000


def source_state(
    tables: Collection[str],
    unread: int,
    rows: int | None,
    chunk_rows: int,
    position: BinlogPosition | None = None,
    log: RelayState | None = None,
) -> SourceState:
    """The state of a reader at a position, with the last change of its `tables` in a relay log.

    The snapshots of `unread` tables are not complete, and have about `rows` unread rows (None:
    unknown) in chunks of `chunk_rows`.
    """
    splits = None if rows is None else max(unread, -(-rows // chunk_rows))
    times = [] if log is None or unread else [log.times.get(name) for name in tables]
    received = [time_ms for time_ms in times if time_ms is not None]
    seconds, at_ms = max(received, key=lambda lag: lag[1]) if received else (None, None)
    return SourceState(
        unread > 0,
        None if position is None else (position.file, position.pos),
        None if seconds is None else seconds * 1000,
        at_ms,
        len(tables),
        unread,
        splits if unread else 0,
    )


class UnreadChanges:
    """Records since when a reader has changes that it has not read; `clock` in seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: deque[tuple[float, BinlogPosition]] = deque()

    def observe(self, position: BinlogPosition, changed: BinlogPosition) -> None:
        """Record that the reader is at `position`, and the last known change ends at `changed`."""
        if position < changed and len(self._seen) < _MAX_UNREAD:
            if not self._seen or self._seen[-1][1] < changed:
                self._seen.append((self._clock(), changed))
        while self._seen and not position < self._seen[0][1]:
            self._seen.popleft()

    @property
    def seconds(self) -> float:
        """For how long there have been changes that are not read yet; 0 if there are none."""
        return self._clock() - self._seen[0][0] if self._seen else 0.0
