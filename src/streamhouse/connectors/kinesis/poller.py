"""Reads the shards of a stream ahead of the batches, in threads of the driver."""

import threading
import time
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass, field, replace
from functools import partial

from streamhouse.background import in_background
from streamhouse.connectors.kinesis.rows import Record
from streamhouse.connectors.kinesis.stream import KinesisStream, RecordPage, Start
from streamhouse.errors import ConnectError

_BUFFER_BYTES = 64 << 20
_RETRY_S, _PAUSE_S = 180.0, 1.0
"""How long a shard may fail to be read before the query ends, and the pause after a failure."""


@dataclass
class ShardBuffer:
    """What was read of a shard from `start` on, but is in no batch yet.

    `closed`: the shard gets no more records. `ended`: it has none after these. `read_until_ms`:
    records that arrived before this time (epoch ms) have been read; None before the first read.
    `dropped`: it is not read any further.
    """

    start: Start
    closed: bool = False
    records: list[Record] = field(default_factory=list)
    bytes: int = 0
    ended: bool = False
    read_until_ms: int | None = None
    dropped: bool = False

    def next_start(self) -> Start:
        """Where to continue with another iterator."""
        return Start(after=self.records[-1].number) if self.records else self.start

    def advance(self, start: Start) -> bool:
        """Drop the records up to `start`; False if the buffer does not continue there."""
        if start == self.start:
            return True
        numbers = [record.number for record in self.records]
        if start.after not in numbers:
            return False
        count = numbers.index(start.after) + 1
        self.bytes -= sum(len(record.data) for record in self.records[:count])
        del self.records[:count]
        self.start = start
        return True


class ShardPoller:
    """Reads each shard in a thread of its own, into buffers of at most 64 MiB in all."""

    def __init__(self, stream: KinesisStream, interval_s: float) -> None:
        self._stream = stream
        self._interval_s = interval_s
        self._buffers: dict[str, ShardBuffer] = {}
        self._reads: list[Future[None]] = []
        self._lock = threading.Lock()
        self._closing = threading.Event()

    def follow(self, shards: Mapping[str, Start], closed: Collection[str]) -> None:
        """Read exactly these shards, each from its start; drops what was read before it.

        `closed`: those of them that get no more records. Raises the error that reading ended with.
        """
        for read in self._reads:
            if read.done():
                read.result()
        with self._lock:
            for shard in self._buffers.keys() - shards.keys():
                self._buffers.pop(shard).dropped = True
            for shard, start in shards.items():
                buffer = self._buffers.get(shard)
                if buffer is None or not buffer.advance(start):
                    if buffer is not None:
                        buffer.dropped = True
                    buffer = self._buffers[shard] = ShardBuffer(start)
                    self._start(shard, buffer)
                buffer.closed = shard in closed

    def buffered(self, shard: str) -> ShardBuffer:
        """What has been read of a followed shard."""
        with self._lock:
            buffer = self._buffers[shard]
            return replace(buffer, records=list(buffer.records))

    def close(self) -> None:
        """Stop reading; waits for reads in progress."""
        self._closing.set()
        wait(self._reads)

    def _start(self, shard: str, buffer: ShardBuffer) -> None:
        reads = [each for each in self._reads if not each.done() or each.exception()]
        self._reads = [*reads, in_background(partial(self._read, shard, buffer), shard)]

    def _read(self, shard: str, buffer: ShardBuffer) -> None:
        """Read a shard until it ends; a failed read is repeated for three minutes."""
        pages: Iterator[RecordPage] | None = None
        failing_since: float | None = None
        pause_s = 0.0
        while not (buffer.ended or buffer.dropped or self._closing.wait(pause_s)):
            pause_s = self._interval_s
            if sum(each.bytes for each in list(self._buffers.values())) >= _BUFFER_BYTES:
                continue
            asked_ms, closed = time.time_ns() // 1_000_000, buffer.closed
            try:
                if pages is None:
                    with self._lock:
                        pages = self._stream.pages(shard, buffer.next_start())
                page = next(pages)
            except ConnectError:
                failing_since = failing_since or time.monotonic()
                if time.monotonic() - failing_since > _RETRY_S:
                    raise
                pages, pause_s = None, _PAUSE_S
                continue
            failing_since = None
            with self._lock:
                buffer.records.extend(page.records)
                buffer.bytes += sum(len(record.data) for record in page.records)
                buffer.ended = page.iterator is None or (
                    closed and not page.records and page.behind_ms == 0
                )
                buffer.read_until_ms = asked_ms - page.behind_ms
