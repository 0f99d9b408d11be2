"""Offsets of a query over topics, and where it starts and ends.

An offset is `{"topics": {name: {"id", "next", "from"}}, "until": {name: {…}}}`. `next` has the
first unread offset of each partition, by the partition's number. `from` has the offset where
reading began for the partitions that are new in this batch, so that the batch can be planned again.
`until`, of bounded sources, has the offset where each partition ends.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from confluent_kafka import KafkaException, TopicPartition

from streamhouse.connectors.kafka.client import TIMEOUT_S, Client, Partition, consumer, kafka_error
from streamhouse.connectors.kafka.options import (
    EARLIEST,
    GROUPS,
    LATEST,
    SPECIFIC,
    TIMESTAMP,
    KafkaOptions,
    ScanPosition,
)
from streamhouse.errors import OptionError
from streamhouse.source import Offset


@dataclass(frozen=True)
class KafkaPosition:
    """What a query has read: by topic its id, and by partition the next offset."""

    ids: Mapping[str, str] = field(default_factory=dict)
    next: Mapping[Partition, int] = field(default_factory=dict)
    began: Mapping[Partition, int] = field(default_factory=dict)
    until: Mapping[Partition, int] | None = None

    @classmethod
    def parse(cls, offset: Offset) -> Self:
        """The position of an offset; empty for `{}`."""
        topics: Mapping[str, Any] = offset.get("topics", {})
        until = offset.get("until")
        return cls(
            {name: topic["id"] for name, topic in topics.items()},
            _flat({name: topic["next"] for name, topic in topics.items()}),
            _flat({name: topic.get("from", {}) for name, topic in topics.items()}),
            None if until is None else _flat(until),
        )

    def offset(self) -> Offset:
        """The position as an offset."""
        following, began = _nested(self.next), _nested(self.began)
        topics = {
            name: {
                "id": identity,
                "next": following.get(name, {}),
                **({"from": began[name]} if name in began else {}),
            }
            for name, identity in sorted(self.ids.items())
        }
        bound = {} if self.until is None else {"until": _nested(self.until)}
        return {"topics": topics, **bound}


def _flat(nested: Mapping[str, Mapping[str, int]]) -> dict[Partition, int]:
    return {
        (name, int(number)): int(offset)
        for name, numbers in nested.items()
        for number, offset in numbers.items()
    }


def _nested(flat: Mapping[Partition, int]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for (name, number), offset in sorted(flat.items()):
        found.setdefault(name, {})[str(number)] = offset
    return found


class Bounds:
    """Where reading starts and ends, by the options; driver only."""

    def __init__(self, options: KafkaOptions, client: Client) -> None:
        self._options, self._client = options, client

    def starts(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """The first offset of each partition; raises `OptionError` if there is none."""
        options, wanted = self._options, list(partitions)
        if options.startup.mode in (None, GROUPS):
            starts = self._committed(wanted)
        else:
            starts = self._at(options.startup, wanted, EARLIEST)
        if options.startup.mode in (None, GROUPS, SPECIFIC):
            self._check_exist(starts)
        return starts

    def _check_exist(self, starts: Mapping[Partition, int]) -> None:
        """Raise `OptionError` if a partition ends before its first offset."""
        for (topic, number), end in self._client.ends(starts).items():
            at = starts[topic, number]
            if at > end:
                mode = self._options.startup.mode or GROUPS
                raise OptionError(
                    f"topic {topic}, partition {number} ends at offset {end}, but the query is to "
                    f"start at offset {at} ('scan.startup.mode' = '{mode}'); set an offset up to "
                    f"{end}, or another mode"
                )

    def ends(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """The offset where each partition of a bounded source ends."""
        options, wanted = self._options, list(partitions)
        if options.bounded.mode == GROUPS:
            return self._group_offsets(wanted)
        return self._at(options.bounded, wanted, LATEST)

    def _at(
        self, position: ScanPosition, wanted: list[Partition], other: str
    ) -> dict[Partition, int]:
        """`other`: the mode of partitions for which specific offsets are not given."""
        if position.mode == SPECIFIC:
            offsets = position.offsets
            rest = [partition for partition in wanted if partition[1] not in offsets]
            given = {
                partition: offsets[partition[1]] for partition in wanted if partition[1] in offsets
            }
            return {**given, **self._at(ScanPosition(other), rest, other)}
        if position.mode == TIMESTAMP:
            return self._client.at_time(wanted, position.timestamp_ms)
        if position.mode == LATEST:
            return self._client.ends(wanted)
        return self._client.beginnings(wanted)

    def _committed(self, wanted: list[Partition]) -> dict[Partition, int]:
        options = self._options
        found = self._group_offsets(wanted, where="scan.startup.mode")
        rest = [partition for partition in wanted if partition not in found]
        if rest and options.reset not in ("earliest", "latest"):
            topic, number = rest[0]
            raise OptionError(
                f"group '{options.group}' has no offset of topic {topic}, partition {number}; set "
                "'properties.auto.offset.reset' to 'earliest' or 'latest', or "
                "'scan.startup.mode' to 'earliest-offset' or 'latest-offset'"
            )
        mode = EARLIEST if options.reset == "earliest" else LATEST
        return {**found, **self._at(ScanPosition(mode), rest, mode)}

    def _group_offsets(
        self, wanted: list[Partition], where: str = "scan.bounded.mode"
    ) -> dict[Partition, int]:
        """The offsets that the consumer group has committed."""
        options = self._options
        if options.group is None:
            raise OptionError(
                f"'{where}' is 'group-offsets', which needs 'properties.group.id'; set this, or "
                f"'{where}' to 'earliest-offset' or another mode"
            )
        reader = consumer(options)
        try:
            found = reader.committed(
                [TopicPartition(*partition) for partition in wanted], TIMEOUT_S
            )
        except KafkaException as error:
            raise kafka_error(options, error) from None
        finally:
            reader.close()
        return {
            (partition.topic, partition.partition): partition.offset
            for partition in found
            if partition.offset >= 0
        }
