"""Topics of Kafka as one stream."""

import logging
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

import pyarrow as pa
from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from streamhouse.connectors.bad_records import BadRecordCollector, SkippingSource
from streamhouse.connectors.kafka.client import Client, Partition, consumer
from streamhouse.connectors.kafka.options import KafkaOptions
from streamhouse.connectors.kafka.positions import Bounds, KafkaPosition
from streamhouse.connectors.kafka.reader import ADVICE, PartitionReader, Range, lost
from streamhouse.connectors.kafka.records import RecordLayout, Records, place, replayed_message
from streamhouse.errors import ConnectError, DataLossError
from streamhouse.source import Lag, Offset

log = logging.getLogger("streamhouse.kafka")

BATCH_RECORDS, LARGE_BATCH_RECORDS = 2_000_000, 8_000_000
"""The most records of a batch, and of one whose tasks keep no rows in memory."""
_SPLIT_RECORDS = 50_000
_LEAST_POLL_S = 0.03
_OUTAGE_S = 300.0
_KEPT_ENDS = 100


class KafkaSource(SkippingSource):
    """Topics of Kafka; a `Source`.

    An offset has the next offset of each partition, see `connectors.kafka.positions`. The same two
    offsets give the same rows as long as Kafka keeps the records; `DataLossError` is raised if
    retention has deleted records that have not been read, or if a topic was created again. Records
    of aborted transactions are left out, unless `properties.isolation.level` is `read_uncommitted`.
    The object can be pickled.
    """

    changelog = bounded = False

    def __init__(self, options: KafkaOptions, layout: RecordLayout, upserts: bool = False) -> None:
        self._options, self._layout, self._upserts = options, layout, upserts
        self._records = Records(options, layout, upserts)
        self.changelog = self._records.changelog
        self.bounded = options.is_bounded
        self._split = not self.changelog
        self._forget()

    def _forget(self) -> None:
        self._client: Client | None = None
        self._reader: PartitionReader | None = None
        self._reporter: Consumer | None = None
        self._most = BATCH_RECORDS
        self._topics: dict[str, tuple[str, int]] = {}
        self._discovered_at = self._polled_at = self._answered_at = float("-inf")
        self._bad_records = BadRecordCollector(self._options.bad_records)
        self._end_history: deque[tuple[float, Mapping[Partition, int]]] = deque(maxlen=_KEPT_ENDS)

    def __reduce__(self) -> tuple[type[Self], tuple[KafkaOptions, RecordLayout, bool]]:
        return type(self), (self._options, self._layout, self._upserts)

    @property
    def schema(self) -> pa.Schema:
        return self._layout.schema

    def allow_large_batches(self) -> None:
        self._most = LARGE_BATCH_RECORDS

    def next_offset(self, start: Offset, max_rows: int | None) -> Offset:
        now = time.monotonic()
        if start and now - self._polled_at < _LEAST_POLL_S:
            return start
        self._polled_at = now
        try:
            found = self._latest(start, max_rows)
        except ConnectError as error:
            # Brokers may restart while a query runs.
            if now - self._answered_at > _OUTAGE_S:
                raise
            log.warning("%s; trying again", error)
            return start
        self._answered_at = now
        return found

    def caught_up(self, offset: Offset) -> bool:
        """Whether there is nothing to read after `offset`; raises if the brokers do not answer."""
        return not self.has_replays(offset) and self._latest(offset, None) == offset

    def _latest(self, start: Offset, max_rows: int | None) -> Offset:
        before = KafkaPosition.parse(start)
        if before.until is not None and self.finished(start):
            return start
        self._discover_topics(before)
        began = self._new_partitions(before)
        following = {**before.next, **began}
        ends = self._connected.ends(following)
        self._end_history.append((time.time(), ends))
        self._check_ends(before, ends)
        until = self._until(before, following)
        if until is not None:
            ends = {
                partition: min(end, until.get(partition, end)) for partition, end in ends.items()
            }
        after = _limited(following, ends, min(max_rows or self._most, self._most))
        if start and after == before.next and not began:
            return start
        ids = {**before.ids, **{name: topic[0] for name, topic in self._topics.items()}}
        return KafkaPosition(ids, after, began, until).offset()

    def ranges(self, start: Offset, end: Offset, parallelism: int) -> Sequence[Range]:
        before, after = KafkaPosition.parse(start), KafkaPosition.parse(end)
        first = {**after.began, **before.next}
        ranges = [
            Range(*partition, first[partition], last)
            for partition, last in after.next.items()
            if first[partition] < last
        ]
        return _split(ranges, parallelism) if self._split else ranges

    def read_range(self, partition: Range) -> Iterator[pa.RecordBatch]:
        if self._reader is None:
            self._reader = PartitionReader(self._options)
        for messages in self._reader.read(partition):
            yield from self._rows(messages)

    def read_again(self, records: Sequence[Mapping[str, Any]]) -> Iterator[pa.RecordBatch]:
        return self._rows([replayed_message(record) for record in records])

    def _rows(self, messages: Sequence[Message]) -> Iterator[pa.RecordBatch]:
        rows, bad = self._records.decode(messages)
        for record in bad:
            message = messages[record.index]
            kind, timestamp = message.timestamp()
            self._bad_records.add(
                place(message), record.reason, message.value(), message.key(),
                timestamp if kind else None, dict(message.headers() or []).items(),
            )  # fmt: skip
        if rows.num_rows:
            yield rows

    def committed(self, end: Offset) -> None:
        """Report the offsets to the consumer group, if there is one."""
        if self._options.group is None or not end:
            return
        if self._reporter is None:
            self._reporter = consumer(self._options)
        offsets = [
            TopicPartition(*partition, at)
            for partition, at in KafkaPosition.parse(end).next.items()
        ]
        try:
            self._reporter.commit(offsets=offsets, asynchronous=True)
            self._reporter.poll(0)
        except KafkaException as error:
            # The query's own offsets count; the group is for those who watch it.
            log.warning("the offsets were not reported to %s: %s", self._options.group, error)

    def finished(self, offset: Offset) -> bool:
        position = KafkaPosition.parse(offset)
        if position.until is None:
            return False
        return all(
            position.next.get(partition, 0) >= end for partition, end in position.until.items()
        )

    def check(self, offset: Offset) -> None:
        """Raise `DataLossError` if a topic was created anew, or records are gone."""
        position = KafkaPosition.parse(offset)
        if position.ids:
            self._discover_topics(position, always=True)
            self._check_ends(position, self._connected.ends(position.next))

    def lag(self, offset: Offset) -> Lag | None:
        """How far a reader is behind the ends that were last seen."""
        if not self._end_history or not offset:
            return None
        following = KafkaPosition.parse(offset).next
        _, ends = self._end_history[-1]
        rows = sum(max(0, end - following.get(partition, end)) for partition, end in ends.items())
        if not rows:
            return Lag(seconds=0.0, rows=0)
        behind = next(
            at
            for at, seen in self._end_history
            if any(end > following.get(partition, end) for partition, end in seen.items())
        )
        return Lag(seconds=max(0.0, time.time() - behind), rows=rows)

    def close(self) -> None:
        for part in (self._reader, self._reporter):
            if part is not None:
                part.close()
        self._forget()

    @property
    def _connected(self) -> Client:
        if self._client is None:
            self._client = Client(self._options)
        return self._client

    def _discover_topics(self, before: KafkaPosition, always: bool = False) -> None:
        """Discover topics and partitions if that is due, and check the ids of known topics."""
        now, interval = time.monotonic(), self._options.discovery_ms / 1000
        due = interval > 0 and now - self._discovered_at >= interval
        if not self._topics or always or due:
            self._discovered_at, self._topics = now, self._connected.topics()
        for name, identity in before.ids.items():
            if name not in self._topics:
                raise DataLossError(
                    f"topic {name} does not exist any more, or is no longer named by the table, "
                    f"but the query has read it so far; {ADVICE}"
                )
            if self._topics[name][0] != identity:
                raise DataLossError(
                    f"topic {name} was deleted and created anew (its id is "
                    f"{self._topics[name][0]}, and was {identity}): offsets of the old topic do "
                    f"not belong to it; {ADVICE}"
                )

    def _new_partitions(self, before: KafkaPosition) -> dict[Partition, int]:
        """Where reading begins for partitions that `before` does not have."""
        known = before.next
        new = [
            (name, number)
            for name, (_, count) in self._topics.items()
            for number in range(count)
            if (name, number) not in known
        ]
        if not new or before.until is not None:
            return {}
        if not known:
            return Bounds(self._options, self._connected).starts(new)
        # Partitions that come later are read from their beginning, whatever the startup mode.
        return self._connected.beginnings(new)

    def _check_ends(self, before: KafkaPosition, ends: Mapping[Partition, int]) -> None:
        """Raise `DataLossError` if the topic is shorter than what was read of it, or truncated."""
        changed = [
            partition for partition, at in before.next.items() if ends.get(partition, at) != at
        ]
        for partition, at in before.next.items():
            if ends.get(partition, at) < at:
                self._discover_topics(before, always=True)
                raise DataLossError(
                    f"topic {partition[0]}, partition {partition[1]} ends at offset "
                    f"{ends[partition]}, but the query has read it up to {at}: the brokers have "
                    f"lost records; {ADVICE}"
                )
        if not changed:
            return
        # A topic that was created again may already be longer than the old one.
        self._discover_topics(before, always=True)
        for partition, oldest in self._connected.beginnings(changed).items():
            if oldest > before.next[partition]:
                raise DataLossError(lost(*partition, before.next[partition], oldest))

    def _until(
        self, before: KafkaPosition, following: Mapping[Partition, int]
    ) -> Mapping[Partition, int] | None:
        if not self.bounded:
            return None
        if before.until is not None:
            return before.until
        return Bounds(self._options, self._connected).ends(following)


def _limited(
    following: Mapping[Partition, int], ends: Mapping[Partition, int], most: int
) -> dict[Partition, int]:
    """The next offsets after about `most` records, shared by the partitions in proportion."""
    waiting = {
        partition: max(0, ends.get(partition, at) - at) for partition, at in following.items()
    }
    total = max(most, sum(waiting.values()))
    return {
        partition: at + -(-waiting[partition] * most // total)
        for partition, at in following.items()
    }


def _split(ranges: Sequence[Range], parallelism: int) -> list[Range]:
    """Cut long ranges, if there are fewer than tasks."""
    found = list(ranges)
    while 0 < len(found) < parallelism:
        longest = max(found, key=lambda piece: piece.end - piece.start)
        if longest.end - longest.start < 2 * _SPLIT_RECORDS:
            break
        place, middle = found.index(longest), (longest.start + longest.end) // 2
        found[place : place + 1] = [replace(longest, end=middle), replace(longest, start=middle)]
    return found
