"""Protects the snapshots that a query may need again from expiry, by consumers at its tables.

A batch that was interrupted runs again. Its earlier commits must then still be found, in every
table that it writes, and all its inputs must still exist. So the query has a consumer at each of
these tables (`paimon.changelog.consumers`), which snapshot expiry respects:

- at tables that it writes: at a snapshot that was the newest when Spark's commit log had all
  committed batches, so the commits of an interrupted batch come after it;
- at tables that it reads: at the snapshot from which the batch after the last one in Spark's commit
  log goes on, or which this batch joined.

Consumers only move forward, with a delay of some seconds; a crash leaves them where they are.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self, TypeAlias

from streamhouse.errors import DataLossError
from streamhouse.lookup.options import RefreshRule
from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.paimon.changelog.consumers import Consumers, query_consumer
from streamhouse.paimon.changelog.stream_source import PaimonSource
from streamhouse.paimon.read.table import Table
from streamhouse.runtime.query_description import QueryProgress
from streamhouse.runtime.query_source import source_offset
from streamhouse.runtime.query_spec import QuerySpec
from streamhouse.runtime.state.checkpoint import Checkpoint
from streamhouse.source import Offset, Source

_LOG = logging.getLogger("streamhouse.query")
EVERY_S = 5.0
"""How often consumers move forward, which also shows that the query is alive."""
_LATEST_WITHIN_S = 2.0
GRACE_S = 30.0
"""How long a query must be idle before the consumers of its inputs move to the newest snapshots:
longer than the time from the planning of a batch to its entry in the offset log."""

_Key: TypeAlias = tuple[tuple[tuple[str, str], ...], str]
ReadPositions: TypeAlias = Callable[[Offset], Iterable[tuple[TableAddress, int]]]
"""The tables that a batch reads which begins, or has ended, at an offset, each with a snapshot."""


@dataclass(frozen=True)
class HeldTables:
    """The tables of a query at which it has consumers.

    `idle` are those whose newest snapshots the next batch reads if the query was idle. `read`: see
    `ReadPositions`; None: it reads no tables. `recognised`: an interrupted batch must find its
    commit in `written`.
    """

    written: Sequence[TableAddress]
    read: ReadPositions | None = None
    idle: Sequence[TableAddress] = ()
    recognised: bool = True

    @classmethod
    def of(cls, spec: QuerySpec, source: Source) -> Self:
        """Those of a continuous query with an open source."""

        def read(offset: Offset) -> Iterable[tuple[TableAddress, int]]:
            if isinstance(source, PaimonSource) and spec.source.address is not None:
                yield spec.source.address, source.oldest_needed(source_offset(offset))
            for lookup, address in spec.pinned:
                pinned = offset["dims"].get(lookup.relation, 0) if offset else _newest(address)
                yield address, int(pinned)
            if spec.pending is not None and offset and offset["pending"]:
                yield spec.pending, int(offset["pending"])

        # By its refresh rule, an idle query may join an old snapshot for a long time.
        idle = [at for lookup, at in spec.pinned if not RefreshRule.of(lookup).allows_older]
        idle += [] if spec.pending is None else [spec.pending]
        # The source offset determines what is needed, also if the source is looked up too.
        sources = set(map(_key, spec.source_tables))
        return cls(spec.written, read, [at for at in idle if _key(at) not in sources])


@dataclass(frozen=True)
class _Candidate:
    """Positions to which the consumers move if the query stays idle for `GRACE_S`."""

    batch: int
    at: float
    positions: Mapping[_Key, int]


class RetentionHolds:
    """Manages the consumers of one query; driver only, thread-safe."""

    def __init__(
        self, query_id: str, tables: HeldTables, checkpoint: Checkpoint, progress: QueryProgress
    ) -> None:
        self._query_id, self._id = query_id, query_consumer(query_id)
        self._tables, self._checkpoint, self._progress = tables, checkpoint, progress
        self._lock = threading.Lock()
        self._held_at = self._noted_at = float("-inf")
        self._before: Mapping[_Key, int] = {}
        self._candidate: _Candidate | None = None
        self._kept: Offset | None = None
        self._addresses = {_key(address): address for address in (*tables.written, *tables.idle)}
        self._positions: dict[_Key, int] = {}

    def keep(self, offset: Offset | None) -> None:
        """Keep what is read from an earlier offset, too; None: no more."""
        self._kept = offset

    def prepare(self) -> None:
        """Create the consumers at all tables, before the query starts.

        Raises the `DataLossError` of `_first_position`.
        """
        positions = {
            _key(address): self._first_position(address.open())
            for address in self._tables.written
            if Consumers(address.follow()).get(self._id) is None
        }
        if self._tables.read is not None:
            logged = self._checkpoint.logs.logged()
            committed = self._checkpoint.logs.last_committed()
            replayable = [offset for number, offset in logged.items() if number >= committed]
            for offset in replayable or [{}]:
                self._lower_to_read(self._tables.read, positions, offset)
        self._move_consumers(positions)

    def batch_begins(self) -> None:
        """Note the newest snapshots of the tables that a batch writes; before its first commit."""
        if self._progress.replayed and time.monotonic() - self._noted_at >= EVERY_S:
            self._noted_at = time.monotonic()
            self._before = {_key(at): _newest(at) for at in self._tables.written}

    def tick(self) -> bool:
        """Refresh the consumers if due, and move them forward; returns whether it was due."""
        if time.monotonic() - self._held_at < EVERY_S:
            return False
        tables, logs = self._tables, self._checkpoint.logs
        # Before the logs are read: then the commits up to here are of batches that they have.
        newest = {_key(at): _newest(at) for at in (*tables.written, *tables.idle)}
        batch = logs.last_committed()
        running = logs.last_logged() > batch
        idle, written = set(map(_key, tables.idle)), self._before if running else newest
        positions = {key: at for key, at in written.items() if key not in idle}
        if tables.read is not None and (offset := self._kept or logs.last_offset()):
            self._lower_to_read(tables.read, positions, offset)
        candidate, now = self._candidate, time.monotonic()
        self._progress.replayed |= not running
        if running:
            self._candidate = None
        elif candidate is None or candidate.batch != batch:
            self._candidate = _Candidate(batch, now, newest)
        elif now - candidate.at >= GRACE_S:
            positions |= {key: candidate.positions[key] for key in idle}
            self._candidate = _Candidate(batch, now, newest)
        self._move_consumers(positions)
        return True

    def _lower_to_read(
        self, read: ReadPositions, positions: dict[_Key, int], offset: Offset
    ) -> None:
        """Lower `positions` to the snapshots that a batch from, or up to, `offset` reads."""
        for address, snapshot in read(offset):
            key = _key(address)
            self._addresses.setdefault(key, address)
            positions[key] = min(max(1, snapshot), positions.get(key, snapshot))

    def _move_consumers(self, positions: Mapping[_Key, int]) -> None:
        """Move consumers to `positions`; those without a position stay, and are refreshed."""
        with self._lock:
            written = set(map(_key, self._tables.written))
            for key, address in self._addresses.items():
                try:
                    known = self._positions.get(key, 0)
                    at, path = max(known, positions.get(key, 0)), self._checkpoint.path
                    consumers = Consumers(address.follow())
                    # Nobody else moves it, so it is read only once.
                    self._positions[key] = consumers.hold(self._id, at, path, back=known > 0)
                except OSError as error:
                    if key in written:
                        raise
                    _LOG.debug("table %s is read without a consumer: %s", key[1], error)
            self._held_at = time.monotonic()

    def _first_position(self, table: Table) -> int:
        """The first position of a new consumer at a table that the query writes.

        An interrupted batch may commit to it. Raises `DataLossError` if it is unknown whether that
        batch was committed: its commit, if there was one, may have expired.
        """
        latest, earliest = table.latest_snapshot_id() or 1, table.earliest_snapshot_id() or 1
        if self._progress.replayed or not self._tables.recognised:
            return latest
        last = table.snapshots.last_commit_of(self._query_id)
        if last is not None:
            return last.id
        logs = self._checkpoint.logs
        number = logs.last_logged()
        if earliest == 1 or table.snapshot(earliest).time_ms <= logs.logged_s(number) * 1000:
            return latest
        raise DataLossError(
            f"table {table.identifier}: batch {number} of the query in {self._checkpoint.path} was "
            "interrupted, and the snapshots of that time have expired, so it is unknown whether it "
            f"was written; snapshots {earliest} to {latest} are left. Run the pipeline "
            "once with --from-scratch to restore the table"
        )


def _newest(address: TableAddress) -> int:
    return address.follow().latest_snapshot_id(_LATEST_WITHIN_S) or 1


def _key(address: TableAddress) -> _Key:
    return tuple(sorted(address.warehouse.items())), address.identifier
