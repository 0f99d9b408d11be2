"""The files that a compaction or another rewrite has made, until they are committed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from streamhouse.errors import CommitConflictError


def check_schema(table: Any, messages: Iterable[Any]) -> None:
    """Refuse to commit a rewrite that does not know all columns; call it before the commit.

    A Java table keeps the schema with which it was opened, but reads the files that are there when
    it plans. A file that was written after an ALTER TABLE has columns and types that such a
    rewrite drops. If the schema is still the same now, no file of a later one was read.

    Deletes the new files and raises `CommitConflictError`: the rewrite must start again.
    """
    latest = int(table.schemaManager().latest().get().id())
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
