"""The `kinesis` source: exactly-once, in the order of each shard.

Kinesis does not say where a shard ends without reading it. So the driver reads ahead (`poller`), an
offset has the last record of each shard that is in the batch, and a partition carries the records
that were read. A batch that is planned again after a restart has none of them: then its tasks read
the same range from the stream.

The offset is `{"stream", "init", "at", "behind", "shards"}`: `stream` is the stream's identity.
Shards without an entry are read from `init` on (epoch ms; absent: from their oldest record). All
that had arrived at the time `at` was read (epoch ms), which is `behind` ms before the batch was
planned. `shards` has for each shard that was begun the sequence number of the last record read
(`after`), and `done` once a closed shard was read to its end.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Self

import pyarrow as pa
from pydantic import PlainSerializer

from streamhouse.connectors.bad_records import BadRecordCollector, SkippingSource
from streamhouse.connectors.json_records import from_json, to_json
from streamhouse.connectors.kinesis.options import KinesisOptions
from streamhouse.connectors.kinesis.poller import ShardPoller
from streamhouse.connectors.kinesis.rows import (
    Record,
    RecordRows,
    UserRecord,
    from_bad_record,
    user_records,
)
from streamhouse.connectors.kinesis.stream import (
    KinesisStream,
    RecordPage,
    Shard,
    Start,
    StreamIdentity,
)
from streamhouse.errors import DataLossError
from streamhouse.source import Lag, Offset

_MAX_ROWS = 200_000
_MAX_BYTES = 16 << 20
_HEARTBEAT_MS = 600_000
"""How often the offset of an idle stream advances, so that a restart can tell what has expired."""
_DECODED = 50_000


@dataclass(frozen=True)
class ShardOffset:
    """How far a shard was read: to the record `after` (None: no record yet), or to its end."""

    # JSON has it as text, since it exceeds 64 bits.
    after: Annotated[int, PlainSerializer(str)] | None = None
    done: bool = False


@dataclass(frozen=True)
class StreamOffset:
    """A stream's offset, with times in epoch ms; see the module."""

    stream: str
    at: int
    behind: int
    shards: Mapping[str, ShardOffset]
    init: int | None = None

    def start(self, shard: str) -> Start:
        """Where to continue with a shard."""
        after = self.shards[shard].after if shard in self.shards else None
        return Start(time_ms=self.init) if after is None else Start(after=after)

    def readable(self, listed: Mapping[str, Shard]) -> list[str]:
        """The shards to read next: not done, and all their parents are.

        A record goes to the shard that has its key's hash at the time. So a batch that has a shard
        has none of its parents, and the records of a key are in order.
        """

        def done(shard: str) -> bool:
            return shard in self.shards and self.shards[shard].done

        return [
            shard.id
            for shard in listed.values()
            if not done(shard.id)
            and all(done(parent) or parent not in listed for parent in shard.parents)
        ]

    def advanced(
        self,
        shards: Mapping[str, ShardOffset],
        at_ms: int,
        now_ms: int,
        listed: Mapping[str, Shard],
    ) -> Self:
        """The offset with these shards further on, without those whose records have expired."""
        merged = {**self.shards, **shards}
        kept = {
            shard: position
            for shard, position in sorted(merged.items())
            if shard in listed or not position.done
        }
        at_ms = max(self.at, at_ms)
        return replace(self, at=at_ms, behind=max(0, now_ms - at_ms), shards=kept)


@dataclass(frozen=True)
class ShardRange:
    """A partition of a batch: the records of a shard after `start`, up to the record `last`.

    `records`: those records, if the driver has read them. `keys`: the shard's range of hash keys,
    None if the shard has expired.
    """

    shard: str
    start: Start
    last: int
    records: tuple[Record, ...] | None = field(default=None, repr=False)
    keys: range | None = None


class KinesisSource(SkippingSource):
    """A `Source` over one stream; see the module."""

    changelog = False

    def __init__(self, options: KinesisOptions, rows: RecordRows) -> None:
        self._options = options
        self._rows, self.changelog = rows, rows.changelog
        self._stream = KinesisStream(options)
        self._known: StreamIdentity | None = None
        self._poller: ShardPoller | None = None
        self._listed: dict[str, Shard] = {}
        self._listed_at: float | None = None
        self._read: dict[str, list[Record]] = {}
        self._bad_records = BadRecordCollector(options.bad_records)

    @property
    def schema(self) -> pa.Schema:
        return self._rows.schema

    def next_offset(self, start: Offset, max_rows: int | None) -> Offset:
        if not start:
            first: Offset = to_json(self._first())
            return first
        before = from_json(StreamOffset, start)
        listed = self._shards()
        readable = before.readable(listed)
        if self._poller is None:
            self._poller = ShardPoller(self._stream, self._options.interval_ms / 1000)
        closed = [shard for shard in readable if listed[shard].closed]
        self._poller.follow({shard: before.start(shard) for shard in readable}, closed)
        after, at_ms = self._batch_end(before, readable, min(max_rows or _MAX_ROWS, _MAX_ROWS))
        if any(position.done for position in after.values()):
            self._listed_at = None
        if not after and at_ms - before.at < _HEARTBEAT_MS:
            return start
        end: Offset = to_json(before.advanced(after, at_ms, _now_ms(), listed))
        return end

    def _first(self) -> StreamOffset:
        """Where a new query begins."""
        now = _now_ms()
        init = {"LATEST": now, "TRIM_HORIZON": None, "AT_TIMESTAMP": self._options.init_ms}
        return StreamOffset(self._identity().key, now, 0, {}, init[self._options.init])

    def _batch_end(
        self, before: StreamOffset, readable: Sequence[str], max_rows: int
    ) -> tuple[dict[str, ShardOffset], int]:
        """How far the next batch goes in each shard that has records, or has ended.

        Also returns the time up to which all records were read then.
        """
        assert self._poller is not None
        after: dict[str, ShardOffset] = {}
        until: list[int] = []
        self._read = {}
        rows, size = max(1, max_rows // max(1, len(readable))), _MAX_BYTES // max(1, len(readable))
        for shard in readable:
            buffered = self._poller.buffered(shard)
            taken = _first_of(buffered.records, rows, size)
            whole = len(taken) == len(buffered.records)
            if taken:
                self._read[shard] = taken
                after[shard] = ShardOffset(taken[-1].number, buffered.ended and whole)
            elif buffered.ended:
                after[shard] = ShardOffset(before.start(shard).after, True)
            if not whole:
                until.append(taken[-1].arrival_ms)
            else:
                until.append(buffered.read_until_ms or before.at)
        return after, min(until, default=before.at)

    def ranges(self, start: Offset, end: Offset, parallelism: int) -> Sequence[ShardRange]:
        if not start:
            return []
        before, after = from_json(StreamOffset, start), from_json(StreamOffset, end)
        ranges: list[ShardRange] = []
        listed = self._shards()
        for shard, position in after.shards.items():
            begin = before.start(shard)
            if position.after is None or position.after == begin.after:
                continue
            read = self._read.get(shard, [])
            whole = bool(read) and read[-1].number == position.after
            keys = listed[shard].keys if shard in listed else None
            records = tuple(read) if whole else None
            ranges.append(ShardRange(shard, begin, position.after, records, keys))
        return ranges

    def read_range(self, partition: ShardRange) -> Iterator[pa.RecordBatch]:
        records = partition.records or tuple(self._fetched(partition))
        for first in range(0, len(records), _DECODED):
            group = records[first : first + _DECODED]
            yield from self._decoded(list(user_records(partition.shard, group, partition.keys)))

    def read_again(self, records: Sequence[Mapping[str, Any]]) -> Iterator[pa.RecordBatch]:
        return self._decoded([from_bad_record(record) for record in records])

    def _decoded(self, records: Sequence[UserRecord]) -> Iterator[pa.RecordBatch]:
        rows, bad = self._rows.decode(records)
        for refused in bad:
            record = records[refused.index]
            position = record.position(self._options.name)
            self._bad_records.add(
                position, refused.reason, record.data, timestamp=record.arrival_ms
            )
        if rows.num_rows:
            yield rows

    def _fetched(self, partition: ShardRange) -> Iterator[Record]:
        """The records of a partition, from the stream; `DataLossError` if some are gone."""
        for page in self._stream.pages(partition.shard, partition.start):
            for record in page.records:
                if record.number > partition.last:
                    raise self._lost(partition)
                yield record
                if record.number == partition.last:
                    return
            if not page.records and page.behind_ms == 0:
                break
            time.sleep(0 if page.records else self._options.interval_ms / 1000)
        raise self._lost(partition)

    def _lost(self, partition: ShardRange) -> DataLossError:
        return DataLossError(
            f"kinesis stream {self._options.name}: the records up to {partition.last} of "
            f"{partition.shard} are gone, which an interrupted batch must read again; start anew "
            "with --from-scratch, and raise the stream's retention period"
        )

    def check(self, offset: Offset) -> None:
        """Raise `DataLossError` if unread records may have expired, or it is another stream."""
        if not offset:
            return
        at, identity = from_json(StreamOffset, offset), self._identity()
        if identity.key != at.stream:
            raise DataLossError(
                f"kinesis stream {self._options.name} is now {identity.key}, but the query has "
                f"read {at.stream}: the stream was deleted and created again; start anew with "
                "--from-scratch"
            )
        if _now_ms() - at.at < identity.retention_ms:
            return
        for shard in at.readable(self._shards()):
            after = at.start(shard).after
            if after is not None and not self._has(shard, after):
                raise DataLossError(
                    f"kinesis stream {self._options.name}: the query has not read {shard} for "
                    f"longer than the stream's retention period of "
                    f"{identity.retention_ms // 3_600_000} hours, so records may be lost; start "
                    "anew with --from-scratch"
                )

    def _has(self, shard: str, number: int) -> bool:
        """Whether a record has not expired: then none after it has."""
        page = self._first_page(shard, Start(at=number))
        return page is not None and bool(page.records) and page.records[0].number == number

    def caught_up(self, offset: Offset) -> bool:
        """Whether the stream has no records after `offset`; reads each shard."""
        if not offset:
            return False
        at = from_json(StreamOffset, offset)
        if self.has_replays(offset):
            return False
        self._listed_at = None
        listed = self._shards()
        return all(self._empty(listed[shard], at.start(shard)) for shard in at.readable(listed))

    def _empty(self, shard: Shard, start: Start) -> bool:
        """Whether a shard has no records after `start`, nor children (it is not closed)."""
        page = None if shard.closed else self._first_page(shard.id, start)
        return page is not None and not page.records and page.iterator is not None

    def _first_page(self, shard: str, start: Start) -> RecordPage | None:
        """The first page with records, or that reaches the current end; None: the shard ended."""
        pages = self._stream.pages(shard, start)
        return next((page for page in pages if page.records or page.behind_ms == 0), None)

    def lag(self, offset: Offset) -> Lag | None:
        """The age of the oldest record that the last batch may have left unread."""
        return Lag(from_json(StreamOffset, offset).behind / 1000) if offset else None

    def _identity(self) -> StreamIdentity:
        if self._known is None:
            self._known = self._stream.identity()
        return self._known

    def _shards(self) -> Mapping[str, Shard]:
        """The shards of the stream; looks for new ones when that is due."""
        now = time.monotonic()
        if self._listed_at is None or (now - self._listed_at) * 1000 >= self._options.discovery_ms:
            self._listed = self._stream.shards()
            self._listed_at = now
        return self._listed

    def close(self) -> None:
        if self._poller is not None:
            self._poller.close()
            self._poller = None


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _first_of(records: Sequence[Record], rows: int, size: int) -> list[Record]:
    """The first records within a number of rows and bytes, at least one."""
    taken: list[Record] = []
    for record in records[:rows]:
        size -= len(record.data)
        if taken and size < 0:
            break
        taken.append(record)
    return taken
