"""The sidecar: Paimon's Java core in a JVM of its own, for what only the Java core can do."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import Any, TypeVar

from streamhouse.paimon.java.bucket_compaction import (
    commit,
    committer,
    compacted,
    latest_snapshot,
    location_of,
    loses_retractions,
)
from streamhouse.paimon.java.core_connection import JAVA_OPTIONS, CoreConnection
from streamhouse.paimon.java.local_copy import compact_copy, merge_manifests_of_copy
from streamhouse.paimon.java.long_lived_writer import LongLivedWriter
from streamhouse.paimon.java.unfinished_compactions import CompactionMarker
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.schema.table_name import branch_root
from streamhouse.paimon.storage.files import files_of, is_local
from streamhouse.paimon.storage.lock import commit_lock
from streamhouse.sql.options.merge_functions import removes_records
from streamhouse.sql.options.renamed_options import stored

Result = TypeVar("Result")

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


class Sidecar(CoreConnection):
    """The Java core on one warehouse; its JVM starts at the first call, and again if it died.

    `warehouse_options` are the catalog's options (`warehouse`, `s3.*`, …). Runs on the driver, or
    in any Python process that finds Java. Thread-safe. The JVM ends with this process. No call
    expires a snapshot. Tables are named `database.table`; system tables
    (`database.table$audit_log`) can be read. Raises `TableError` for a table that does not exist,
    `CommitConflictError` if other commits won too often (nothing was changed: call again),
    `StreamhouseError` for everything else.
    """

    def __init__(
        self,
        warehouse_options: Mapping[str, str],
        java_options: Sequence[str] = JAVA_OPTIONS,
        nice: int = 0,
    ) -> None:
        super().__init__(warehouse_options, java_options, nice)
        self._open_writers: dict[str, LongLivedWriter] = {}

    def compact(
        self,
        table: str,
        full: bool = False,
        keep: bool = False,
        followed: Table | None = None,
    ) -> bool:
        """Compact all buckets; returns whether that made a snapshot.

        `full` rewrites each bucket into one level. Otherwise the Java core picks the files that the
        `num-sorted-run.*` options ask for, or all files if a `-D` removes the record
        (`paimon.write.merge_rules.remove_record_on_delete`). Changelogs are produced as the table's
        `changelog-producer` says. Append tables are compacted if they have enough small files.
        With `keep`, and not `full`, the Java writer of a local table stays open
        for the next such call (`paimon.java.long_lived_writer`).
        `followed` is the table as `Warehouse.followed` opens it, of a caller that compacts it again
        and again: if it is small, it is compacted in a local copy (`paimon.java.local_copy`).
        """

        def work() -> bool:
            done = None
            if followed is not None and followed.primary_key and followed.bucket > 0:
                done = compact_copy(self.jvm, followed, full, _COMPACT_OPTIONS, COMMIT_USER)
            if done is not None:
                return done
            if keep and not full:
                return self._compact_with_open_writer(table)
            return self._compact_with_new_writer(table, full)

        return self.run(table, work)

    def compact_manifests(self, table: str, followed: Table | None = None) -> None:
        """Merge all manifests of a table, without touching its data.

        `followed`: as in `compact`.
        """

        def work() -> None:
            if followed is not None and merge_manifests_of_copy(self.jvm, followed, COMMIT_USER):
                return
            java = self.table(table)
            with commit_lock(location_of(java)), closing(committer(java, COMMIT_USER)) as commit:
                commit.compactManifests()

        self.run(table, work)

    def write_iceberg_metadata(self, table: str) -> int:
        """Write Iceberg metadata of the newest snapshot, unless it exists; returns the snapshot.

        The Java core does so with its own commits, and the Rust core never. 0: no snapshot.
        """

        def write(jvm: Any, java_table: Any) -> int:
            latest = java_table.snapshotManager().latestSnapshot()
            if latest is None:
                return 0
            paimon = jvm.org.apache.paimon
            callback = paimon.iceberg.IcebergCommitCallback(java_table, latest.commitUser())
            with closing(callback):
                callback.retry(paimon.manifest.ManifestCommittable(latest.commitIdentifier()))
            return int(latest.id())

        return self.call(table, write)

    def call(
        self,
        table: str,
        work: Callable[[Any, Any], Result],
        options: Mapping[str, str | None] | None = None,
    ) -> Result:
        """Return `work(jvm, table)`, with the Java core's table under dynamic `options`.

        Java objects must not outlive the call. Work that commits must hold `commit_lock`.
        """
        return self.run(table, lambda: work(self.jvm, self.table(table, options)))

    def _compact_with_new_writer(self, name: str, full: bool) -> bool:
        java_table = self.table(name)
        location = location_of(java_table)
        root = branch_root(location, str(java_table.coreOptions().branch()))
        files = files_of(location, self.options)
        with CompactionMarker(files, root) as names:
            table, jvm = java_table.copy({**_COMPACT_OPTIONS, **names}), self.jvm
            if table.primaryKeys() or table.bucketSpec().getNumBuckets() > 0:
                reader = table.newSnapshotReader()
                # Buckets without new files need no compaction, and partitioned tables have many.
                entries = (reader if full else reader.withLevel(0)).bucketEntries()
                buckets = [(entry.partition(), entry.bucket()) for entry in entries]
                return _commit(table, compacted(jvm, table, buckets, full, COMMIT_USER))
            tasks = jvm.org.apache.paimon.append.AppendCompactCoordinator(table, False).run()
            with closing(table.store().newWrite(COMMIT_USER)) as write:
                messages = [task.doCompact(table, write) for task in tasks]
            return _commit(table, messages)

    def _compact_with_open_writer(self, name: str) -> bool:
        """Compact a table with a writer that stays open; with a new one where that may not be."""
        java_table = self.table(name)
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

    def _updated_writer(
        self, name: str, table: Any, root: str, latest: int
    ) -> tuple[LongLivedWriter, Any]:
        """The table's open writer, notified of files up to `latest`, and the buckets to compact."""
        process = self.process
        with self.holding(process):
            # Removed from the map, so that no other thread uses it.
            writer = self._open_writers.pop(name, None)
        if writer is not None:
            buckets = None
            try:
                if writer.process is process and writer.fits(table):
                    buckets = writer.buckets(latest)
                    if buckets is not None:
                        return writer, buckets
            finally:
                if buckets is None:
                    writer.close()
        writer = LongLivedWriter(process, table, root)
        try:
            writer.open(table, COMMIT_USER)
            return writer, writer.buckets(latest)
        except BaseException:
            writer.close()
            raise

    def _keep_open(self, name: str, writer: LongLivedWriter) -> None:
        """Keep a writer open for the next call; close the least recently used of too many."""
        with self.holding(writer.process) as is_current:
            evicted = None
            if not is_current:
                evicted = writer
            else:
                self._open_writers[name] = writer
                if len(self._open_writers) > _MAX_OPEN_WRITERS:
                    evicted = self._open_writers.pop(next(iter(self._open_writers)))
        if evicted is not None:
            evicted.close()

    def _before_end(self) -> None:
        writers, self._open_writers = self._open_writers, {}
        for writer in writers.values():
            writer.close(jvm_ends=True)


def _commit(table: Any, messages: Any) -> bool:
    return commit(table, COMMIT_USER, messages) is not None
