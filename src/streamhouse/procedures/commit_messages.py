"""Commit messages of the Java core: as bytes between processes, and their commit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JJavaError

from streamhouse.paimon.storage.lock import commit_lock

COMMIT_USER = "streamhouse-procedures"
"""Who commits what procedures do; never the user of a query."""

COMMIT_OPTIONS = {
    "write-only": "true",
    "commit.min-retry-wait": "5 ms",
    "commit.max-retry-wait": "50 ms",
    "commit.max-retries": "20",
}


@contextmanager
def closing(value: Any) -> Iterator[Any]:
    """Close a Java object at the end."""
    try:
        yield value
    finally:
        value.close()


def serialised(jvm: Any, messages: Iterable[Any]) -> list[bytes]:
    """Java's messages as bytes; empty ones are left out."""
    serializer = jvm.org.apache.paimon.table.sink.CommitMessageSerializer()
    return [bytes(serializer.serialize(one)) for one in messages if not one.isEmpty()]


def deserialised(jvm: Any, messages: Sequence[bytes]) -> Any:
    """A Java list of messages that any of the two cores made."""
    serializer = jvm.org.apache.paimon.table.sink.CommitMessageSerializer()
    found = jvm.java.util.ArrayList()
    for message in messages:
        found.add(serializer.deserialize(serializer.getVersion(), message))
    return found


def commit(jvm: Any, table: Any, location: str, messages: Any) -> int:
    """Commit Java's messages under the table's lock; the snapshot's id.

    A conflict removes the new files and is raised; what nobody is sure of stays on disk.
    """
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


def discard(table: Any, messages: Any) -> None:
    """Remove the files that messages made, and no file that was there before.

    Not by Java's own `abort`: a file that only went up a level is among the new ones too.
    """
    paths = table.store().pathFactory()
    for message in messages:
        factory = paths.createDataFilePathFactory(message.partition(), message.bucket())
        data, merged = message.newFilesIncrement(), message.compactIncrement()
        before = {str(one.fileName()) for one in merged.compactBefore()}
        made = [*data.newFiles(), *data.changelogFiles(), *merged.changelogFiles()]
        made += [one for one in merged.compactAfter() if str(one.fileName()) not in before]
        for one in made:
            table.fileIO().deleteQuietly(factory.toPath(one))
