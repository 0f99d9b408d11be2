"""A bad record of the dead-letter table, with the methods of Kafka's `Message`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Message

_PLACE = re.compile(r"topic (.*), partition (\d+), offset (\d+)")


def place(message: Message | ReplayedMessage) -> str:
    """Where a message is."""
    return f"topic {message.topic()}, partition {message.partition()}, offset {message.offset()}"


@dataclass(frozen=True)
class ReplayedMessage:
    """A message made of a `row` of the dead-letter table, which has no leader epoch."""

    row: Mapping[str, Any]

    def value(self) -> bytes | None:
        found: bytes | None = self.row["value"]
        return found

    def key(self) -> bytes | None:
        found: bytes | None = self.row["key"]
        return found

    def topic(self) -> str:
        return self._place()[1]

    def partition(self) -> int:
        return int(self._place()[2])

    def offset(self) -> int:
        return int(self._place()[3])

    def timestamp(self) -> tuple[int, int]:
        timestamp = self.row["timestamp"]
        return (0, 0) if timestamp is None else (1, timestamp)

    def headers(self) -> list[tuple[str, Any]]:
        return list(self.row["headers"] or [])

    def leader_epoch(self) -> int | None:
        return None

    def _place(self) -> re.Match[str]:
        found = _PLACE.fullmatch(self.row["position"])
        assert found is not None
        return found
