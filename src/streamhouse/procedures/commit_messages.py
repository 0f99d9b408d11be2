"""Serialises and commits commit messages of the Java core."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing
from typing import Any

from py4j.protocol import Py4JJavaError

from streamhouse.paimon.java.bucket_compaction import check_schema, discard
from streamhouse.paimon.storage.lock import commit_lock

COMMIT_USER = "streamhouse-procedures"
"""The commit user of procedures; queries have commit users of their own."""

COMMIT_OPTIONS = {
    "write-only": "true",
    "commit.min-retry-wait": "5 ms",
    "commit.max-retry-wait": "50 ms",
    "commit.max-retries": "20",
}


def serialised(jvm: Any, messages: Iterable[Any]) -> list[bytes]:
    """Java's messages as bytes; empty ones are left out."""
    serializer = jvm.org.apache.paimon.table.sink.CommitMessageSerializer()
    return [bytes(serializer.serialize(message)) for message in messages if not message.isEmpty()]


def deserialised(jvm: Any, messages: Sequence[bytes]) -> list[Any]:
    """The messages that either core, Java or Rust, has made."""
    serializer = jvm.org.apache.paimon.table.sink.CommitMessageSerializer()
    version = serializer.getVersion()
    return [serializer.deserialize(version, message) for message in messages]


def commit(jvm: Any, table: Any, location: str, messages: Any) -> int:
    """Commit Java's messages under the table's commit lock; returns the snapshot's id.

    After a conflict the new files are deleted, and the error is raised. After any other error they
    stay on disk, since the commit may have succeeded. Raises `CommitConflictError` if the schema
    has changed since they were written as a rewrite of others.
    """
    check_schema(table, messages)
    # A write-only table's commit expires nothing.
    with closing(table.copy(COMMIT_OPTIONS).newCommit(COMMIT_USER)) as committer:
        with commit_lock(location):
            latest = table.snapshotManager().latestSnapshotId()
            try:
                committer.commit(int(latest or 0) + 1, messages)
            except Py4JJavaError as error:
                text = str(error.java_exception.getMessage() or "").lower()
                if "conflict" in text and "retries" not in text:
                    discard(table, messages)
                raise
            return int(table.snapshotManager().latestSnapshotId())
