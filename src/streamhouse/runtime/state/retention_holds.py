"""Protects the snapshots that a query may need again from expiry, by consumers at its tables.

A batch that was interrupted runs again. Its earlier commits must then still be found, in every
table that it writes, and all its inputs must still exist. So the query has a consumer at each of
these tables (`paimon.changelog.consumers`), which snapshot expiry respects:

- at tables that it writes: at a snapshot that was the newest when Spark's commit log had all
  committed batches, so the commits of an interrupted batch come after it;
- at its sources: at the end offset of the last batch in Spark's commit log;
- at tables that it looks up: at the snapshot that this batch joined.

Consumers only move forward, with a delay of some seconds; a crash leaves them where they are.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass
from typing import Any

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
longer than the time from the planning of a batch to its entry in Spark's offset log."""

_Key = tuple[tuple[tuple[str, str], ...], str]


@dataclass(frozen=True)
class _Candidate:
    """Positions to which the consumers move if the query stays idle for `GRACE_S`."""

    batch: int
    at: float
    positions: dict[_Key, int]


class RetentionHolds:
    """Manages the consumers of one query; driver only, thread-safe."""

    def __init__(
        self, spec: QuerySpec, checkpoint: Checkpoint, source: Source, progress: QueryProgress
    ) -> None:
        self._spec, self._progress = spec, progress
        self._checkpoint = checkpoint
        self._source = source if isinstance(source, PaimonSource) else None
        self._id = query_consumer(spec.query_id)
        self._pinned_by_rule = [
            address for lookup, address in spec.pinned if RefreshRule.of(lookup).allows_older
        ]
        self._lock = threading.Lock()
        self._held_at = 0.0
        self._moved_at = 0.0
        self._candidate: _Candidate | None = None
        self._positions: dict[_Key, int] = {}

    def prepare(self) -> None:
        """Create the consumers at all tables, before the query starts.

        Raises the `DataLossError` of `first_position`.
        """
        positions: dict[_Key, int] = {}
        for address in self._spec.written:
            if Consumers(address.follow()).get(self._id) is None:
                query_id, replayed = self._spec.query_id, self._progress.replayed
                first = first_position(address.open(), query_id, self._checkpoint, replayed)
                _lower(positions, address, first)
        logged = self._checkpoint.logs.logged()
        committed = self._checkpoint.logs.last_committed()
        replayable = [offset for number, offset in logged.items() if number >= committed]
        for offset in replayable or [{}]:
            self._read_positions(positions, offset)
        self._move_consumers(positions)

    def batch_begins(self, last: Offset) -> None:
        """Move the consumers forward; call it before a batch's first commit.

        `last` is the end offset of the previous batch, which Spark has written to its commit log
        before it begins this one.
        """
        if not self._progress.replayed or time.monotonic() - self._moved_at < EVERY_S:
            return
        positions: dict[_Key, int] = {}
        for address in self._spec.written:
            _lower(positions, address, address.follow().latest_snapshot_id(_LATEST_WITHIN_S) or 1)
        self._read_positions(positions, last)
        self._move_consumers(positions)

    def batch_done(self, end: Offset) -> None:
        """Note that the batch up to `end` has been committed to all its tables."""
        if self._source is not None:
            self._source.store_progress(source_offset(end))

    def tick(self) -> bool:
        """Refresh the consumers if due, and move them forward while the query is idle.

        Returns whether that was due.
        """
        if time.monotonic() - self._held_at < EVERY_S:
            return False
        newest = {
            _key(address): address.follow().latest_snapshot_id(_LATEST_WITHIN_S) or 1
            for address in (*self._spec.written, *(table for _, table in self._spec.pinned))
        }
        batch = self._checkpoint.logs.last_committed()
        if self._checkpoint.logs.last_logged() > batch:
            self._candidate = None
            self._move_consumers({})
            return True
        self._progress.replayed = True
        read = self._spec.pending
        written = {_key(at) for at in self._spec.written if at != read}
        positions = {key: position for key, position in newest.items() if key in written}
        candidate, now = self._candidate, time.monotonic()
        if candidate is None or candidate.batch != batch:
            self._candidate = _Candidate(batch, now, newest)
        elif now - candidate.at >= GRACE_S:
            for key, position in candidate.positions.items():
                positions[key] = min(positions.get(key, position), position)
            self._candidate = _Candidate(batch, now, newest)
        for address in self._pinned_by_rule:
            # By its refresh rule, an idle query may join an old snapshot for a long time.
            positions.pop(_key(address), None)
        for address in self._spec.source_tables:
            # The source offset determines what is needed, also if the source is looked up too.
            positions.pop(_key(address), None)
        self._move_consumers(positions)
        return True

    def _tables(self) -> dict[_Key, TableAddress]:
        spec = self._spec
        addresses = [*self._spec.written, *(address for _, address in spec.pinned)]
        addresses += spec.source_tables
        return {_key(address): address for address in addresses}

    def _read_positions(self, positions: dict[_Key, int], offset: Offset) -> None:
        """Lower `positions` to the snapshots that a batch from, or up to, `offset` reads."""
        spec = self._spec
        if self._source is not None and spec.source.address is not None:
            needed = self._source.oldest_needed(source_offset(offset))
            _lower(positions, spec.source.address, needed)
        for lookup, address in spec.pinned:
            pinned = offset["dims"].get(lookup.relation, 0) if offset else None
            latest = address.follow().latest_snapshot_id(_LATEST_WITHIN_S) or 1
            _lower(positions, address, latest if pinned is None else max(1, int(pinned)))
        if spec.pending is not None and offset and offset["pending"]:
            _lower(positions, spec.pending, int(offset["pending"]))

    def _move_consumers(self, positions: dict[_Key, int]) -> None:
        """Move consumers to `positions`; those without a position stay, and are refreshed."""
        with self._lock:
            written = {_key(address) for address in self._spec.written}
            for key, address in self._tables().items():
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
            if positions:
                self._moved_at = self._held_at


def first_position(table: Table, query_id: str, checkpoint: Checkpoint, replayed: bool) -> int:
    """The first position of a new consumer of a query at a table that it writes.

    Unless batches are all `replayed`, an interrupted one may commit to it. Raises `DataLossError`
    if it is unknown whether that batch was committed: its commit, if there was one, may have
    expired.
    """
    if replayed:
        return table.latest_snapshot_id() or 1
    last = table.snapshots.last_commit_of(query_id)
    if last is not None:
        return last.id
    latest, earliest = table.latest_snapshot_id() or 1, table.earliest_snapshot_id() or 1
    number = checkpoint.logs.last_logged()
    if earliest == 1 or table.snapshot(earliest).time_ms <= checkpoint.logs.logged_s(number) * 1000:
        return latest
    raise DataLossError(
        f"table {table.identifier}: batch {number} of the query in {checkpoint.path} was "
        "interrupted, and the snapshots of that time have expired, so it is unknown whether it "
        f"was written; snapshots {earliest} to {latest} are left. Run the pipeline "
        "once with --from-scratch to restore the table"
    )


def _key(address: TableAddress) -> _Key:
    return tuple(sorted(address.warehouse.items())), address.identifier


def _lower(positions: dict[_Key, Any], address: TableAddress, position: int) -> None:
    key = _key(address)
    positions[key] = min(position, positions.get(key, position))
