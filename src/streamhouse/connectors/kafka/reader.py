"""Reads ranges of partitions; runs on executors."""

import time
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from streamhouse.connectors.kafka.client import consumer, kafka_error
from streamhouse.connectors.kafka.options import CLIENTS, KafkaOptions
from streamhouse.errors import ConnectError, DataLossError

MESSAGES = 4_096
"""The most messages decoded at once; more are slower, as the values leave the processor's cache."""
_POLL_S = 1.0
_FILL_S = 0.02
"""How long to wait for more messages, to decode them together with those that have arrived."""
_SILENCE_S = 60.0
_WATERMARKS_S = 10.0
_PAUSE_S = 0.2


@dataclass(frozen=True)
class Range:
    """The records of a partition from offset `start` to the one before `end`."""

    topic: str
    partition: int
    start: int
    end: int


class PartitionReader:
    """Reads ranges with one consumer, which prefetches messages after the range that was read."""

    def __init__(self, options: KafkaOptions) -> None:
        self._options = options
        self._consumer: Consumer | None = None
        self._position: tuple[str, int, int] | None = None
        self._next_offset = 0
        """The offset after the last message read of the current range."""
        self._waiting: list[Message] = []
        self._is_out_of_range = False
        """Whether the broker has refused to send the next offset, which stops the consumer."""

    def read(self, wanted: Range) -> Iterator[list[Message]]:
        """The messages of a range, in order. Aborted transactions have none.

        Raises `DataLossError` if the brokers have deleted a part of it.
        """
        self._seek(wanted)
        self._position, self._next_offset = None, wanted.start
        deadline = time.monotonic() + _SILENCE_S
        while True:
            messages, done = self._next(wanted)
            if messages:
                self._next_offset = messages[-1].offset() + 1
                deadline = time.monotonic() + _SILENCE_S
                yield messages
            if done:
                self._position = (wanted.topic, wanted.partition, wanted.end)
                return
            if time.monotonic() > deadline:
                raise ConnectError(
                    f"Kafka at {self._options.servers} has sent nothing of topic {wanted.topic}, "
                    f"partition {wanted.partition} for {_SILENCE_S:.0f} s; check the brokers"
                )

    def close(self) -> None:
        """Close the consumer."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def _seek(self, wanted: Range) -> None:
        if self._consumer is None:
            self._consumer = consumer(self._options, CLIENTS["fetch"])
        if self._position != (wanted.topic, wanted.partition, wanted.start):
            self._waiting, self._is_out_of_range = [], False
            self._consumer.assign([TopicPartition(wanted.topic, wanted.partition, wanted.start)])

    def _next(self, wanted: Range) -> tuple[list[Message], bool]:
        """The next messages of the range, and whether it ends there."""
        assert self._consumer is not None
        received, self._waiting = self._waiting, []
        if self._is_out_of_range:
            received = []
            self._seek_again(self._consumer, wanted)
        if not received:
            received = self._received(self._consumer, wanted.end - self._next_offset)
        event = None
        if any(map(Message.error, received)):
            errors = map(Message.error, received)
            event = next(place for place, error in enumerate(errors) if error is not None)
        messages = received[:event]
        if messages and messages[-1].offset() + 1 >= wanted.end:
            inside = bisect_left(messages, wanted.end, key=Message.offset)
            self._waiting = received[inside:]
            return messages[:inside], True
        if event is None:
            return messages, False
        self._waiting = received[event + 1 :]
        return messages, self._ends(received[event], wanted)

    def _received(self, client: Consumer, most: int) -> list[Message]:
        """Messages and events, at least one if it comes in time.

        `consume` returns only when it has as many messages as requested, or its time is over. So
        the request is at most what the range can have, and only the first one waits long.
        """
        first = client.poll(_POLL_S)
        if first is None:
            return []
        most = min(most, MESSAGES) - 1
        if first.error() is not None or most < 1:
            return [first]
        return [first, *client.consume(most, _FILL_S)]

    def _seek_again(self, client: Consumer, wanted: Range) -> None:
        """Continue at the next offset; raises `DataLossError` if the partition does not have it.

        A broker that has just restarted may refuse offsets that it has.
        """
        partition = TopicPartition(wanted.topic, wanted.partition, self._next_offset)
        try:
            oldest, end = client.get_watermark_offsets(partition, _WATERMARKS_S)
        except KafkaException:
            # The brokers do not answer now; `read` ends the attempts.
            return
        if not oldest <= self._next_offset <= end:
            raise DataLossError(lost(wanted.topic, wanted.partition, self._next_offset, oldest))
        time.sleep(_PAUSE_S)
        client.assign([partition])
        self._is_out_of_range = False

    def _ends(self, event: Message, wanted: Range) -> bool:
        """Whether the range ends at an event among the messages; raises errors."""
        error = event.error()
        code = error.code()
        if code == KafkaError._PARTITION_EOF:
            # Markers of transactions may follow the last message; they are no messages.
            return bool(event.offset() >= wanted.end)
        if code in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            self._is_out_of_range = True
            return False
        if code in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_PARTITION):
            raise DataLossError(
                f"topic {wanted.topic} (or its partition {wanted.partition}) does not exist any "
                f"more, but its records from offset {wanted.start} have not been read; {ADVICE}"
            )
        if error.fatal() or not error.retriable() and code not in _TRANSIENT:
            raise kafka_error(self._options, error)
        return False


ADVICE = (
    "run the script with --from-scratch to start anew, or SET another 'pipeline.name' and a "
    "'scan.startup.mode' that accepts the gap"
)
_TRANSIENT = (
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TIMED_OUT,
    KafkaError._RESOLVE,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError._MAX_POLL_EXCEEDED,
)


def lost(topic: str, partition: int, start: int, oldest: int | None = None) -> str:
    """The message about records that retention has deleted."""
    left = "" if oldest is None else f" (the oldest left is {oldest})"
    return (
        f"topic {topic}, partition {partition}: the records from offset {start} have not been "
        f"read, but Kafka's retention has deleted them{left}; {ADVICE}"
    )
