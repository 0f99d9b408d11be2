"""The sidecar: Paimon's Java core in a JVM of its own, for what only the Java core can do."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any, Self, TypeVar

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError

from streamhouse.errors import StreamhouseError
from streamhouse.paimon.java import class_archive, incomplete_snapshots
from streamhouse.paimon.java.bucket_compaction import (
    commit,
    committer,
    compacted,
    latest_snapshot,
    location_of,
    loses_retractions,
)
from streamhouse.paimon.java.core_errors import java_error
from streamhouse.paimon.java.jars import COORDINATES, JAR_VARIABLE, S3_JAR, classpath
from streamhouse.paimon.java.jvm import END_SECONDS, JavaProcess
from streamhouse.paimon.java.local_copy import compact_copy, merge_manifests_of_copy
from streamhouse.paimon.java.long_lived_writer import LongLivedWriter
from streamhouse.paimon.java.unfinished_compactions import CompactionMarker
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.readers import wake_readers
from streamhouse.paimon.schema.table_name import TableName, branch_root, split_identifier
from streamhouse.paimon.storage.files import files_of, is_local
from streamhouse.paimon.storage.lock import commit_lock
from streamhouse.paimon.storage.object_store.s3_client import core_options
from streamhouse.sql.options.catalog_options import file_system_options
from streamhouse.sql.options.merge_functions import removes_records
from streamhouse.sql.options.renamed_options import stored
from streamhouse.sql.options.store_options import ENDPOINT, canonical_options, is_object_store

Result = TypeVar("Result")

JAVA_OPTIONS = (
    # With a small young generation, garbage collection took half of the JVM's time.
    "-Xms160m",
    # With the default of 8 much that dies soon was promoted: a full collection every 1.3 seconds.
    "-XX:SurvivorRatio=3",
    "-Xmn96m",
    "-Xmx768m",
    "-Xss512k",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:MinHeapFreeRatio=10",
    "-XX:MaxHeapFreeRatio=30",
    "-Djava.awt.headless=true",
    "-Dslf4j.internal.verbosity=ERROR",
)
COMMIT_USER = "streamhouse-maintenance"
"""Commit user of compactions; never that of a query."""
_MAX_OPEN_WRITERS = 6
"""The most tables whose writers stay open; each may use 64 MB of the JVM's memory."""
_DYING_S = 1.0
_MANIFESTS_BYTES = 32 * 2**20
_MANIFESTS_PAGE = 4 * 2**10
_ORC_BUFFER = "orc.compress.size"
_ORC_BUFFER_BYTES = "65536"
"""ORC allocates two such buffers for each stream of a column, by default of 256 KB."""
# Paimon counts this interval from the creation of a writer, but most compactions create a new one.
# The same is true of the counts of a gentle lookup compaction: maintenance counts instead.
_COMPACT_OPTIONS = {
    "write-only": "false",
    "compaction.optimization-interval": None,
    "lookup-compact": "radical",
}


class Sidecar:
    """The Java core on one warehouse; its JVM starts at the first call, and again if it died.

    `warehouse_options` are the catalog's options (`warehouse`, `s3.*`, …). Runs on the driver, or
    in any Python process that finds Java. Thread-safe. The JVM ends with this process. No call
    expires a snapshot. Tables are named `database.table`; system tables
    (`database.table$audit_log`) can be read. Raises `TableError` for a table that does not exist,
    `CommitConflictError` if other commits won too often (nothing was changed: call again),
    `StreamhouseError` for everything else. `jvm`, `process` and `table` are valid only in a
    `session`, and in the work that `run` calls.
    """

    def __init__(
        self,
        warehouse_options: Mapping[str, str],
        java_options: Sequence[str] = JAVA_OPTIONS,
        nice: int = 0,
    ) -> None:
        self.options = canonical_options(warehouse_options)
        self._java_options = tuple(java_options)
        self._nice = nice
        self._process: JavaProcess | None = None
        self._local = threading.local()
        self._lock = threading.Lock()
        self._open_writers: dict[str, LongLivedWriter] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int | None:
        """The JVM's process id, None while none runs."""
        process = self._process
        return process.pid if process is not None and process.alive else None

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

        committed = self.run(table, work)
        if committed:
            wake_readers(table)
        return committed

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

    def run(self, table: str, work: Callable[[], Result]) -> Result:
        """Return `work()`; raises `StreamhouseError`.

        Tries once more without the incomplete snapshots of a killed writer, if these made it fail.
        """
        try:
            with self.session(table):
                return work()
        except StreamhouseError as error:
            if not incomplete_snapshots.is_cause(error):
                raise
            if not incomplete_snapshots.remove(self.options, table):
                raise
            with self.session(table):
                return work()

    @contextmanager
    def session(self, table: str) -> Iterator[None]:
        """Use the JVM within the block; raises `StreamhouseError`."""
        if getattr(self._local, "process", None) is not None:
            yield
            return
        process: JavaProcess | None = None
        try:
            self._local.process = process = self.start()
            yield
        except Py4JError as error:
            raise self._explained(table, error, process) from None
        finally:
            self._local.process = None

    @property
    def jvm(self) -> Any:
        """Java's packages."""
        return self.process.jvm

    @property
    def process(self) -> JavaProcess:
        """The JVM."""
        process: JavaProcess = self._local.process
        return process

    def table(self, name: str, dynamic: Mapping[str, str | None] | None = None) -> Any:
        """The Java table, with `dynamic` options."""
        database, table = split_identifier(name)
        identifier = self.jvm.org.apache.paimon.catalog.Identifier.create(database, table)
        catalog, manifests = self._shared()
        java_table = catalog.getTable(identifier)
        if TableName.parse(table).system is None:
            java_table.setManifestCache(manifests)
        return java_table.copy(dict(dynamic)) if dynamic else java_table

    def start(self) -> JavaProcess:
        """Start the JVM unless it runs, so that the first call need not wait for it."""
        with self._lock:
            if self._process is not None and not self._process.alive:
                self._close_process()
            if self._process is None:
                self._process = self._new_process()
            return self._process

    def close(self, timeout_s: float = END_SECONDS) -> None:
        """End the JVM, and kill it after `timeout_s` seconds; a later call starts another."""
        self._end(self._process, timeout_s)

    def kill(self) -> None:
        """End the JVM at once, also while another thread waits for it: that call then fails."""
        process = self._process
        if process is not None:
            process.kill()

    def _compact_with_new_writer(self, name: str, full: bool) -> bool:
        java_table = self.table(name)
        location = location_of(java_table)
        root = branch_root(location, str(java_table.coreOptions().branch()))
        files = files_of(location, self.options)
        with CompactionMarker(files, root) as names:
            table, jvm = java_table.copy({**_compact_options(java_table), **names}), self.jvm
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
            name, java_table.copy(_compact_options(java_table)), root, latest
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
        with self._lock:
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
        with self._lock:
            if writer.process is self._process:
                self._open_writers[name] = writer
                if len(self._open_writers) <= _MAX_OPEN_WRITERS:
                    return
                writer = self._open_writers.pop(next(iter(self._open_writers)))
        writer.close()

    def _new_process(self) -> JavaProcess:
        jars = classpath()
        java_options = (*self._java_options, *class_archive.java_options(jars))
        # The archive of classes, which was made without the last jar, still fits if that is added.
        in_store = ENDPOINT in self.options or is_object_store(self.options["warehouse"])
        store_jars = [S3_JAR.path()] if in_store else []
        process = JavaProcess([*jars, *store_jars], java_options, self._nice)
        try:
            process.jvm.org.apache.paimon.options.Options()
        except TypeError:
            # py4j raises a TypeError for a class that does not exist.
            process.close()
            raise StreamhouseError(
                f"'{jars[0]}' does not hold Paimon's Java core; set {JAR_VARIABLE} to "
                f"the path of {COORDINATES}, or unset it to have it fetched"
            ) from None
        return process

    def _end(self, process: JavaProcess | None, timeout_s: float = END_SECONDS) -> None:
        """End this JVM, unless another has taken its place."""
        with self._lock:
            if process is self._process:
                self._close_process(timeout_s)

    def _close_process(self, timeout_s: float = END_SECONDS) -> None:
        process, self._process = self._process, None
        writers, self._open_writers = self._open_writers, {}
        for writer in writers.values():
            writer.close(jvm_ends=True)
        if process is not None:
            process.close(timeout_s)

    def _explained(
        self, table: str, error: Py4JError, process: JavaProcess | None
    ) -> StreamhouseError:
        try:
            if isinstance(error, Py4JJavaError):
                return java_error(table, error, self.options)
        except Py4JError as later:
            error = later
        # An error that is no Java exception is a broken connection: the JVM may be about to end.
        ends_soon = process is not None and process.ends_within(_DYING_S)
        if isinstance(error, Py4JNetworkError) or process is None or ends_soon or not process.alive:
            self._end(process)
            return StreamhouseError(
                f"the Java process that worked on table '{table}' ended; the next call starts "
                "another"
            )
        reason = (str(error).splitlines() or ["no reason given"])[0]
        return StreamhouseError(f"the Java core failed on table '{table}': {reason}")

    def _shared(self) -> tuple[Any, Any]:
        """The catalog, and the cache of manifest files, shared by all tables and threads.

        Manifest files never change, and each compaction reads all of them for every bucket.
        """
        process = self.process
        if process.kept is None:
            paimon = process.jvm.org.apache.paimon
            # Tables also change in other processes: the catalog has no cache.
            settings = core_options(file_system_options(self.options)) | {"cache-enabled": "false"}
            options = paimon.options.Options.fromMap(settings)
            context = paimon.catalog.CatalogContext.create(options)
            memory = paimon.options.MemorySize(_MANIFESTS_BYTES)
            # A cached manifest has at least one page for each bucket, by default one of 64 KB.
            process.kept = (
                paimon.catalog.CatalogFactory.createCatalog(context),
                paimon.utils.SegmentsCache.create(_MANIFESTS_PAGE, memory, _MANIFESTS_BYTES),
            )
        return process.kept


def _compact_options(table: Any) -> dict[str, str | None]:
    """The options with which a Java table is compacted; its own ORC buffers stay."""
    buffer = str(table.options().getOrDefault(_ORC_BUFFER, _ORC_BUFFER_BYTES))
    return {**_COMPACT_OPTIONS, _ORC_BUFFER: buffer}


def _commit(table: Any, messages: Any) -> bool:
    return commit(table, COMMIT_USER, messages, int(table.schema().id())) is not None
