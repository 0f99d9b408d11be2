"""Commit messages of the Java core as bytes."""

from collections.abc import Iterable, Sequence
from typing import Any

COMMIT_USER = "streamhouse-procedures"
"""The commit user of procedures; queries have commit users of their own."""


def serialised(jvm: Any, messages: Iterable[Any]) -> list[bytes]:
    """Java's messages as bytes; empty ones are left out."""
    serializer = jvm.org.apache.paimon.table.sink.CommitMessageSerializer()
    return [bytes(serializer.serialize(message)) for message in messages if not message.isEmpty()]


def deserialised(jvm: Any, messages: Sequence[bytes]) -> list[Any]:
    """The messages that either core, Java or Rust, has made."""
    serializer = jvm.org.apache.paimon.table.sink.CommitMessageSerializer()
    version = serializer.getVersion()
    return [serializer.deserialize(version, message) for message in messages]
