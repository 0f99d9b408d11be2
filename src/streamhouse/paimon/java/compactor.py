"""Compactions of tables by the Java core: of buckets, of append tables, with a kept writer."""

from __future__ import annotations

from contextlib import closing
from typing import Any

from streamhouse.paimon.java.bucket_compaction import (
    COMMIT_OPTIONS,
    commit,
    compacted,
    loses_retractions,
)
from streamhouse.paimon.java.core_connection import CoreConnection
from streamhouse.paimon.java.local_copy import LocalCopies
from streamhouse.paimon.java.long_lived_writer import LongLivedWriter
from streamhouse.paimon.java.unfinished_compactions import compaction_marker
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.schema.table_name import branch_root
from streamhouse.paimon.storage.files import files_of, is_local
from streamhouse.paimon.storage.lock import commit_lock
from streamhouse.sql.options.merge_functions import removes_records
from streamhouse.sql.options.renamed_options import stored

COMMIT_USER = "streamhouse-maintenance"
"""Commit user of compactions; never that of a query."""
_MAX_OPEN_WRITERS = 6
"""The most tables whose writers stay open; each may use 64 MB of the JVM's memory."""
# Paimon counts this interval from the creation of a writer, but most compactions create a new one.
# The same is true of the counts of a gentle lookup compaction: maintenance counts instead.
_COMPACT_OPTIONS = {
    "write-only": "false",
    "compaction.optimization-interval": None,
    "lookup-compact": "radical",
}


class Compactor:
    """Compacts tables over one connection; its methods must be called within `core.run`.

    Keeps the writers of some tables open, and the local copies of others, until the JVM ends.
    """

    def __init__(self, core: CoreConnection) -> None:
        self._core = core
        self._open_writers: dict[str, LongLivedWriter] = {}
        self._copies = LocalCopies()
        core.before_end(self._close_all)

    def compact(self, name: str, full: bool, keep: bool, followed: Table | None) -> bool:
        """Compact a table as `Sidecar.compact` says; returns whether that made a snapshot."""
        done = None if followed is None else self._compact_copy(name, full, followed)
        if done is not None:
            return done
        if keep and not full:
            return self._compact_with_open_writer(name)
        return self._compact_with_new_writer(name, full)

    def _compact_with_new_writer(self, name: str, full: bool) -> bool:
        java_table = self._core.table(name)
        location = _location(java_table)
        root = branch_root(location, str(java_table.coreOptions().branch()))
        files = files_of(location, self._core.options)
        with compaction_marker(files, root) as names:
            table = java_table.copy({**_COMPACT_OPTIONS, **names})
            if table.primaryKeys() or table.bucketSpec().getNumBuckets() > 0:
                return self._compact_buckets(table, full)
            return self._compact_append(table)

    def _compact_with_open_writer(self, name: str) -> bool:
        """Compact a table with a writer that stays open; with a new one where that may not be."""
        java_table = self._core.table(name)
        location = _location(java_table)
        latest = self._next_identifier(java_table) - 1
        can_keep = (
            is_local(location)
            and not removes_records(stored(dict(java_table.options())))
            and not loses_retractions(java_table)
        )
        if not latest or not java_table.primaryKeys() or not can_keep:
            return self._compact_with_new_writer(name, False)
        root = branch_root(location, str(java_table.coreOptions().branch()))
        shared = self._core.shared
        writer, buckets = self._updated_writer(
            name, java_table.copy(_COMPACT_OPTIONS), root, latest
        )
        try:
            table, write = writer.java(shared)
            for entry in buckets:
                write.compact(entry.getLeft(), entry.getRight(), False)
            committed = self._commit(table, latest + 1, write.prepareCommit(True, latest + 1))
            writer.done(shared, latest, committed)
        except BaseException:
            writer.close(shared, ended_well=False)
            raise
        self._keep_open(name, writer, shared)
        return committed

    def _compact_copy(self, name: str, full: bool, followed: Table) -> bool | None:
        """Compact a table in a local copy; None if it must be compacted in the store itself."""
        if not followed.primary_key or followed.bucket < 1:
            return None
        with self._copies.borrowed(name, followed) as copy:
            if copy is None:
                return None
            return copy.compact(
                self._core.jvm, followed, full, _COMPACT_OPTIONS, COMMIT_USER, _committer
            )

    def compact_manifests(self, name: str, followed: Table | None = None) -> None:
        """Merge all manifests of a table, without touching its data; in a local copy if possible.

        `followed`: the table, if it is in an object store, and is compacted again and again.
        """
        if followed is not None and self._merge_copy(name, followed):
            return
        table = self._core.table(name)
        with commit_lock(_location(table)), closing(_committer(table)) as committer:
            committer.compactManifests()

    def _merge_copy(self, name: str, followed: Table) -> bool:
        """Merge the manifests of a table in a local copy; False if that is not possible."""
        with self._copies.borrowed(name, followed) as copy:
            if copy is None or copy.hold_newest() is None:
                return False
            with (
                copy.conflicts_reported(),
                closing(_committer(copy.java(self._core.jvm))) as committer,
            ):
                copy.commit(committer.compactManifests)
        return True

    def _compact_buckets(self, table: Any, full: bool) -> bool:
        identifier = self._next_identifier(table)
        reader = table.newSnapshotReader()
        # Buckets without new files need no compaction, and partitioned tables have many.
        entries = (reader if full else reader.withLevel(0)).bucketEntries()
        buckets = [(entry.partition(), entry.bucket()) for entry in entries]
        messages = compacted(self._core.jvm, table, buckets, full, identifier, COMMIT_USER)
        return self._commit(table, identifier, messages)

    def _compact_append(self, table: Any) -> bool:
        jvm = self._core.jvm
        tasks = jvm.org.apache.paimon.append.AppendCompactCoordinator(table, False).run()
        with closing(table.store().newWrite(COMMIT_USER)) as write:
            messages = [task.doCompact(table, write) for task in tasks]
        return self._commit(table, self._next_identifier(table), messages)

    def _updated_writer(
        self, name: str, table: Any, root: str, latest: int
    ) -> tuple[LongLivedWriter, Any]:
        """The table's open writer, notified of files up to `latest`, and the buckets to compact."""
        process, jvm, shared = self._core.process, self._core.jvm, self._core.shared
        with self._core.holding(process):
            # Removed from the map, so that no other thread uses it.
            writer = self._open_writers.pop(name, None)
        if writer is not None:
            same_process = writer.process is process
            buckets = None
            try:
                if same_process and writer.fits(table):
                    buckets = writer.buckets(jvm, shared, latest)
                    if buckets is not None:
                        return writer, buckets
            finally:
                if buckets is None:
                    writer.close(shared if same_process else None)
        writer = LongLivedWriter(process, table, root)
        try:
            writer.open(jvm, shared, table, COMMIT_USER)
            return writer, writer.buckets(jvm, shared, latest)
        except BaseException:
            writer.close(shared)
            raise

    def _keep_open(self, name: str, writer: LongLivedWriter, shared: Any) -> None:
        """Keep a writer open for the next call; close the least recently used of too many."""
        with self._core.holding(writer.process) as is_current:
            evicted = None
            if not is_current:
                evicted, shared = writer, None
            else:
                self._open_writers[name] = writer
                if len(self._open_writers) > _MAX_OPEN_WRITERS:
                    evicted = self._open_writers.pop(next(iter(self._open_writers)))
        if evicted is not None:
            evicted.close(shared)

    def _close_all(self) -> None:
        self._copies.close()
        writers, self._open_writers = self._open_writers, {}
        for writer in writers.values():
            writer.close(None)

    def _commit(self, table: Any, identifier: int, messages: Any) -> bool:
        if not any(not message.isEmpty() for message in messages):
            return False
        commit(table, COMMIT_USER, identifier, messages, commit_lock(_location(table)))
        return True

    def _next_identifier(self, table: Any) -> int:
        latest = table.snapshotManager().latestSnapshotId()
        return int(latest or 0) + 1


def _committer(table: Any) -> Any:
    return table.copy(COMMIT_OPTIONS).newCommit(COMMIT_USER)


def _location(table: Any) -> str:
    """A table's location, spelled as queries spell it, so that both take the same commit lock."""
    uri = table.location().toUri()
    local = uri.getScheme() in (None, "file")
    return str(uri.getPath() if local else table.location().toString())
