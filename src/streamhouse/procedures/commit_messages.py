"""Serialises and commits commit messages of the Java core."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from streamhouse.paimon.java import bucket_compaction
from streamhouse.paimon.storage.lock import commit_lock

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


def commit(table: Any, location: str, messages: Any) -> int:
    """Commit Java's messages under the table's commit lock; returns the snapshot's id.

    Raises the errors of `bucket_compaction.commit`.
    """
    snapshots = table.snapshotManager()
    with commit_lock(location):
        identifier = int(snapshots.latestSnapshotId() or 0) + 1
        bucket_compaction.commit(table, COMMIT_USER, identifier, messages)
        return int(snapshots.latestSnapshotId())
