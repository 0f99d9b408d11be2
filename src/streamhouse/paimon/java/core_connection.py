"""The connection to Paimon's Java core, which runs in a JVM of its own."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self, TypeVar

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError

from streamhouse.errors import StreamhouseError, TableError
from streamhouse.paimon.java import class_archive, incomplete_snapshots
from streamhouse.paimon.java.core_errors import java_error
from streamhouse.paimon.java.jars import COORDINATES, JAR_VARIABLE, S3_JAR, paimon_jar
from streamhouse.paimon.java.jvm import END_SECONDS, JavaProcess, spark_jars
from streamhouse.paimon.schema.table_name import TableName
from streamhouse.paimon.storage.object_store.s3_client import core_options
from streamhouse.sql.options.catalog_options import file_system_options
from streamhouse.sql.options.store_options import ENDPOINT, canonical_options, is_object_store

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
_DYING_S = 1.0
_MANIFESTS_BYTES = 32 * 2**20
_MANIFESTS_PAGE = 4 * 2**10

Result = TypeVar("Result")


def classpath() -> list[Path]:
    """The jars of the sidecar's JVM: Paimon's, fetched if it is not there, and some of Spark's."""
    return [paimon_jar(), *spark_jars(_SPARK_JARS)]


class CoreConnection:
    """The JVM of a `Sidecar`, for several threads at once.

    `jvm`, `process` and `table` are valid only in a `session`, and in the work that `run` calls.
    """

    def __init__(
        self,
        options: Mapping[str, str],
        java_options: Sequence[str],
        nice: int,
    ) -> None:
        self.options = canonical_options(options)
        self._java_options = tuple(java_options)
        self._nice = nice
        self._process: JavaProcess | None = None
        self._local = threading.local()
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int | None:
        """The JVM's process id, None while none runs."""
        process = self._process
        return process.pid if process is not None and process.alive else None

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
            self._local.process = process = self._running()
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
        database, dot, table = name.partition(".")
        if not dot or not table:
            raise TableError(f"table '{name}': write the name as 'database.table'")
        identifier = self.jvm.org.apache.paimon.catalog.Identifier.create(database, table)
        catalog, manifests = self._shared()
        java_table = catalog.getTable(identifier)
        if TableName.parse(table).system is None:
            java_table.setManifestCache(manifests)
        return java_table.copy(dict(dynamic)) if dynamic else java_table

    @contextmanager
    def holding(self, process: JavaProcess) -> Iterator[bool]:
        """Keep the JVM from being ended; yields whether `process` is still that of new calls."""
        with self._lock:
            yield process is self._process

    def _before_end(self) -> None:
        """Called when the JVM is about to be ended, or has died."""

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

    def _running(self) -> JavaProcess:
        with self._lock:
            if self._process is not None and not self._process.alive:
                self._close_process()
            if self._process is None:
                self._process = self._start()
            return self._process

    def _start(self) -> JavaProcess:
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
        self._before_end()
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
