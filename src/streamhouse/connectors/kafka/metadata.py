"""METADATA columns of `kafka` tables, with Flink's keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from confluent_kafka import Message

from streamhouse.connectors.base import Metadata

METADATA = (
    Metadata("topic", "STRING", "the topic of the record"),
    Metadata("partition", "INT", "the number of its partition"),
    Metadata("offset", "BIGINT", "its offset in the partition"),
    Metadata("timestamp", "TIMESTAMP_LTZ(3)", "its timestamp; a sink writes it"),
    Metadata(
        "timestamp-type", "STRING", "`CreateTime`, `LogAppendTime` or `NoTimestampType`"
    ),
    Metadata(
        "headers", "MAP<STRING, BYTES>",
        "its headers, the last of those with one name; a sink writes them",
    ),
    Metadata("leader-epoch", "INT", "the leader epoch of the record, if it is known"),
)  # fmt: skip
WRITABLE = ("timestamp", "headers")
"""What a sink writes."""
_TYPES = ("NoTimestampType", "CreateTime", "LogAppendTime")


def values(key: str, messages: Sequence[Message]) -> pa.Array:
    """The values of a metadata key."""
    if key == "topic":
        return pa.array([message.topic() for message in messages], pa.string())
    if key == "partition":
        return pa.array([message.partition() for message in messages], pa.int32())
    if key == "offset":
        return pa.array([message.offset() for message in messages], pa.int64())
    if key == "timestamp":
        timestamps = [_timestamp(message) for message in messages]
        return pa.array(timestamps, pa.int64()).cast(pa.timestamp("ms", "UTC"))
    if key == "timestamp-type":
        return pa.array([_TYPES[message.timestamp()[0]] for message in messages], pa.string())
    if key == "headers":
        return pa.array([_headers(message) for message in messages], _HEADERS)
    return pa.array([message.leader_epoch() for message in messages], pa.int32())


_HEADERS = pa.map_(pa.string(), pa.binary())


def _timestamp(message: Message) -> int | None:
    kind, timestamp = message.timestamp()
    return timestamp if kind else None


def _headers(message: Message) -> list[tuple[str, Any]]:
    return list(dict(message.headers() or []).items())
