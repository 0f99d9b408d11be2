"""Compactions of tables by the Java core: of buckets, of append tables, with a kept writer."""

from contextlib import closing
from typing import Any

from streamhouse.paimon.java.bucket_compaction import (
    commit,
    committer,
    compacted,
    latest_snapshot,
    location_of,
    loses_retractions,
)
from streamhouse.paimon.java.core_connection import CoreConnection
from streamhouse.paimon.java.local_copy import compact_copy, merge_manifests_of_copy
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

    Keeps the writers of some tables open until the JVM ends.
    """

    def __init__(self, core: CoreConnection) -> None:
        self._core = core
        self._open_writers: dict[str, LongLivedWriter] = {}
        core.before_end(self._close_all)

    def compact(self, name: str, full: bool, keep: bool, followed: Table | None) -> bool:
        """Compact a table as `Sidecar.compact` says; returns whether that made a snapshot."""
        if followed is not None and followed.primary_key and followed.bucket > 0:
            jvm = self._core.jvm
            done = compact_copy(jvm, followed, full, _COMPACT_OPTIONS, COMMIT_USER)
            if done is not None:
                return done
        if keep and not full:
            return self._compact_with_open_writer(name)
        return self._compact_with_new_writer(name, full)

    def _compact_with_new_writer(self, name: str, full: bool) -> bool:
        java_table = self._core.table(name)
        location = location_of(java_table)
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
        location = location_of(java_table)
        latest = latest_snapshot(java_table)
        can_keep = (
            is_local(location)
            and not removes_records(stored(dict(java_table.options())))
            and not loses_retractions(java_table)
        )
        if not latest or not java_table.primaryKeys() or not can_keep:
            return self._compact_with_new_writer(name, False)
        root = branch_root(location, str(java_table.coreOptions().branch()))
        writer, buckets = self._updated_writer(
            name, java_table.copy(_COMPACT_OPTIONS), root, latest
        )
        try:
            table, write = writer.java
            for entry in buckets:
                write.compact(entry.getLeft(), entry.getRight(), False)
            committed = _commit(table, write.prepareCommit(True, latest + 1))
            writer.done(latest, committed)
        except BaseException:
            writer.close(ended_well=False)
            raise
        self._keep_open(name, writer)
        return committed

    def compact_manifests(self, name: str, followed: Table | None = None) -> None:
        """Merge all manifests of a table, without touching its data; in a local copy if possible.

        `followed`: the table, if it is in an object store, and is compacted again and again.
        """
        jvm = self._core.jvm
        if followed is not None and merge_manifests_of_copy(jvm, followed, COMMIT_USER):
            return
        table = self._core.table(name)
        with commit_lock(location_of(table)), closing(committer(table, COMMIT_USER)) as commit:
            commit.compactManifests()

    def _compact_buckets(self, table: Any, full: bool) -> bool:
        reader = table.newSnapshotReader()
        # Buckets without new files need no compaction, and partitioned tables have many.
        entries = (reader if full else reader.withLevel(0)).bucketEntries()
        buckets = [(entry.partition(), entry.bucket()) for entry in entries]
        return _commit(table, compacted(self._core.jvm, table, buckets, full, COMMIT_USER))

    def _compact_append(self, table: Any) -> bool:
        jvm = self._core.jvm
        tasks = jvm.org.apache.paimon.append.AppendCompactCoordinator(table, False).run()
        with closing(table.store().newWrite(COMMIT_USER)) as write:
            messages = [task.doCompact(table, write) for task in tasks]
        return _commit(table, messages)

    def _updated_writer(
        self, name: str, table: Any, root: str, latest: int
    ) -> tuple[LongLivedWriter, Any]:
        """The table's open writer, notified of files up to `latest`, and the buckets to compact."""
        process, jvm = self._core.process, self._core.jvm
        with self._core.holding(process):
            # Removed from the map, so that no other thread uses it.
            writer = self._open_writers.pop(name, None)
        if writer is not None:
            buckets = None
            try:
                if writer.process is process and writer.fits(table):
                    buckets = writer.buckets(jvm, latest)
                    if buckets is not None:
                        return writer, buckets
            finally:
                if buckets is None:
                    writer.close()
        writer = LongLivedWriter(process, table, root)
        try:
            writer.open(jvm, table, COMMIT_USER)
            return writer, writer.buckets(jvm, latest)
        except BaseException:
            writer.close()
            raise

    def _keep_open(self, name: str, writer: LongLivedWriter) -> None:
        """Keep a writer open for the next call; close the least recently used of too many."""
        with self._core.holding(writer.process) as is_current:
            evicted = None
            if not is_current:
                evicted = writer
            else:
                self._open_writers[name] = writer
                if len(self._open_writers) > _MAX_OPEN_WRITERS:
                    evicted = self._open_writers.pop(next(iter(self._open_writers)))
        if evicted is not None:
            evicted.close()

    def _close_all(self) -> None:
        writers, self._open_writers = self._open_writers, {}
        for writer in writers.values():
            writer.close(jvm_ends=True)


def _commit(table: Any, messages: Any) -> bool:
    return commit(table, COMMIT_USER, messages) is not None
