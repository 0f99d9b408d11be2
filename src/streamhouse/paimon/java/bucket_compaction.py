"""Compacts buckets of a table with a primary key; all files of a bucket where it must take them.

A merge without the older files of a bucket loses retractions in two kinds of tables: where a `-D`
removes the record of its key (decision 121), and where a retraction sets a column to null or takes
elements out of it (`paimon.schema.nulling_columns`). The former are rewritten as a whole each time,
the latter if files of level 0 have retractions. A lookup compaction reads the older row of each
key."""

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from typing import Any

from py4j.protocol import Py4JJavaError

from streamhouse.errors import CommitConflictError
from streamhouse.paimon.java.core_errors import gave_up, is_conflict
from streamhouse.paimon.schema.nulling_columns import collecting_columns, nulling_columns
from streamhouse.paimon.storage.lock import commit_lock
from streamhouse.sql.options.merge_functions import removes_records
from streamhouse.sql.options.renamed_options import stored

# A commit to a `write-only` table expires neither snapshots nor partitions. The Java core's commits
# merge manifests from this number on; those of the Rust core never do.
COMMIT_OPTIONS = {
    "write-only": "true",
    "manifest.merge-min-count": "8",
    "commit.min-retry-wait": "5 ms",
    "commit.max-retry-wait": "50 ms",
    "commit.max-retries": "20",
}


def compacted(
    jvm: Any,
    table: Any,
    buckets: Iterable[tuple[Any, int]],
    full: bool,
    user: str,
) -> Any:
    """Compact pairs of partition and bucket of a Java table; returns the commit messages.

    Without `full`, the Java core picks files by the table's options where it may. `user` commits.
    """
    buckets = list(buckets)
    whole = full or removes_records(stored(dict(table.options())))
    if whole or not loses_retractions(table):
        return _messages(jvm, table, buckets, lambda _: whole, user)
    pair = jvm.org.apache.paimon.utils.Pair.of
    retracted = _with_retractions(jvm, table)
    messages = _messages(
        jvm, table, buckets, lambda bucket: retracted.contains(pair(*bucket)), user
    )
    partly = [
        message
        for message in messages
        if not retracted.contains(pair(message.partition(), message.bucket()))
    ]
    if not any(_retractions(message.compactIncrement().compactBefore()) for message in partly):
        return messages
    # A writer has committed retractions in the meantime.
    discard(table, messages)
    return _messages(jvm, table, buckets, lambda _: True, user)


def loses_retractions(table: Any) -> bool:
    """Whether merging some files of a Java table can lose what a retraction says of a column."""
    options, keys = stored(dict(table.options())), list(table.primaryKeys())
    columns = [name for name in table.rowType().getFieldNames() if name not in keys]
    found = nulling_columns(options, columns) or collecting_columns(options, columns)
    return bool(found) and not table.coreOptions().needLookup()


def _messages(
    jvm: Any,
    table: Any,
    buckets: Iterable[tuple[Any, int]],
    full: Callable[[tuple[Any, int]], bool],
    user: str,
) -> Any:
    with tempfile.TemporaryDirectory(prefix="streamhouse-") as spill:
        manager = jvm.org.apache.paimon.disk.IOManager.create(spill)
        with closing(table.newWrite(user).withIOManager(manager)) as write:
            for bucket in buckets:
                write.compact(*bucket, full(bucket))
            return write.prepareCommit(True, latest_snapshot(table) + 1)


def _with_retractions(jvm: Any, table: Any) -> Any:
    """A Java set of the partitions and buckets with retractions in level 0."""
    found = jvm.java.util.HashSet()
    for entry in table.store().newScan().withLevel(0).plan().files():
        if _retractions([entry.file()]):
            found.add(jvm.org.apache.paimon.utils.Pair.of(entry.partition(), entry.bucket()))
    return found


def _retractions(files: Iterable[Any]) -> bool:
    """Whether Java's files have retractions, or may have some."""
    return any(int(file.deleteRowCount().orElse(1)) > 0 for file in files)


def committer(table: Any, user: str) -> Any:
    """Paimon's commit of a user to a Java table, as rewrites of files need it."""
    return table.copy(COMMIT_OPTIONS).newCommit(user)


def commit(table: Any, user: str, messages: Any, schema: int | None = None) -> int | None:
    """Commit the messages of a rewrite of files under the table's lock; returns the snapshot's id.

    `schema` is the id of the schema with which all new files were written, if that is known: then
    Java is not asked for each of them, a call for every file. None, without a commit, if all
    messages are empty. After a conflict the new files are deleted, and the error is raised. After
    any other error they stay, since the commit may have succeeded.
    Raises `CommitConflictError` if the schema was changed meanwhile.
    """
    if all(message.isEmpty() for message in messages):
        return None
    _check_schema(table, messages, schema)
    lock = commit_lock(location_of(table))
    with closing(committer(table, user)) as commit, lock:
        try:
            commit.commit(latest_snapshot(table) + 1, messages)
        except Py4JJavaError as error:
            if is_conflict(error) and not gave_up(error):
                discard(table, messages)
            raise
        return latest_snapshot(table)


def latest_snapshot(table: Any) -> int:
    """The newest snapshot of a Java table; 0 if there is none."""
    return int(table.snapshotManager().latestSnapshotId() or 0)


def location_of(table: Any) -> str:
    """A Java table's location as queries spell it, so that both take the same commit lock."""
    uri = table.location().toUri()
    local = uri.getScheme() in (None, "file")
    return str(uri.getPath() if local else table.location().toString())


def _check_schema(table: Any, messages: Iterable[Any], schema: int | None) -> None:
    """Refuse to commit a rewrite that does not know all columns; call it before the commit.

    A Java table keeps the schema with which it was opened, but reads the files that are there when
    it plans. A file that was written after an ALTER TABLE has columns and types that such a
    rewrite drops. If the schema is still the same now, no file of a later one was read.

    Deletes the new files and raises `CommitConflictError`: the rewrite must start again.
    """
    latest = int(table.schemaManager().latest().get().id())
    if schema == latest:
        return
    for message in messages:
        if any(int(file.schemaId()) != latest for file in _rewritten(message)):
            discard(table, messages)
            raise CommitConflictError(
                f"table '{table.fullName()}': its schema was changed while its files were "
                "rewritten; nothing was changed: call again"
            )


def discard(table: Any, messages: Iterable[Any]) -> None:
    """Delete the files that messages have created, and no file that existed before.

    Java's own `abort` is not used: it also deletes existing files that only moved to another level,
    which are listed both before and after the compaction.
    """
    paths, files = table.store().pathFactory(), table.fileIO()
    for message in messages:
        factory = paths.createDataFilePathFactory(message.partition(), message.bucket())
        data = message.newFilesIncrement()
        for file in [*data.newFiles(), *data.changelogFiles(), *_rewritten(message)]:
            for path in file.collectFiles(factory):
                files.deleteQuietly(path)


def _rewritten(message: Any) -> Iterator[Any]:
    """The data and changelog files of a compaction that did not exist before it."""
    increment = message.compactIncrement()
    before = {str(file.fileName()) for file in increment.compactBefore()}
    for file in [*increment.compactAfter(), *increment.changelogFiles()]:
        if str(file.fileName()) not in before:
            yield file


def serialised(jvm: Any, messages: Iterable[Any]) -> list[bytes]:
    """Java's commit messages as bytes; empty ones are left out."""
    serializer = jvm.org.apache.paimon.table.sink.CommitMessageSerializer()
    return [bytes(serializer.serialize(message)) for message in messages if not message.isEmpty()]


def deserialised(jvm: Any, messages: Sequence[bytes]) -> list[Any]:
    """The commit messages that either core, Java or Rust, has made."""
    serializer = jvm.org.apache.paimon.table.sink.CommitMessageSerializer()
    version = serializer.getVersion()
    return [serializer.deserialize(version, message) for message in messages]
