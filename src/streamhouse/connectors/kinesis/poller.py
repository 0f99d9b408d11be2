"""Reads the shards of a stream ahead of the batches, in threads of the driver."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from streamhouse.connectors.kinesis.stream import ExpiredIterator, KinesisStream, Record, Start
from streamhouse.errors import ConnectError

_BUFFER_BYTES = 64 << 20
_RETRY_S, _PAUSE_S = 180.0, 1.0
"""How long a shard may fail to be read before the query ends, and the pause after a failure."""


@dataclass(frozen=True)
class Buffered:
    """What was read of a shard, but is in no batch yet.

    `ended`: a closed shard has no records after these. `read_until_ms`: records that arrived before
    this time (epoch ms) have been read; None before the first read.
    """

    records: list[Record]
    ended: bool
    read_until_ms: int | None


@dataclass
class _Cursor:
    """A shard that is being read: from `start`, with `records` after it."""

    start: Start
    closed: bool = False
    records: deque[Record] = field(default_factory=deque)
    bytes: int = 0
    ended: bool = False
    read_until_ms: int | None = None
    dropped: bool = False

    def next_start(self) -> Start:
        """Where to continue with another iterator."""
        return Start(after=self.records[-1].number) if self.records else self.start


class ShardPoller:
    """Reads each shard in a thread of its own, into buffers of at most 64 MiB in all."""

    def __init__(self, stream: KinesisStream, interval_s: float) -> None:
        self._stream = stream
        self._interval_s = interval_s
        self._cursors: dict[str, _Cursor] = {}
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._error: Exception | None = None

    def follow(self, shards: Mapping[str, Start], closed: Collection[str]) -> None:
        """Read exactly these shards, each from its start; drops what was read before it.

        `closed`: those of them that get no more records. Raises the error that reading ended with.
        """
        if self._error is not None:
            raise self._error
        with self._lock:
            for shard in self._cursors.keys() - shards.keys():
                self._cursors.pop(shard).dropped = True
            for shard, start in shards.items():
                cursor = self._cursors.get(shard)
                if cursor is None or not _advance(cursor, start):
                    if cursor is not None:
                        cursor.dropped = True
                    cursor = self._cursors[shard] = _Cursor(start)
                    self._start(shard, cursor)
                cursor.closed = shard in closed

    def buffered(self, shard: str) -> Buffered:
        """What has been read of a followed shard."""
        with self._lock:
            cursor = self._cursors[shard]
            return Buffered(list(cursor.records), cursor.ended, cursor.read_until_ms)

    def close(self) -> None:
        """Stop reading; waits for reads in progress."""
        self._closing.set()
        for thread in self._threads:
            thread.join()

    def _start(self, shard: str, cursor: _Cursor) -> None:
        thread = threading.Thread(target=self._run, args=(shard, cursor), name=shard, daemon=True)
        self._threads = [*(each for each in self._threads if each.is_alive()), thread]
        thread.start()

    def _run(self, shard: str, cursor: _Cursor) -> None:
        try:
            self._read(shard, cursor)
        except Exception as error:  # noqa: BLE001 - `follow` raises it
            self._error = error

    def _read(self, shard: str, cursor: _Cursor) -> None:
        """Read a shard until it ends; a failed read is repeated for three minutes."""
        iterator: str | None = None
        failing_since: float | None = None
        pause_s = 0.0
        while not (cursor.ended or cursor.dropped or self._closing.wait(pause_s)):
            pause_s = self._interval_s
            if sum(each.bytes for each in list(self._cursors.values())) >= _BUFFER_BYTES:
                continue
            asked_ms, closed = time.time_ns() // 1_000_000, cursor.closed
            try:
                if iterator is None:
                    with self._lock:
                        start = cursor.next_start()
                    iterator = self._stream.iterator(shard, start)
                page = self._stream.page(iterator)
            except ExpiredIterator:
                iterator, pause_s = None, 0.0
                continue
            except ConnectError:
                failing_since = failing_since or time.monotonic()
                if time.monotonic() - failing_since > _RETRY_S:
                    raise
                iterator, pause_s = None, _PAUSE_S
                continue
            iterator, failing_since = page.iterator, None
            with self._lock:
                cursor.records.extend(page.records)
                cursor.bytes += sum(len(record.data) for record in page.records)
                cursor.ended = iterator is None or (
                    closed and not page.records and page.behind_ms == 0
                )
                cursor.read_until_ms = asked_ms - page.behind_ms


def _advance(cursor: _Cursor, start: Start) -> bool:
    """Drop the records up to `start`; False if the cursor does not continue there."""
    if cursor.start == start:
        return True
    after = start.after
    if after is None:
        return False
    if not any(record.number == after for record in cursor.records):
        return False
    while cursor.records and cursor.records[0].number <= after:
        cursor.bytes -= len(cursor.records.popleft().data)
    cursor.start = start
    return True
