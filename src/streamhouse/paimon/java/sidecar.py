"""The sidecar: Paimon's Java core in a JVM of its own, for what only the Java core can do."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError

from streamhouse.errors import CommitConflictError, StreamhouseError, TableError
from streamhouse.options import is_secret
from streamhouse.paimon.java import class_archive, incomplete_snapshots
from streamhouse.paimon.java.bucket_compaction import compacted, loses_retractions
from streamhouse.paimon.java.jars import COORDINATES, JAR_VARIABLE, paimon_jar, s3_jar
from streamhouse.paimon.java.jvm import END_SECONDS, Channel, JavaProcess, spark_jars
from streamhouse.paimon.java.long_lived_writer import LongLivedWriter
from streamhouse.paimon.java.parquet_copy import copy_rows
from streamhouse.paimon.java.rewritten_files import check_schema, discard
from streamhouse.paimon.java.unfinished_compactions import compaction_marker
from streamhouse.paimon.schema.options.remove_record_option import removes_records
from streamhouse.paimon.schema.table_name import TableName, branch_root
from streamhouse.paimon.storage.files import files_of, is_local
from streamhouse.paimon.storage.lock import commit_lock
from streamhouse.paimon.storage.object_store.s3_client import core_options
from streamhouse.sql.options.catalog_options import file_system_options
from streamhouse.sql.options.renamed_options import stored
from streamhouse.sql.options.store_options import ENDPOINT, canonical_options, is_object_store

COMMIT_USER = "streamhouse-maintenance"
"""Commit user of compactions; never that of a query."""

JAVA_OPTIONS = (
    # With a small young generation, garbage collection took half of the JVM's time.
    "-Xms160m",
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
_SPARK_JARS = (
    "hadoop-client-*.jar",
    "slf4j-api-*.jar",
    "commons-*.jar",
    "snappy-java-*.jar",
    "zstd-jni-*.jar",
    "lz4-java-*.jar",
    "aircompressor-*.jar",
)
# Paimon counts this interval from the creation of a writer, but most compactions create a new one.
# The same is true of the counts of a gentle lookup compaction: maintenance counts instead.
_COMPACT_OPTIONS = {
    "write-only": "false",
    "compaction.optimization-interval": None,
    "lookup-compact": "radical",
}
# The Java core's commits merge manifests from this number on; those of the Rust core never do.
_COMMIT_OPTIONS = {
    "write-only": "true",
    "manifest.merge-min-count": "8",
    "commit.min-retry-wait": "5 ms",
    "commit.max-retry-wait": "50 ms",
    "commit.max-retries": "20",
}
_DYING_S = 1.0
_CONFLICT = ("conflict", "commit failed after", "retries")
_MANIFESTS = "manifests"
_MANIFESTS_BYTES = 32 * 2**20
_MANIFESTS_PAGE = 4 * 2**10
_MAX_OPEN_WRITERS = 6
"""The most tables whose writers stay open; each may use 64 MB of the JVM's memory."""

Result = TypeVar("Result")


def classpath() -> list[Path]:
    """The jars of the sidecar's JVM: Paimon's, fetched if it is not there, and some of Spark's."""
    return [paimon_jar(), *spark_jars(_SPARK_JARS)]


def _store_jars(options: Mapping[str, str]) -> list[Path]:
    """The jars that a warehouse in an object store needs, which come after the others.

    So the archive of classes that was made without them still fits.
    """
    return [s3_jar()] if ENDPOINT in options or is_object_store(options["warehouse"]) else []


@dataclass(frozen=True)
class BucketFiles:
    """How many data files one bucket has, and how many of them are of level 0.

    `partition` maps partition columns to their text; `bucket` is 0 for unaware-bucket tables.
    """

    partition: Mapping[str, str]
    bucket: int
    files: int
    level0: int


@dataclass
class _Session:
    """A channel to the JVM, and the Java catalog that was opened through it on first use."""

    channel: Channel
    process: JavaProcess
    catalog: Any = None


class Sidecar:
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
        self._options = canonical_options(warehouse_options)
        self._java_options = tuple(java_options)
        self._nice = nice
        self._process: JavaProcess | None = None
        self._idle: list[_Session] = []
        self._open_writers: dict[str, LongLivedWriter] = {}
        self._local = threading.local()
        self._lock = threading.Lock()

    def __enter__(self) -> Sidecar:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int | None:
        """The JVM's process id, None while none runs."""
        process = self._process
        return process.pid if process is not None and process.alive else None

    def read(
        self, table: str, snapshot: int | None = None, options: Mapping[str, str] | None = None
    ) -> pa.Table:
        """All rows of a table as the Java core merges them, now or as of a snapshot id.

        `options` are dynamic table options of the read, such as `incremental-between`.
        """
        dynamic = dict(options or {})
        if snapshot is not None:
            dynamic["scan.snapshot-id"] = str(snapshot)
        with tempfile.TemporaryDirectory(prefix="streamhouse-") as folder:
            file = Path(folder) / "rows.parquet"
            self._call(table, lambda: copy_rows(self._jvm(), self._table(table, dynamic), file))
            return pq.read_table(file)

    def compact(
        self,
        table: str,
        full: bool = False,
        partitions: Sequence[Mapping[str, str]] | None = None,
        keep: bool = False,
    ) -> bool:
        """Compact all buckets, or those of some partitions; returns whether it made a snapshot.

        `full` rewrites each bucket into one level. Otherwise the Java core picks the files that the
        `num-sorted-run.*` options ask for, or all files if a `-D` removes the record
        (`paimon.write.merge_rules.remove_record_on_delete`). Changelogs are produced as the table's
        `changelog-producer` says. Append tables are compacted if they have enough small files.
        With `keep`, and neither `full` nor `partitions`, the Java writer of a local table stays
        open for the next such call (`paimon.java.long_lived_writer`).
        """
        if keep and not full and partitions is None:
            return self._call(table, lambda: self._compact_with_open_writer(table))
        return self._call(table, lambda: self._compact(table, full, partitions))

    def compact_manifests(self, table: str) -> None:
        """Merge all manifests of a table, without touching its data."""

        def merge() -> None:
            java_table = self._table(table)
            with (
                commit_lock(_location(java_table)),
                closing(self._committer(java_table)) as commit,
            ):
                commit.compactManifests()

        self._call(table, merge)

    def write_iceberg_metadata(self, table: str) -> int:
        """Write Iceberg metadata of the newest snapshot, unless it exists; returns the snapshot.

        The Java core does so with its own commits, and the Rust core never. 0: no snapshot.
        """

        def write() -> int:
            jvm, java_table = self._jvm(), self._table(table)
            latest = java_table.snapshotManager().latestSnapshot()
            if latest is None:
                return 0
            paimon = jvm.org.apache.paimon
            callback = paimon.iceberg.IcebergCommitCallback(java_table, latest.commitUser())
            with closing(callback):
                callback.retry(paimon.manifest.ManifestCommittable(latest.commitIdentifier()))
            return int(latest.id())

        return self._call(table, write)

    def buckets(self, table: str) -> list[BucketFiles]:
        """The buckets of a table that have files."""
        return self._call(table, lambda: self._buckets(self._table(table)))

    def options(self, table: str) -> dict[str, str]:
        """The options that are set on a table."""
        return self._call(table, lambda: dict(self._table(table).options()))

    def call(
        self,
        table: str,
        work: Callable[[Any, Any], Result],
        options: Mapping[str, str | None] | None = None,
    ) -> Result:
        """Return `work(jvm, table)`, with the Java core's table under dynamic `options`.

        Java objects must not outlive the call. Work that commits must hold `commit_lock`.
        """
        return self._call(table, lambda: work(self._jvm(), self._table(table, options)))

    def start(self) -> None:
        """Start the JVM now, so that the first call need not wait for it."""
        self._running()

    def close(self, timeout_s: float = END_SECONDS) -> None:
        """End the JVM, and kill it after `timeout_s` seconds; a later call starts another."""
        self._end(self._process, timeout_s)

    def kill(self) -> None:
        """End the JVM at once, also while another thread waits for it: that call then fails."""
        process = self._process
        if process is not None:
            process.kill()

    def _call(self, table: str, work: Callable[[], Result]) -> Result:
        try:
            return self._attempt(table, work)
        except StreamhouseError as error:
            if not incomplete_snapshots.is_cause(error):
                raise
            if not incomplete_snapshots.remove(self._options, table):
                raise
            return self._attempt(table, work)

    def _attempt(self, table: str, work: Callable[[], Result]) -> Result:
        if getattr(self._local, "session", None) is not None:
            return work()
        process: JavaProcess | None = None
        session: _Session | None = None
        try:
            process = self._running()
            self._local.session = session = self._enter(process)
            return work()
        except Py4JError as error:
            raise self._explained(table, error, process) from None
        finally:
            self._local.session = None
            if process is not None and session is not None:
                self._leave(process, session)

    def _running(self) -> JavaProcess:
        with self._lock:
            if self._process is not None and not self._process.alive:
                self._close_process()
            if self._process is None:
                self._process = self._start()
            return self._process

    def _enter(self, process: JavaProcess) -> _Session:
        """A channel to the JVM that no other thread uses."""
        with self._lock:
            if process is self._process and self._idle:
                return self._idle.pop()
        return _Session(process.open_channel(), process)

    def _start(self) -> JavaProcess:
        jars, more = classpath(), _store_jars(self._options)
        java_options = (*self._java_options, *class_archive.java_options(jars))
        process = JavaProcess([*jars, *more], java_options, self._nice)
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

    def _leave(self, process: JavaProcess, session: _Session) -> None:
        try:
            if process.alive:
                session.channel.release()
        except Py4JError:
            self._end(process)
        with self._lock:
            if process is self._process:
                self._idle.append(session)
                return
        session.channel.close()

    def _end(self, process: JavaProcess | None, timeout_s: float = END_SECONDS) -> None:
        """End this JVM, unless another has taken its place."""
        with self._lock:
            if process is self._process:
                self._close_process(timeout_s)

    def _close_process(self, timeout_s: float = END_SECONDS) -> None:
        process, self._process = self._process, None
        sessions, self._idle = self._idle, []
        writers, self._open_writers = self._open_writers, {}
        for write in writers.values():
            write.close(None)
        for session in sessions:
            session.channel.close()
        if process is not None:
            process.close(timeout_s)

    def _explained(
        self, table: str, error: Py4JError, process: JavaProcess | None
    ) -> StreamhouseError:
        try:
            if isinstance(error, Py4JJavaError):
                return self._translated(table, error)
        except Py4JError as later:
            error = later
        # An error that is no Java exception is a broken connection: the JVM may be about to end.
        ends_soon = process is not None and process.ends_within(_DYING_S)
        if isinstance(error, Py4JNetworkError) or process is None or ends_soon or not process.alive:
            self._end(process)
            return StreamhouseError(
                f"the Java process that worked on table '{table}' ended; "
                "the next call starts another"
            )
        reason = (str(error).splitlines() or ["no reason given"])[0]
        return StreamhouseError(f"the Java core failed on table '{table}': {reason}")

    def _jvm(self) -> Any:
        """Java's packages, within a call."""
        return self._local.session.channel.jvm

    def _catalog(self) -> Any:
        session: _Session = self._local.session
        if session.catalog is None:
            session.catalog = self._open_catalog(session.channel.jvm)
            session.channel.keep()
        return session.catalog

    def _open_catalog(self, jvm: Any) -> Any:
        # Tables also change in other processes: no cache.
        opened = core_options(file_system_options(self._options))
        settings = opened | {"cache-enabled": "false"}
        options = jvm.org.apache.paimon.options.Options.fromMap(settings)
        context = jvm.org.apache.paimon.catalog.CatalogContext.create(options)
        return jvm.org.apache.paimon.catalog.CatalogFactory.createCatalog(context)

    def _table(self, name: str, dynamic: Mapping[str, str | None] | None = None) -> Any:
        database, dot, table = name.partition(".")
        if not dot or not table:
            raise TableError(f"table '{name}': write the name as 'database.table'")
        identifier = self._jvm().org.apache.paimon.catalog.Identifier.create(database, table)
        java_table = self._catalog().getTable(identifier)
        if TableName.parse(table).system is None:
            java_table.setManifestCache(self._manifests())
        return java_table.copy(dict(dynamic)) if dynamic else java_table

    def _manifests(self) -> Any:
        """The cache of manifest files, shared by all tables and threads.

        Manifest files never change, and each compaction reads all of them for every bucket.
        """
        cache = self._shared().get(_MANIFESTS)
        if cache is None:
            paimon = self._jvm().org.apache.paimon
            memory = paimon.options.MemorySize(_MANIFESTS_BYTES)
            # A cached manifest has at least one page for each bucket, by default one of 64 KB.
            cache = paimon.utils.SegmentsCache.create(_MANIFESTS_PAGE, memory, _MANIFESTS_BYTES)
            self._shared().put(_MANIFESTS, cache)
        return cache

    def _committer(self, table: Any) -> Any:
        # A commit to a `write-only` table expires neither snapshots nor partitions.
        return table.copy(_COMMIT_OPTIONS).newCommit(COMMIT_USER)

    def _compact(
        self, name: str, full: bool, partitions: Sequence[Mapping[str, str]] | None
    ) -> bool:
        if partitions is not None and not partitions:
            return False
        java_table = self._table(name)
        location = _location(java_table)
        root = branch_root(location, str(java_table.coreOptions().branch()))
        files, start_snapshot = (
            files_of(location, self._options),
            self._next_identifier(java_table) - 1,
        )
        with (
            tempfile.TemporaryDirectory(prefix="streamhouse-") as spill,
            compaction_marker(files, root, start_snapshot) as names,
        ):
            table = java_table.copy({**_COMPACT_OPTIONS, **names})
            if table.primaryKeys() or table.bucketSpec().getNumBuckets() > 0:
                return self._compact_buckets(table, full, partitions, spill)
            return self._compact_append(table, partitions)

    def _compact_buckets(
        self, table: Any, full: bool, partitions: Sequence[Mapping[str, str]] | None, spill: str
    ) -> bool:
        io_manager = self._jvm().org.apache.paimon.disk.IOManager.create(spill)
        identifier = self._next_identifier(table)
        reader = self._reader(table, partitions)
        # Buckets without new files need no compaction, and partitioned tables have many.
        entries = (reader if full else reader.withLevel(0)).bucketEntries()
        messages = compacted(
            self._jvm(),
            table,
            [(entry.partition(), entry.bucket()) for entry in entries],
            full,
            identifier,
            lambda: table.newWrite(COMMIT_USER).withIOManager(io_manager),
        )
        return self._commit(table, identifier, messages)

    def _compact_with_open_writer(self, name: str) -> bool:
        java_table = self._table(name)
        location = _location(java_table)
        latest = self._next_identifier(java_table) - 1
        can_keep = (
            is_local(location)
            and not removes_records(stored(dict(java_table.options())))
            and not loses_retractions(java_table)
        )
        if not latest or not java_table.primaryKeys() or not can_keep:
            return self._compact(name, False, None)
        root, shared = branch_root(location, str(java_table.coreOptions().branch())), self._shared()
        writer, buckets = self._updated_writer(
            name, java_table.copy(_COMPACT_OPTIONS), root, latest
        )
        try:
            writer.begin(latest)
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

    def _updated_writer(
        self, name: str, table: Any, root: str, latest: int
    ) -> tuple[LongLivedWriter, Any]:
        """The table's open writer, notified of files up to `latest`, and the buckets to compact."""
        process, jvm, shared = self._local.session.process, self._jvm(), self._shared()
        with self._lock:
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
        with self._lock:
            evicted = None
            if writer.process is not self._process:
                evicted, shared = writer, None
            else:
                self._open_writers[name] = writer
                if len(self._open_writers) > _MAX_OPEN_WRITERS:
                    evicted = self._open_writers.pop(next(iter(self._open_writers)))
        if evicted is not None:
            evicted.close(shared)

    def _shared(self) -> Any:
        """The Java objects that outlive a call."""
        return self._local.session.channel.shared

    def _compact_append(self, table: Any, partitions: Sequence[Mapping[str, str]] | None) -> bool:
        jvm = self._jvm()
        coordinator = jvm.org.apache.paimon.append.AppendCompactCoordinator
        if partitions is None:
            tasks = coordinator(table, False).run()
        else:
            predicate = jvm.org.apache.paimon.partition.PartitionPredicate.fromMaps(
                table.schema().logicalPartitionType(),
                [dict(partition) for partition in partitions],
                table.coreOptions().partitionDefaultName(),
            )
            tasks = coordinator(table, False, predicate).run()
        messages = jvm.java.util.ArrayList()
        if tasks:
            with closing(table.store().newWrite(COMMIT_USER)) as write:
                for task in tasks:
                    messages.add(task.doCompact(table, write))
        return self._commit(table, self._next_identifier(table), messages)

    def _commit(self, table: Any, identifier: int, messages: Any) -> bool:
        if not any(not message.isEmpty() for message in messages):
            return False
        check_schema(table, messages)
        with closing(self._committer(table)) as commit:
            try:
                with commit_lock(_location(table)):
                    commit.commit(identifier, messages)
            except Py4JJavaError as error:
                # Files of a commit whose outcome is not known for sure must stay.
                if _is_conflict(error) and "retries" not in _text(error):
                    discard(table, messages)
                raise
        return True

    def _next_identifier(self, table: Any) -> int:
        latest = table.snapshotManager().latestSnapshotId()
        return int(latest or 0) + 1

    def _reader(self, table: Any, partitions: Sequence[Mapping[str, str]] | None = None) -> Any:
        reader = table.newSnapshotReader()
        if partitions is not None:
            maps = self._jvm().java.util.ArrayList()
            for partition in partitions:
                maps.add(dict(partition))
            reader = reader.withPartitionsFilter(maps)
        return reader

    def _buckets(self, table: Any) -> list[BucketFiles]:
        store = table.store()
        names = store.pathFactory()

        def counts(reader: Any) -> dict[tuple[str, int], int]:
            return {
                (names.getPartitionString(entry.partition()), entry.bucket()): entry.fileCount()
                for entry in reader.bucketEntries()
            }

        level0 = counts(self._reader(table).withLevel(0))
        return [
            BucketFiles(_partition(text), bucket, files, level0.get((text, bucket), 0))
            for (text, bucket), files in counts(self._reader(table)).items()
        ]

    def _translated(self, table: str, error: Py4JJavaError) -> StreamhouseError:
        thrown = error.java_exception
        name = thrown.getClass().getSimpleName()
        if name in ("TableNotExistException", "DatabaseNotExistException"):
            return TableError(f"table '{table}' does not exist")
        reason = f"{name}: {_message(thrown)}"
        for key, value in self._options.items():
            if value and is_secret(key):
                reason = reason.replace(value, "***")
        if _is_conflict(error):
            return CommitConflictError(
                f"table '{table}' was not compacted: other commits conflicted ({reason}); try again"
            )
        return StreamhouseError(f"the Java core failed on table '{table}': {reason}")


def _location(table: Any) -> str:
    """A table's location, spelled as queries spell it, so that both take the same commit lock."""
    uri = table.location().toUri()
    local = uri.getScheme() in (None, "file")
    return str(uri.getPath() if local else table.location().toString())


def _partition(text: str) -> dict[str, str]:
    """`a=1/b=2/` as a mapping."""
    return dict(part.split("=", 1) for part in text.strip("/").split("/") if "=" in part)


def _message(thrown: Any) -> str:
    """The first line of a Java exception's message, or of its cause's when it has none."""
    while thrown is not None:
        text = thrown.getMessage()
        if text:
            return str(text).splitlines()[0][:500]
        thrown = thrown.getCause()
    return "no message"


def _is_conflict(error: Py4JJavaError) -> bool:
    return any(word in _text(error) for word in _CONFLICT)


def _text(error: Py4JJavaError) -> str:
    return str(error.java_exception.getMessage() or "").lower()
