"""Reads the shards of a stream ahead of the batches, in threads of the driver."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from streamhouse.connectors.kinesis.stream import ExpiredIterator, KinesisStream, Record, Start
from streamhouse.errors import ConnectError

_THREADS = 16
_BUFFER_BYTES = 64 << 20
_RETRY_S = 180.0
"""How long a shard may fail to be read before the query ends."""


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
    iterator: str | None = None
    records: deque[Record] = field(default_factory=deque)
    bytes: int = 0
    ended: bool = False
    read_until_ms: int | None = None
    due: float = 0.0
    failing_since: float | None = None
    reading: bool = False

    def next_start(self) -> Start:
        """Where to continue with another iterator."""
        return Start(after=self.records[-1].number) if self.records else self.start


class ShardPoller:
    """Reads shards in the background into buffers of at most 64 MiB in all; thread-safe."""

    def __init__(self, stream: KinesisStream, interval_s: float) -> None:
        self._stream = stream
        self._interval_s = interval_s
        self._cursors: dict[str, _Cursor] = {}
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._closed = False
        self._error: BaseException | None = None
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="kinesis-shard")
        self._thread = threading.Thread(target=self._run, name="kinesis-poller", daemon=True)
        self._thread.start()

    def follow(self, shards: Mapping[str, Start], closed: Collection[str]) -> None:
        """Read exactly these shards, each from its start; drops what was read before it.

        `closed`: those of them that get no more records. Raises the error that reading ended with.
        """
        if self._error is not None:
            raise self._error
        with self._lock:
            for shard in self._cursors.keys() - shards.keys():
                del self._cursors[shard]
            for shard, start in shards.items():
                cursor = self._cursors.get(shard)
                if cursor is None or not _advance(cursor, start):
                    self._cursors[shard] = _Cursor(start)
                self._cursors[shard].closed = shard in closed
        self._wake.set()

    def buffered(self, shard: str) -> Buffered:
        """What has been read of a followed shard."""
        with self._lock:
            cursor = self._cursors[shard]
            return Buffered(list(cursor.records), cursor.ended, cursor.read_until_ms)

    def close(self) -> None:
        """Stop reading; waits for reads in progress."""
        self._closed = True
        self._wake.set()
        self._thread.join()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _run(self) -> None:
        while not self._closed and self._error is None:
            self._wake.clear()
            pause = self._submit_due()
            self._wake.wait(pause)

    def _submit_due(self) -> float:
        """Start the reads that are due; returns the seconds until the next one."""
        now = time.monotonic()
        with self._lock:
            full = sum(cursor.bytes for cursor in self._cursors.values()) >= _BUFFER_BYTES
            waiting = {
                shard: cursor
                for shard, cursor in self._cursors.items()
                if not cursor.ended and not cursor.reading
            }
            due = {} if full else {s: cursor for s, cursor in waiting.items() if cursor.due <= now}
            for cursor in due.values():
                cursor.reading = True
                cursor.due = now + self._interval_s
        for shard, cursor in due.items():
            self._pool.submit(self._read, shard, cursor).add_done_callback(self._finished)
        later = [cursor.due - now for shard, cursor in waiting.items() if shard not in due]
        return max(0.01, min(later, default=self._interval_s)) if not full else self._interval_s

    def _finished(self, read: Future[None]) -> None:
        error = None if read.cancelled() else read.exception()
        if error is not None and self._error is None:
            self._error = error
        self._wake.set()

    def _read(self, shard: str, cursor: _Cursor) -> None:
        """Read one page of a shard; a failed read is repeated for three minutes."""
        asked_ms, closed = time.time_ns() // 1_000_000, cursor.closed
        try:
            if cursor.iterator is None:
                cursor.iterator = self._stream.iterator(shard, cursor.next_start())
            page = self._stream.page(cursor.iterator)
        except ExpiredIterator:
            cursor.iterator, cursor.reading, cursor.due = None, False, 0.0
            return
        except ConnectError as error:
            now = time.monotonic()
            since = cursor.failing_since = cursor.failing_since or now
            if now - since > _RETRY_S:
                self._error = error
            cursor.iterator, cursor.reading, cursor.due = None, False, now + 1.0
            return
        with self._lock:
            cursor.records.extend(page.records)
            cursor.bytes += sum(len(record.data) for record in page.records)
            cursor.iterator = page.iterator
            cursor.ended = page.iterator is None or (
                closed and not page.records and page.behind_ms == 0
            )
            cursor.read_until_ms = asked_ms - page.behind_ms
            cursor.failing_since = None
            cursor.reading = False


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
