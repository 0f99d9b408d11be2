"""Compacts buckets of a table with a primary key; all files of a bucket where it must take them.

A merge without the older files of a bucket loses retractions in two kinds of tables: where a `-D`
removes the record of its key (decision 121), and where a retraction sets a column to null or takes
elements out of it (`paimon.schema.nulling_columns`). The former are rewritten as a whole each time,
the latter if files of level 0 have retractions. A lookup compaction reads the older row of each
key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing
from typing import Any

from streamhouse.paimon.java.rewritten_files import discard
from streamhouse.paimon.schema.nulling_columns import collecting_columns, nulling_columns
from streamhouse.sql.options.merge_functions import removes_records
from streamhouse.sql.options.renamed_options import stored


def compacted(
    jvm: Any,
    table: Any,
    buckets: Iterable[tuple[Any, int]],
    full: bool,
    identifier: int,
    open_write: Callable[[], Any],
) -> Any:
    """Compact pairs of partition and bucket of a Java table; returns the commit messages.

    Without `full`, the Java core picks files by the table's options where it may.
    """
    buckets = list(buckets)
    whole = full or removes_records(stored(dict(table.options())))
    if whole or not loses_retractions(table):
        return _messages(buckets, lambda _: whole, identifier, open_write)
    pair = jvm.org.apache.paimon.utils.Pair.of
    retracted = _with_retractions(jvm, table)
    messages = _messages(
        buckets, lambda bucket: retracted.contains(pair(*bucket)), identifier, open_write
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
    return _messages(buckets, lambda _: True, identifier, open_write)


def loses_retractions(table: Any) -> bool:
    """Whether merging some files of a Java table can lose what a retraction says of a column."""
    options, keys = stored(dict(table.options())), list(table.primaryKeys())
    columns = [name for name in table.rowType().getFieldNames() if name not in keys]
    found = nulling_columns(options, columns) or collecting_columns(options, columns)
    return bool(found) and not table.coreOptions().needLookup()


def _messages(
    buckets: Iterable[tuple[Any, int]],
    full: Callable[[tuple[Any, int]], bool],
    identifier: int,
    open_write: Callable[[], Any],
) -> Any:
    with closing(open_write()) as write:
        for bucket in buckets:
            write.compact(*bucket, full(bucket))
        return write.prepareCommit(True, identifier)


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
