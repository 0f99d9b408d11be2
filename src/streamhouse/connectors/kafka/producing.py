"""The partitions of the topic that a sink writes, and which of them each record goes to."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Sequence
from itertools import cycle, repeat

import pyarrow as pa
from confluent_kafka import KafkaException, Producer

from streamhouse.connectors.kafka.client import TIMEOUT_S
from streamhouse.connectors.kafka.encoding import KEY

ANY = -1
"""Leaves the choice to librdkafka: by the hash of the key."""
_VALID_S = 300.0
"""After this time the partitions are looked up again, as often as librdkafka does."""


class SinkPartitions:
    """The partitions of a topic as they are now; driver only."""

    def __init__(self, count: int, writable: Sequence[int]) -> None:
        """`writable`: the numbers of those that have a leader."""
        self._count = count
        turns = random.sample(writable, len(writable)) or [ANY]
        self._turns = cycle(turns)
        self._until = time.monotonic() + _VALID_S

    @classmethod
    def of(cls, producer: Producer, topic: str, timeout_s: float | None = None) -> SinkPartitions:
        """Look the partitions up; raises `KafkaException`."""
        metadata = producer.list_topics(topic, timeout_s or TIMEOUT_S).topics[topic]
        if metadata.error is not None:
            raise KafkaException(metadata.error)
        found = metadata.partitions
        return cls(
            len(found), [number for number, partition in found.items() if partition.leader >= 0]
        )

    @property
    def outdated(self) -> bool:
        """Whether they should be looked up again."""
        return time.monotonic() >= self._until

    def of_rows(
        self, batch: pa.RecordBatch, partitioner: str, task: int, first: int
    ) -> Iterable[int]:
        """The partition of each record of a batch, whose first one is number `first` of all.

        Without keys, all records of a call go to one partition, and those of the next call to
        another.
        """
        rows = batch.num_rows
        if partitioner == "fixed":
            return repeat(task % self._count, rows)
        if partitioner == "round-robin":
            return (row % self._count for row in range(first, first + rows))
        if KEY in batch.schema.names:
            return repeat(ANY, rows)
        # librdkafka takes longer to choose one for each record.
        return repeat(next(self._turns), rows)
